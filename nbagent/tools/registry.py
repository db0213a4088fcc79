"""Which tools there are: built in, the user's own (`@nbagent.tool`), and those of installed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Unpack, overload

from nbagent.errors import NbAgentError, SettingsError, ToolDefinitionError
from nbagent.events import DialectName
from nbagent.protocols import Tool
from nbagent.tools.built_in import RESERVED
from nbagent.tools.definition import Declared, FunctionTool, tool
from nbagent.tools.permission import Permission

ENTRY_POINT_GROUP = "nbagent.tools"
BUILT_IN = "built in"
SESSION = "session"

#: Tools that look into the user's own kernel.
NEED_HOST = frozenset({"bring_variable", "post_mortem"})
_TAKEN = f"its name is taken ({BUILT_IN})"

#: What `@nbagent.tool` registered in this process, by name; running its cell again replaces it.
_own: dict[str, FunctionTool] = {}


@overload
def register(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def register(**declared: Unpack[Declared]) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def register(
    function: Callable[..., Any] | None = None, /, **declared: Unpack[Declared]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a typed, documented function and offer it to the agent: `@nbagent.tool`.

    With or without arguments: see `nbagent.tools.definition.Declared` for what they mean.

    Raises:
        ToolDefinitionError: the function cannot be a tool, or its name is one of nbagent's own.
    """
    if function is None:
        return lambda function: _registered(tool(**declared)(function))
    return _registered(function if isinstance(function, FunctionTool) else tool(function))


def unregister(name: str) -> None:
    """Take a tool of the user's away again."""
    _own.pop(name, None)


def _registered(made: FunctionTool) -> FunctionTool:
    if made.name in RESERVED:
        raise ToolDefinitionError(f"{made.name} is the name of a built-in tool: give yours another (name=...)")
    _own[made.name] = made
    return made


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool with where it comes from. `fault` says why it cannot be used; then `tool` may be missing."""

    name: str
    origin: str  #: "built in", "session" or "package NAME"
    tool: Tool | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Offered:
    """What the model of the last run was told of, kept for the session. `names` is None before the first run."""

    names: frozenset[str] | None = None
    how: str = ""  #: what left the others out, in words

    def state(self, name: str) -> str:
        """Say why the model does not know of a tool; "" where it does, or nobody knows yet."""
        return "" if self.names is None or name in self.names else f"not offered to this model ({self.how})"


class Registry:
    """The tools of one session."""

    def __init__(self, built_in: Sequence[Tool]) -> None:
        self._built_in = {tool.name: tool for tool in built_in}

    def entries(self) -> Iterator[Entry]:
        """Give every tool once; a name belongs to the built-in tool, then to the user's, then to a package's."""
        for name, built_in in self._built_in.items():
            yield Entry(name, BUILT_IN, built_in)
        for name, own in _own.items():
            yield Entry(name, SESSION, own)
        for entry in package_entries():
            if entry.name in self._built_in or entry.name in _own:
                taken = BUILT_IN if entry.name in self._built_in else SESSION
                yield Entry(
                    entry.name, entry.origin, None, entry.fault or f"a tool of that name is there ({taken})"
                )
            else:
                yield entry

    def offered(
        self,
        dialect: DialectName,
        *,
        small: bool,
        with_host: bool,
        permission: Permission,
        nothing_to_bring: bool = False,
    ) -> list[Tool]:
        """Give the tools that the model is told of, in a stable order.

        `with_host`: there is a kernel of the user's; `nothing_to_bring`: it is the one that the code runs in.
        The text dialects say no more than they must: `fenced` can express nothing but code.

        Raises:
            SettingsError: that is what the settings deny.
        """
        if dialect == "fenced":
            run_code = self._built_in["run_code"]
            if why := permission.of_tool(run_code):
                raise SettingsError(f"run_code is {why}, and this model can do nothing else (dialect fenced)")
            return [run_code]
        return [
            entry.tool
            for entry in self.entries()
            if entry.tool is not None
            and not entry.fault
            and (with_host or entry.name not in NEED_HOST)
            and not (nothing_to_bring and entry.name == "bring_variable")
            and (dialect == "json" or entry.name != "final_answer")
            and (not small or entry.tool.traits.small or entry.origin == SESSION)
            and not permission.of_tool(entry.tool)
        ]

    def withheld(self, permission: Permission) -> dict[str, str]:
        """Give the tools that the settings deny as a whole, each with the reason."""
        tools = [entry.tool for entry in self.entries() if entry.tool is not None]
        return {tool.name: why for tool in tools if (why := permission.of_tool(tool))}


@cache
def package_entries() -> tuple[Entry, ...]:
    """Load the tools of installed packages, once a process; one that cannot be loaded says why."""
    found = metadata.entry_points(group=ENTRY_POINT_GROUP)
    return tuple(entry for point in found for entry in _load(point))


def _load(point: metadata.EntryPoint) -> Iterator[Entry]:
    """Load one entry point: a tool, a typed function, or several of them in a list."""
    origin = f"package {point.dist.name if point.dist else point.value}"
    before = dict(_own)
    try:
        value = point.load()
        values: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
        tools = [_as_tool(value) for value in values]
    except NbAgentError as error:
        yield Entry(point.name, origin, None, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - its fault must not take the others' tools away
        yield Entry(point.name, origin, None, f"not loaded: {type(error).__name__}: {error}".partition("\n")[0])
    else:
        for made in tools:
            if _own.get(made.name) is made and made.name not in before:
                del _own[made.name]  # `@nbagent.tool` in the package registered it while it was loaded
            yield Entry(made.name, origin, made, _TAKEN if made.name in RESERVED else "")


def _as_tool(value: Any) -> Tool:
    if callable(value) and not isinstance(value, FunctionTool) and not hasattr(value, "spec"):
        return tool(value)
    if not all(hasattr(value, name) for name in ("name", "spec", "arguments", "traits", "grade", "run")):
        raise ToolDefinitionError(f"{value!r} is no tool: point to a function made by @nbagent.tool")
    made: Tool = value
    return made
