"""How a tool is declared: a typed, documented function, and what the gateway should know of it.

    @tool(risk="network", timeout=20, quota=50, tags=("web",))
    def exchange_rate(base: str, to: str = "EUR") -> float:
        '''Give today's exchange rate. Use it for money in different currencies.

        Args:
            base: Currency code, e.g. USD.
            to: Currency code to convert to.
        '''

`nbagent.tool` (this module's `tool` and a registration) is for users and packages. A built-in tool is one file
that uses `tool` from here, and one line in `nbagent.tools.built_in`.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypedDict, Unpack, get_args, get_origin, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from nbagent.errors import ToolDefinitionError
from nbagent.events import Risk
from nbagent.protocols import ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ToolTraits
from nbagent.tools.findings import RISKS
from nbagent.tools.threads import in_a_thread

#: Risk of one call from its arguments: the grade alone, or with the reason in a few words.
RiskOf = Callable[[Mapping[str, Any], ToolContext], Risk | tuple[Risk, str]]

#: Seconds that a call may take where the tool does not say.
LOCAL_TIMEOUT = 5.0
HTTP_TIMEOUT = 15.0  #: for tools with risk "network" or the tag "http"
EXTERNAL_TIMEOUT = 30.0  #: for tools with the tag "external": other programs and services
MOST_ITEMS = 10_000  #: that are taken of a generator
RETRIES = 2  #: after connection faults, for tools that only read

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ARGS = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_SECTION = re.compile(
    r"^\s*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.MULTILINE
)
_ARGUMENT = re.compile(r"^\s*\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


class FunctionTool:
    """A function as a tool; it stays callable as the function that it was. Implements `protocols.Tool`."""

    def __init__(
        self,
        function: Callable[..., Any],
        traits: ToolTraits,
        *,
        name: str = "",
        description: str = "",
        risk: Risk | RiskOf = "write",
        summarise: Callable[[Any], str] | None = None,
    ) -> None:
        self.name = name or getattr(_written(function), "__name__", "")
        self.traits = traits
        self._function = function
        self._risk = risk
        self._summarise = summarise
        if not _NAME.fullmatch(self.name):
            raise ToolDefinitionError(f"{self.name!r} cannot be a tool's name: use letters, digits, _ and -")
        text, told = _read_docstring(inspect.getdoc(function) or "")
        self._signature = _Signature(function, self.name, told)
        self.arguments: type[BaseModel] = self._signature.model
        if not (description or text):
            raise ToolDefinitionError(
                f"tool {self.name} has no description: give the function a docstring that says when to use it"
            )
        self.spec = ToolSpec(self.name, description or text, terse_schema(self.arguments))
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__module__ = getattr(function, "__module__", None) or __name__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function itself."""
        return self._function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<tool {self.name}{inspect.signature(self._function)}>"

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """Give the declared risk, or what the tool's own function says of these arguments."""
        given = self._risk(arguments, context) if callable(self._risk) else self._risk
        return (given, "as its author says") if isinstance(given, str) else given

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the function: an async one on this loop, another in a thread of its own.

        What it returns is told to the model as text; a `ToolResult` is passed on as it is.
        """
        positional, named = self._signature.bind(arguments, context)
        written = _written(self._function)
        value: Any
        if inspect.isasyncgenfunction(written):
            value = [item async for item in self._function(*positional, **named)]
        elif inspect.iscoroutinefunction(written):
            value = await self._function(*positional, **named)
        elif inspect.isgeneratorfunction(written):
            value = await in_a_thread(lambda: list(islice(self._function(*positional, **named), MOST_ITEMS)))
        else:
            value = await in_a_thread(self._function, *positional, **named)
            if inspect.isawaitable(value):
                value = await value
        if isinstance(value, ToolResult):
            return value
        return ToolResult("ok", self._summarise(value) if self._summarise else told(value))


def _written(function: Callable[..., Any]) -> Any:
    """Give the function as it was written: within a partial, behind a callable object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def told(value: Any) -> str:
    """Give a returned value as the text that the model reads."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, bool | int | float | dict | list | tuple | set | frozenset):
        try:
            return to_json(value, fallback=str).decode()
        except ValueError:  # it holds itself
            return str(value)
    return str(value)


class Declared(TypedDict, total=False):
    """What may be said of a tool beside its function. All of it is optional."""

    name: str  #: what the model calls it; default: the function's name
    description: str  #: when to use it, an example; default: the docstring up to `Args:`
    #: Decides whether the user is asked first; a function of (arguments, context) may give the pair (risk, why).
    risk: Risk | RiskOf
    #: Seconds of one call; None: the tool keeps its own time. Default: 5; 15 with risk "network" or tag "http";
    #: 30 with tag "external".
    timeout: float | None
    #: Further attempts after a connection fault, where doing it twice is harmless. Default: 2 with risk "read".
    retries: int
    cache: float  #: seconds that a good result is kept for the same arguments; default: not at all
    parallel_safe: bool  #: may run at the same time as other such calls of the same reply
    quota: int  #: most calls in one session
    summarise: Callable[[Any], str]  #: turns what the function returned into the text for the model
    tags: Sequence[str]  #: words by which the tool can be allowed or denied
    small: bool  #: offer it to small models, too
    #: What a call does, in words by which the user may allow it for the session; default: the tool's name.
    patterns: Callable[[dict[str, Any]], Sequence[str]]
    #: What a yes would change, e.g. a diff, of (arguments, context): the user sees it with the question.
    preview: Callable[[dict[str, Any], ToolContext], str]


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(**declared: Unpack[Declared]) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **declared: Unpack[Declared]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a typed, documented function, sync or async; see `Declared` for what may be said of it.

    Its parameters become the schema: types from the annotations, descriptions from the docstring's `Args:` or
    from `Annotated[..., Field(description=...)]`. A parameter annotated as `ToolContext` is given the context
    and not shown to the model. What the function returns is told to the model as text (`ToolResult` for full
    control of status, notice and summary); what it raises becomes an observation. A sync function runs in a
    thread of its own; an async one on the agent's loop, which it must not hold up.

    Raises:
        ToolDefinitionError: no description, a parameter without a type, or a type that JSON cannot carry.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            function,
            _traits(declared),
            name=declared.get("name", ""),
            description=declared.get("description", ""),
            risk=declared.get("risk", "write"),
            summarise=declared.get("summarise"),
        )

    return make if function is None else make(function)


def _traits(declared: Declared) -> ToolTraits:
    for name in declared:
        if name not in Declared.__annotations__:
            nearest = get_close_matches(name, Declared.__annotations__, n=1)
            hint = f": did you mean {nearest[0]}?" if nearest else ""
            raise ToolDefinitionError(f"a tool has no {name!r}{hint}")
    for name in ("timeout", "retries", "cache", "quota"):
        value = declared.get(name)
        if value is not None and (not isinstance(value, int | float) or value < 0):
            raise ToolDefinitionError(f"a tool's {name} is a number from 0 up, not {value!r}")
    risk, tags = declared.get("risk", "write"), declared.get("tags", ())
    fixed = risk if isinstance(risk, str) else None
    if not callable(risk) and risk not in RISKS:
        raise ToolDefinitionError(f"a tool's risk is one of {', '.join(RISKS)}, or a function; not {risk!r}")
    tags = (tags,) if isinstance(tags, str) else tuple(tags)
    return ToolTraits(
        risk=fixed,
        timeout=declared.get("timeout", _default_timeout(fixed, tags)),
        retries=declared.get("retries", RETRIES if fixed == "read" else 0),
        cache=declared.get("cache", 0),
        parallel_safe=declared.get("parallel_safe", False),
        quota=declared.get("quota"),
        tags=tags,
        small=declared.get("small", False),
        patterns=declared.get("patterns"),
        preview=declared.get("preview"),
    )


def _default_timeout(risk: Risk | None, tags: Sequence[str]) -> float:
    if "external" in tags:
        return EXTERNAL_TIMEOUT
    return HTTP_TIMEOUT if risk == "network" or "http" in tags else LOCAL_TIMEOUT


def terse_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Give a model's JSON schema without what says nothing: titles and the class's own description."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a default that the schema cannot show
        schema: dict[str, Any] = _without_titles(model.model_json_schema())
    schema.pop("description", None)
    for field in schema.get("properties", {}).values():
        if not field.get("default", True):  # empty, false or null: that is what leaving it out means
            del field["default"]
    return schema


def _without_titles(node: Any, names: bool = False) -> Any:
    """Drop the keyword `title`; within `properties` it is a parameter's name (`names`)."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value
        if key in ("default", "const", "enum") and not names
        else _without_titles(value, names=key in ("properties", "$defs") and not names)
        for key, value in node.items()
        if names or key != "title" or not isinstance(value, str)
    }


