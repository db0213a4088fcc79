"""What an export begins with where the agent worked on the user's own variables: the cells that made them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nbagent.events import Shared
from nbagent.notebook.slicing.flow import Flow
from nbagent.notebook.slicing.state import Source
from nbagent.steps import Given, Item, Lost, Step, Yours
from nbagent.tools.cell_names import names_of


@dataclass
class Beginnings:
    """Names are told as `df (DataFrame (3, 2))`."""

    cells: set[int] = field(default_factory=set)  #: `id` of each of the user's cells that is needed
    made: list[str] = field(default_factory=list)  #: names that those cells make
    unmade: list[str] = field(default_factory=list)  #: names that nothing in the log makes

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Say what the notebook starts from: a heading and names, line by line."""
        lines = [("Of your own variables, cells of yours here make:", ", ".join(self.made))] if self.made else []
        if self.unmade:
            lines.append(("Of your own variables, no cell here makes:", ", ".join(self.unmade)))
        return lines

    @property
    def check(self) -> str:
        """Give a cell that stops where variables are missing, and says which."""
        names = [told.partition(" ")[0] for told in self.unmade]
        return (
            "# Variables of yours that no cell above makes for sure: define what is missing here.\n"
            f"for name in {names!r}:\n"
            "    if name not in globals():\n"
            '        raise NameError(f"this notebook starts from {name}, which is a variable of yours")'
        )


def beginnings_of(items: Sequence[Item], is_kept: Callable[[Item], bool]) -> Beginnings:
    """Find what the kept steps need of the user's; nothing where the agent's kernel had nothing of theirs."""
    if not any(isinstance(item, Given) for item in items):
        return Beginnings()
    executed = [item for item in items if isinstance(item, Lost | Yours | Shared) or _is_cell(item)]
    executed = [item for item in executed if isinstance(item, Lost | Yours) or is_kept(item)]
    needed = _needed(executed)
    found = Beginnings(cells={id(item) for item in needed if isinstance(item, Yours)})
    summaries = {
        name: summary for item in items if isinstance(item, Given) for name, summary in item.names.items()
    }
    there: set[str] = set()
    theirs: set[str] = set()
    for item in executed:
        if isinstance(item, Lost):
            there, theirs = set(), set()
        elif isinstance(item, Shared):
            there.add(item.name)
        elif isinstance(item, Yours) and id(item) in found.cells:
            theirs |= names_of(item.code).stored
        elif isinstance(item, Step):
            names = names_of(item.code)
            for name in sorted(names.needs - there):
                told = f"{name} ({summaries[name]})" if summaries.get(name) else name
                if name in theirs:
                    found.made += [told] if name in summaries and told not in found.made else []
                elif told not in found.unmade:
                    found.unmade.append(told)
            there |= names.stored
    return found


def _is_cell(item: Item) -> bool:
    return isinstance(item, Step) and item.runs


def _needed(executed: Sequence[Item]) -> list[Item]:
    """Give what the steps among these depend on."""
    items, sources, lost = [], [], False
    for item in executed:
        if isinstance(item, Lost):
            lost = True
            continue
        code = f"{item.name} = object()" if isinstance(item, Shared) else getattr(item, "code", "")
        complete = not (isinstance(item, Step) and item.needed)
        items.append(item)
        sources.append(Source(code, complete, lost))
        lost = False
    steps = {index for index, item in enumerate(items) if isinstance(item, Step)}
    return [items[index] for index in Flow(sources, hoist=False).needed_by(steps)]
