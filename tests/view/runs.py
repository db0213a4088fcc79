"""Events of a run, as they are shown, for the view's tests."""

from __future__ import annotations

import json
from typing import Any, get_args

from hypothesis import strategies as st

from nbagent.events import (
    ActionDelta,
    ActionEdited,
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ActionStatus,
    Adopted,
    ApprovalAsked,
    ApprovalGiven,
    Event,
    KernelDied,
    KernelStarted,
    Nudged,
    OutputAdded,
    Reason,
    Reasoning,
    ReasoningDelta,
    Retrying,
    Risk,
    RunFinished,
    RunStarted,
    Shared,
    StateLost,
    StepFinished,
    StepStarted,
    Thought,
    ThoughtDelta,
    UnknownEvent,
    Usage,
)

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def started(task: str = "What is the mean?", **more: Any) -> RunStarted:
    return RunStarted(task=task, message=task, model="stub", host="http://127.0.0.1", **more)


def stream(text: str, *, step: int = 1, call_id: str = "a", name: str = "stdout") -> OutputAdded:
    return OutputAdded(step=step, call_id=call_id, output={"output_type": "stream", "name": name, "text": text})


def shown(data: dict[str, Any], *, step: int = 1, call_id: str = "a") -> OutputAdded:
    output = {"output_type": "display_data", "data": data, "metadata": {}}
    return OutputAdded(step=step, call_id=call_id, output=output)


def acted(
    code: str, *outputs: OutputAdded, step: int = 1, call_id: str = "a", status: ActionStatus = "ok"
) -> list[Event]:
    """An action from its proposal to its end."""
    at: dict[str, Any] = {"step": step, "call_id": call_id}
    return [
        ActionProposed(tool="run_code", arguments=json.dumps({"code": code}), **at),
        ActionStarted(tool="run_code", arguments={"code": code}, code=code, **at),
        *outputs,
        ActionFinished(status=status, seconds=0.25, **at),
    ]


def said(text: str, *, step: int = 1) -> list[Event]:
    """A thought that streams."""
    half = len(text) // 2
    pieces: list[Event] = [ThoughtDelta(text=text[:half], step=step), ThoughtDelta(text=text[half:], step=step)]
    return [StepStarted(step=step), *pieces, Thought(text=text, step=step)]


def stepped(step: int = 1) -> StepFinished:
    return StepFinished(step=step, usage=Usage(prompt_tokens=100, completion_tokens=20), seconds=1.5)


def answered(answer: str = "The mean is 2.", **more: Any) -> RunFinished:
    return RunFinished(reason="answered", answer=answer, steps=2, seconds=3.0, **more)


#: Markup, escape codes, addresses and odd characters, and anything else.
TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "</pre><script>window.pwned=4</script>",
            '<img src=x onerror="window.pwned=1">',
            "![x](http://127.0.0.1/p.png?q=secret)",
            "[bold red]x[/] [/]",
            "\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07",
            "\x9b2J",
            "10%\r20%\r\n",
            "\ud800",
            "日本語\t|\u202eturned",
            "\n\n",
            "x" * 3000,
        ]
    ),
    st.text(max_size=30),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
_MIMES = st.sampled_from(
    [
        "text/plain",
        "text/html",
        "image/png",
        "image/svg+xml",
        "text/markdown",
        "application/json",
        "application/vnd.jupyter.widget-view+json",
    ]
)
_HTML = st.lists(
    st.sampled_from(
        ["<table>", "</table>", "<tr>", "<td colspan=2>", "<th>", "</tr>", "<script>", "x", "&lt;", "<td"]
    ),
    max_size=12,
).map("".join)

#: What a kernel may send: well formed or not.
OUTPUTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"output_type": st.just("stream"), "name": st.sampled_from(["stdout", "stderr"]), "text": TEXTS}
    ),
    st.fixed_dictionaries(
        {
            "output_type": st.just("display_data"),
            "data": st.dictionaries(_MIMES, TEXTS | _HTML | _VALUES, max_size=3),
        }
    ),
    st.fixed_dictionaries(
        {"output_type": st.just("error"), "traceback": _VALUES, "ename": TEXTS, "evalue": TEXTS}
    ),
    st.dictionaries(st.sampled_from(["output_type", "text", "data", "name", "traceback"]), _VALUES, max_size=4),
)


def _at(**fields: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {"step": st.integers(0, 3), "call_id": st.sampled_from(["a", "b"]), **fields}


_TOOLS = st.sampled_from(["run_code", "read_file", "final_answer"])
_RISKS = st.sampled_from(get_args(Risk))
_ARGUMENTS = TEXTS | TEXTS.map(lambda code: json.dumps({"code": code}))

EVENT: st.SearchStrategy[Event] = st.one_of(
    st.builds(RunStarted, task=TEXTS, message=TEXTS, model=TEXTS, label=TEXTS),
    st.builds(StepStarted, step=st.integers(0, 3)),
    st.builds(ThoughtDelta, **_at(text=TEXTS)),
    st.builds(Thought, **_at(text=TEXTS)),
    st.builds(ReasoningDelta, **_at(text=TEXTS)),
    st.builds(Reasoning, **_at(text=TEXTS)),
    st.builds(ActionDelta, **_at(tool=_TOOLS, text=TEXTS)),
    st.builds(ActionProposed, **_at(tool=_TOOLS, arguments=_ARGUMENTS)),
    st.builds(ActionEdited, **_at(arguments=_ARGUMENTS)),
    st.builds(ApprovalAsked, **_at(request=st.just("r"), tool=_TOOLS, code=TEXTS, risk=_RISKS, why=TEXTS)),
    st.builds(ApprovalGiven, **_at(request=st.just("r"), approved=st.booleans(), by=st.just("user"))),
    st.builds(ActionStarted, **_at(tool=_TOOLS, arguments=st.just({}), code=TEXTS, risk=_RISKS)),
    st.builds(OutputAdded, **_at(output=OUTPUTS)),
    st.builds(
        ActionFinished,
        **_at(status=st.sampled_from(get_args(ActionStatus)), seconds=st.floats(0, 1e6), summary=TEXTS),
    ),
    st.builds(StepFinished, **_at(usage=st.just(Usage(prompt_tokens=3)), seconds=st.floats(0, 1e6))),
    st.builds(Nudged, **_at(guard=TEXTS, text=TEXTS)),
    st.builds(Retrying, **_at(attempt=st.integers(1, 3), wait=st.floats(0, 60), why=TEXTS)),
    st.builds(KernelStarted, generation=st.integers(1, 3), kind=TEXTS, python=TEXTS, confinement=TEXTS),
    st.builds(KernelDied, **_at(why=TEXTS)),
    st.builds(StateLost, **_at(names=st.lists(TEXTS, max_size=3))),
    st.builds(Shared, **_at(name=TEXTS, summary=TEXTS, file=TEXTS)),
    st.builds(Adopted, **_at(name=TEXTS, summary=TEXTS)),
    st.builds(RunFinished, reason=st.sampled_from(get_args(Reason)), answer=TEXTS, message=TEXTS),
    st.just(UnknownEvent(type="Invented")),
)
RUNS = st.lists(EVENT, max_size=25)