def parameters(model: type[BaseModel]) -> list[str]:
    """Give the names of a tool's parameters as the model knows them."""
    return [field.alias or name for name, field in model.model_fields.items()]


class _Signature:
    """A function's parameters as a pydantic model, and back to a call."""

    def __init__(self, function: Callable[..., Any], name: str, told: Mapping[str, str]) -> None:
        if not callable(function) or inspect.isclass(function):
            raise ToolDefinitionError(f"{function!r} is no function: put @tool above a def")
        try:
            hints = get_type_hints(_written(function), include_extras=True)
        except (NameError, TypeError) as error:
            raise ToolDefinitionError(f"tool {name}: a type of its parameters is not known: {error}") from None
        self._fields: dict[str, str] = {}  # parameter -> field: a field may not be named `schema` or `_x`
        self._context: list[str] = []
        self._positional: list[str] = []
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ToolDefinitionError(
                    f"tool {name}: {parameter} cannot be told to a model: name each parameter"
                )
            if parameter.name not in hints:
                raise ToolDefinitionError(f"tool {name}: parameter {parameter.name} needs a type, e.g. str")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(parameter.name)
            hint = hints[parameter.name]
            if _is_context(hint):
                self._context.append(parameter.name)
                continue
            self._fields[parameter.name] = field = f"argument_{len(self._fields)}"
            says: dict[str, Any] = {"alias": parameter.name}
            if parameter.default is not parameter.empty:
                says["default"] = parameter.default
            if parameter.name in told:
                says["description"] = told[parameter.name]
            fields[field] = (hint, Field(**says))
        self.model = _model(name, fields)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """Give the call's positional and named arguments; what was checked has its Python type again."""
        checked = self.model.model_validate(arguments)
        named = {name: getattr(checked, field) for name, field in self._fields.items()}
        named |= dict.fromkeys(self._context, context)
        return [named.pop(name) for name in self._positional], named


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        model: type[BaseModel] = create_model(f"{name}_arguments", __config__=config, **fields)
        terse_schema(model)
    except (PydanticUserError, TypeError) as error:
        line = str(error).partition("\n")[0].rstrip(".")
        raise ToolDefinitionError(
            f"tool {name}: a model cannot send such a parameter, use str, int, float, bool, list or dict ({line})"
        ) from None
    return model


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is ToolContext or ToolContext in get_args(hint)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and what its `Args:` says of each parameter."""
    first = _SECTION.search(text)
    description = " ".join((text[: first.start()] if first else text).split())
    start = _ARGS.search(text)
    if start is None:
        return description, {}
    rest = text[start.end() :]
    end = _SECTION.search(rest)
    told: dict[str, str] = {}
    name, indent = "", -1
    for line in (rest[: end.start()] if end else rest).splitlines():
        depth = len(line) - len(line.lstrip())
        found = _ARGUMENT.match(line)
        if found and (indent in (-1, depth) or depth <= indent):
            name, indent = found[1], depth
            told[name] = found[2].strip()
        elif name and line.strip():
            told[name] = f"{told[name]} {line.strip()}".strip()
    return description, told
