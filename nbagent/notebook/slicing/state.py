"""What is known while cells are read: values by name, who bound and changed them, and the cells' own facts."""

from __future__ import annotations

from dataclasses import dataclass, field

from nbagent.notebook.slicing.functions import NO_EFFECT, Latent

_NO_TOKENS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Source:
    """One executed cell. `complete`: it ran to its end; else it raised somewhere."""

    code: str
    complete: bool = True
    state_lost_before: bool = False


@dataclass
class Node:
    """What was found out about one cell."""

    depends: set[int] = field(default_factory=set)  #: indexes of earlier cells
    imports: set[int] = field(default_factory=set)  #: of `Flow.imports`, that it uses
    binds: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)  #: that it uses or changes
    drawn: set[str] = field(default_factory=set)  #: generators that it draws from though nothing seeded them
    perhaps_drawn: set[str] = field(default_factory=set)  #: by what draws in some cases only
    clocks: set[str] = field(default_factory=set)  #: what it asks for the time or other things that never repeat
    changes_settings: bool = False
    opaque: str = ""  #: why it cannot be read


@dataclass(frozen=True)
class Import:
    """One import statement that can stand first in the notebook."""

    cell: int
    line: str  #: as Python, e.g. `import pandas as pd`
    first: int  #: its line numbers in the cell's source, from 1
    last: int
    names: frozenset[str]


@dataclass
class Value:
    """What a name may stand for."""

    own: frozenset[int] = _NO_TOKENS
    inner: frozenset[int] = _NO_TOKENS
    latent: Latent = NO_EFFECT
    iterator: bool = False
    known: bool = False  #: that neither it nor what it holds is an iterator

    @property
    def every(self) -> frozenset[int]:
        return self.own | self.inner

    @property
    def settled(self) -> bool:
        """Whether it is a function that stays as it is: only what it captured can change."""
        return self.known and self.latent.function and not self.latent.changes_itself


@dataclass
class State:
    """The tables that the readers of cells share."""

    imports: list[Import] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    bound_by: dict[str, set[int]] = field(default_factory=dict)
    changed_by: dict[int, set[int]] = field(default_factory=dict)  #: by token
    states: dict[str, set[int]] = field(default_factory=dict)  #: of the process
    seeded: set[str] = field(default_factory=set)
    anything: set[int] = field(default_factory=set)  #: cells that may have bound any name
    modules: dict[str, str] = field(default_factory=dict)
    import_of: dict[str, set[int]] = field(default_factory=dict)
    hoisted: set[int] = field(default_factory=set)  #: `id` of the import statements that can stand first
    tokens: int = 0

    def token(self) -> int:
        """Give a token for a new object."""
        self.tokens += 1
        return self.tokens

    def forget(self) -> None:
        """The kernel's variables are gone."""
        for names in (self.values, self.bound_by, self.states, self.modules, self.import_of):
            names.clear()
        self.changed_by.clear()
        self.seeded.clear()
        self.anything.clear()
