"""What a run agrees on with its model's server: the dialect and the fields of a request. No probe is sent.

A model that is not known yet is told of tools. A server that refuses them, or two replies that hold code but
no call, go on to `json`, and two that are not its object to `fenced`. A field that a server refuses is left
out, once and for the following week. Every change is a `DialectChosen`, so that the log rebuilds what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nbagent.errors import ModelRefused
from nbagent.events import DialectChosen, DialectName, Event, Retrying
from nbagent.guards import Nudge
from nbagent.listening import Reply
from nbagent.models.choose import Choice
from nbagent.models.dialects import dialect_named
from nbagent.models.dialects.fences import FenceReader
from nbagent.models.json_stream import parse_liberally
from nbagent.models.refusals import DROPPABLE
from nbagent.prompt import system_prompt
from nbagent.protocols import Dialect
from nbagent.remembered import Known, Remembered
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.gateway import Gateway

#: Replies in a row that do not fit the dialect before another is tried.
MISFITS = 2
#: What a field is called at servers that do not take it under its older name.
NEWER_NAMES = {"max_tokens": "max_completion_tokens"}
_NEXT: dict[DialectName, DialectName] = {"tools": "json", "json": "fenced"}
#: How models write a call into their text where the server does not turn it into one.
_CALL_IN_TEXT = re.compile(
    r"<tool_call>|<function[=_ ]|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_calls?_", re.IGNORECASE
)
_CALLED = (
    {"name", "arguments"},
    {"name", "parameters"},
    {"action", "action_input"},
    {"tool", "arguments"},
    {"code"},
)

CALL_IT = (
    "Your reply holds code but calls no tool, so nothing was run. Call run_code with the code. "
    "If the code is itself the answer, give it again."
)
NOW_JSON = (
    "From now on write no tool calls. Each reply is ONE JSON object: "
    '{"thought": "...", "action": "run_code", "action_input": {"code": "..."}}; the last one has the action '
    'final_answer with {"answer": "..."}.'
)
NOW_FENCED = (
    "From now on each reply is one short sentence and ONE ```python block, which is run; "
    "the last one is the answer as plain text, without a block."
)


@dataclass(slots=True)
class Negotiation:
    """The terms of one run. `gateway_for` makes the gateway with the tools that suit a choice's dialect."""

    choice: Choice
    gateway_for: Callable[[Choice], Gateway]
    memory: Remembered
    emit: Callable[[Event], None]
    dialect: Dialect = field(init=False)
    gateway: Gateway = field(init=False)
    _known: Known = field(init=False)
    _misfits: int = 0
    _acted: bool = False  #: in the dialect of now
    _varied: bool = False

    def __post_init__(self) -> None:
        known = self.memory.known(self.choice.key)
        # The file lies where anybody can edit it: what no server could have refused is not left out.
        refused = tuple(name for name in known.refused if name in DROPPABLE and name != "tools")
        self._known = known.model_copy(update={"refused": refused})
        if self.choice.negotiable and self._known.dialect is not None:
            self.choice = replace(self.choice, dialect=self._known.dialect, why="what this model acted in before")
        self.dialect, self.gateway = dialect_named(self.choice.dialect), self.gateway_for(self.choice)

    def begin(self) -> None:
        """Record the fixed part of the run's requests: everything in them but the messages."""
        specs = self.gateway.specs
        fields = {**self.choice.parameters, **self.dialect.parameters(specs)}
        for name in self._known.refused:
            newer = NEWER_NAMES.get(name)
            if fields.get(name) is not None and newer is not None and newer not in self._known.refused:
                fields[newer] = fields[name]
            fields[name] = None  # not sent, and not by questions aside either
        self.emit(
            DialectChosen(
                dialect=self.choice.dialect,
                why=self.choice.why,
                system=system_prompt(self.choice.dialect, specs),
                parameters=fields,
                opening=self.choice.opening,
            )
        )

    def gives_way(self, refused: ModelRefused) -> bool:
        """Leave out what the server refused, or go on to the next dialect; say whether to send again."""
        name = refused.field
        if not name or name in self._known.refused:
            return False
        if name == "tools":
            if not self.choice.negotiable or self.choice.dialect != "tools":
                return False
            self._retrying("the server takes no tools: going on in the dialect json")
            self._change("json", "the server refused tools")
            return True
        newer = NEWER_NAMES.get(name)
        instead = f"as {newer}" if newer in NEWER_NAMES.values() else "without it"
        self._retrying(f"the server does not take {name}: sent {instead} from now on")
        self._learn(refused=(*self._known.refused, name))
        self.begin()
        return True

    def vary(self) -> None:
        """Have a model that repeats itself choose its words by chance from here on, where it did not so far."""
        if self.choice.varied and not self._varied:
            self._varied = True
            parameters = {**self.choice.parameters, **self.choice.varied}
            self.choice = replace(
                self.choice, parameters=parameters, why="it repeated itself: words by chance now"
            )
            self.begin()

    def heard(self, reply: Reply) -> Nudge | None:
        """Judge whether the model copes with the dialect; give what it is told where it does not."""
        if reply.actions:
            self._misfits = 0
            acted = any(action.tool != FinalAnswer.name for action in reply.actions)
            self._acted |= acted
            if acted and self.choice.negotiable and self._known.dialect != self.choice.dialect:
                self._learn(dialect=self.choice.dialect)
            return None
        if self._acted or self._known.dialect == self.choice.dialect or not self._misfit(reply):
            return None
        self._misfits += 1
        if not self.choice.negotiable:  # the user's own choice: the model is told once what it is
            return Nudge("format", CALL_IT) if self.choice.dialect == "tools" and self._misfits == 1 else None
        if self._misfits < MISFITS:
            return Nudge("format", CALL_IT) if self.choice.dialect == "tools" else None
        following = _NEXT[self.choice.dialect]
        self._change(following, f"{MISFITS} replies did not fit {self.choice.dialect}")
        return Nudge("format", NOW_JSON if following == "json" else NOW_FENCED)

    def _misfit(self, reply: Reply) -> bool:
        if reply.finish == "length":
            return False
        if self.choice.dialect == "tools":
            return holds_code(reply.thought)
        return self.choice.dialect == "json" and bool(reply.malformed)

    def _change(self, dialect: DialectName, why: str) -> None:
        self._misfits, self._acted = 0, False
        self.choice = replace(self.choice, dialect=dialect, why=why)
        self.dialect, self.gateway = dialect_named(dialect), self.gateway_for(self.choice)
        self.begin()

    def _learn(self, **news: object) -> None:
        self.memory.learn(self.choice.key, **news)
        self._known = self._known.model_copy(update=news)

    def _retrying(self, why: str) -> None:
        self.emit(Retrying(attempt=2, wait=0.0, why=why))


def holds_code(text: str) -> bool:
    """Say whether a reply's text holds what was meant to be run: a python block, or a call written out."""
    if _CALL_IN_TEXT.search(text):
        return True
    reader = FenceReader()
    reader.feed(text)
    reader.finish()
    if reader.code is not None and not reader.undecided:
        return True
    stripped = text.strip().removeprefix("```json").strip("` \n")
    try:
        value = parse_liberally(stripped) if stripped.startswith("{") else None
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and any(names <= set(value) for names in _CALLED)
