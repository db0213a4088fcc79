"""One assembler for every server's stream: chunks of parsed JSON in, reply parts out.

Servers differ in all that the standard leaves to them, and in much that it does not: indexes and ids may be
missing or repeated, a whole call may be echoed at the end, arguments may be objects, the finish reason may
be wrong or absent. What decides is the content: a call is whole when its arguments are.

Actions come out at the end of the stream only, so that nothing of a reply that breaks off is ever run.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from nbagent.events import Usage
from nbagent.models.json_stream import JsonScanner, is_cut, parse_liberally
from nbagent.models.thinking import ThinkSplitter
from nbagent.reply import Action, ActionPart, Finish, Malformed, ReasoningText, ReplyPart, UsageReport

CUT = "Your reply was cut off by the output limit, so nothing of that action was run. Send a shorter step."
NAMELESS = "A tool call came without the name of a tool, so nothing was run. Name the tool."

#: No request has more tokens: a count beyond this is none.
MOST_TOKENS = 1_000_000_000

#: Rough size of a token, for servers that report no usage.
CHARACTERS_PER_TOKEN = 4

#: Types of content parts that are the reasoning channel.
_THOUGHTS = ("thinking", "reasoning")

_LENGTH = {"length", "max_tokens", "max_output_tokens", "model_length"}


@dataclass(slots=True)
class _Call:
    """One tool call under way."""

    index: int | None
    id: str = ""
    tool: str = ""
    arguments: str = ""
    shown: int = 0  #: characters of `arguments` that were given out as parts
    scanner: JsonScanner = field(default_factory=JsonScanner)

    @property
    def whole(self) -> bool:
        return _parsed(self.arguments) is not None

    @property
    def open(self) -> bool:
        return bool(self.arguments.strip()) and not self.whole


class Assembler:
    """Puts one reply together. `request_characters` serves to estimate the usage where none is reported."""

    def __init__(self, request_characters: int = 0) -> None:
        self.finished = False  #: the server said why it stopped
        self._reason: Literal["stop", "length", "filter"] = "stop"
        self._calls: list[_Call] = []
        self._think = ThinkSplitter()
        self._usage: Usage | None = None
        self._request_characters = request_characters
        self._reply_characters = 0

    @property
    def received(self) -> int:
        """Characters of text, reasoning and calls so far: grows with every token."""
        return self._reply_characters

    @property
    def acceptable(self) -> bool:
        """Whether the reply may be taken for whole although the server never said that it is.

        The rule for a stream that ends cleanly without finish reason and end mark: every call's arguments
        are whole, and there is a call or some text.
        """
        return all(call.whole and call.tool for call in self._calls) and (
            bool(self._calls) or self._reply_characters > 0
        )

    def feed(self, chunk: Any) -> list[ReplyPart]:
        """Take one chunk; give what can be shown of it."""
        if not isinstance(chunk, dict):
            return []
        self._read_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        parts: list[ReplyPart] = []
        for choice in choices if isinstance(choices, list) else []:
            if not isinstance(choice, dict) or choice.get("index") not in (0, None):
                continue
            self._read_usage(choice.get("usage"))
            delta = choice.get("delta")
            if delta is None and not self._reply_characters:
                delta = choice.get("message")  # a server that does not stream
            if isinstance(delta, dict):
                parts += self._delta(delta)
            self._read_reason(choice.get("finish_reason"))
        return parts

    def finish(self) -> list[ReplyPart]:
        """Close the reply: the rest of the text, actions, usage and `Finish`."""
        parts: list[ReplyPart] = list(self._think.finish())
        used: set[str] = set()
        corrections: list[Malformed] = []
        for call in self._calls:
            made = self._close(call, used)
            if isinstance(made, Malformed):
                corrections.append(made)
            elif made is not None:
                parts.append(made)
        parts += corrections[:1]
        parts.append(UsageReport(self._usage or self._estimate()))
        parts.append(Finish(self._reason))
        return parts

    # -- one delta --

    def _delta(self, delta: dict[str, Any]) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        content = delta.get("content")
        channels = (_plain(delta.get("reasoning_content")), _plain(delta.get("reasoning")), _thought_in(content))
        reasoning = next(filter(None, channels), "")
        if reasoning:
            parts.append(ReasoningText(reasoning))
        text = _plain(content) or _plain(delta.get("refusal"))
        if text:
            parts += self._think.feed(text)
        self._reply_characters += len(text) + len(reasoning)
        calls = delta.get("tool_calls")
        for fragment in calls if isinstance(calls, list) else [calls]:
            if isinstance(fragment, dict):
                parts += self._fragment(fragment)
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            parts += self._fragment({"index": 0, "function": legacy})
        return parts

    def _fragment(self, fragment: dict[str, Any]) -> list[ReplyPart]:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else fragment
        index = fragment.get("index")
        index = index if isinstance(index, int) else None
        given_id, name = _real(fragment.get("id")), _real(function.get("name"))
        arguments = _as_text(function.get("arguments"))
        call = self._find(index, given_id, name, arguments)
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        elif _parsed(arguments) is not None and call.whole:
            return []  # the echo of a whole call
        call.id = call.id or given_id
        if name and name != call.tool and not call.arguments:
            call.tool += name
        call.arguments += arguments
        self._reply_characters += len(arguments) + len(name)
        return self._show(call)

    def _find(self, index: int | None, given_id: str, name: str, arguments: str) -> _Call | None:
        """The call that a fragment belongs to; None for a new one."""
        if index is not None:
            candidates = [call for call in self._calls if call.index == index]
        elif given_id and any(call.id == given_id for call in self._calls):
            candidates = [call for call in self._calls if call.id == given_id]
        else:
            candidates = self._calls
        if not candidates:
            return None
        by_id = [call for call in candidates if given_id and call.id == given_id]
        if by_id:
            return by_id[-1]
        call = candidates[-1]
        if given_id and call.id:
            # An id of its own starts a call, unless it is a server that makes a new one for every fragment.
            continued = not call.whole if not name else index is not None and call.open
            return call if continued else None
        if name and call.tool:
            if call.whole and _parsed(arguments) == _parsed(call.arguments):
                return call
            if call.whole and arguments.strip():
                return None
            if index is None and not call.open and (call.arguments or name != call.tool):
                return None
        return call

    def _show(self, call: _Call) -> list[ReplyPart]:
        """Give what is new and readable in a call's arguments, once its tool is known."""
        if not call.tool:
            return []
        new, call.shown = call.arguments[call.shown :], len(call.arguments)
        if call.tool == "run_code":
            new = "".join(piece for path, piece in call.scanner.feed(new) if path == ("code",))
        return [ActionPart(call.tool, new)] if new else []

    def _close(self, call: _Call, used: set[str]) -> Action | Malformed | None:
        if not call.tool:
            return Malformed(NAMELESS) if call.arguments or call.id else None
        arguments = call.arguments
        if arguments.strip() in ("", "null"):
            if self._reason == "length":
                return Malformed(CUT)
            arguments = "{}"
        else:
            value = _parsed(arguments)
            if value is None and (self._reason == "length" or is_cut(arguments)):
                return Malformed(CUT)
            if isinstance(value, dict) and not _is_object(arguments):
                arguments = json.dumps(value, ensure_ascii=False)
        call_id = call.id if call.id and call.id not in used else made_up_id()
        used.add(call_id)
        return Action(call_id, call.tool, arguments)

    # -- usage and the end --

    def _read_reason(self, reason: Any) -> None:
        if not isinstance(reason, str) or not reason:
            return
        self.finished = True
        if reason.lower() in _LENGTH:
            self._reason = "length"
        elif "filter" in reason.lower():
            self._reason = "filter"

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        cached = cached or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
        details = usage.get("completion_tokens_details")
        reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else usage.get("reasoning_tokens")
        counted = Usage(
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
            cached_tokens=_count(cached),
            reasoning_tokens=_count(reasoning),
        )
        if counted.total_tokens:
            self._usage = counted

    def _estimate(self) -> Usage:
        return Usage(
            prompt_tokens=self._request_characters // CHARACTERS_PER_TOKEN,
            completion_tokens=-(-self._reply_characters // CHARACTERS_PER_TOKEN),
            estimated=True,
        )


def made_up_id() -> str:
    """Give a call id for servers and dialects that have none."""
    return f"call_{uuid.uuid4().hex[:16]}"


def _real(value: Any) -> str:
    """An id or name, where the server gave one: "", null and the text "null" are none."""
    return value if isinstance(value, str) and value not in ("null", "None") else ""


def _as_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


def _parsed(arguments: str) -> Any:
    """What the arguments say, a double encoding taken off once; None where they are not (yet) JSON."""
    if not arguments.rstrip().endswith(("}", '"', "]")):
        return None
    try:
        value = parse_liberally(arguments)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        inner = _parsed(value) if value.lstrip().startswith("{") else None
        return value if inner is None else inner
    return value


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _plain(content: Any) -> str:
    """The text of a `content` that is a string, a list of parts, or nothing; thoughts among the parts left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        if content.get("type") in _THOUGHTS:
            return ""
        return _plain(content.get("text") or content.get("content"))
    if isinstance(content, list):
        return "".join(map(_plain, content))
    return ""


def _thought_in(content: Any) -> str:
    """The thoughts among the parts of a `content`."""
    parts = content if isinstance(content, list) else []
    thoughts = [part for part in parts if isinstance(part, dict) and part.get("type") in _THOUGHTS]
    return "".join(_plain(part.get("thinking") or part.get("text")) for part in thoughts)


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value <= MOST_TOKENS else 0
