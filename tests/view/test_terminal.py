"""The terminal view by itself; tests/faces/test_terminal.py has it on a real terminal."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given

from nbagent.events import (
    ActionFinished,
    ActionProposed,
    ActionStarted,
    Event,
    Nudged,
    Retrying,
    RunFinished,
    StepStarted,
    ThoughtDelta,
)
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.view.screen import Folded
from nbagent.view.terminal import TerminalView
from tests.view.runs import PNG, RUNS, acted, answered, said, shown, started, stepped, stream

REQUEST = ApprovalRequest("r", "a", "run_code", "import os\nos.remove('a')\rboom()", "destructive", "deletes a")


def show(*events: Event, quiet: bool = False) -> None:
    view = TerminalView(interactive=False, quiet=quiet)
    view.open()
    for event in events:
        view.show(event)
    view.close()


def answering(*lines: str | BaseException) -> Callable[[str], Awaitable[str]]:
    left = list(lines)

    async def read(prompt: str) -> str:
        assert prompt.startswith("Approve? [y]es / [n]o")
        line = left.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    return read


def test_a_run_in_a_pipe_reads_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    figure = shown({"image/png": PNG, "text/plain": "<Figure size 640x480 with 1 Axes>"})
    show(
        started(label="local 1.5B: check it", notes=["Nothing asks for your yes."]),
        *said("I **look**."),
        *acted("plot()", stream("\r10%\r20%\n"), figure),
        stepped(),
        *said("The mean is 2.", step=2),
        answered(),
    )
    assert capsys.readouterr().out.splitlines() == [
        "stub · http://127.0.0.1",
        "· Nothing asks for your yes.",
        "── Step 1 ".ljust(60, "─"),
        "I look.",
        "  │ plot()",
        "  20%",
        "  [figure: <Figure size 640x480 with 1 Axes>]",
        "  ✓ run_code · 0.2 s",
        "Answer: The mean is 2.",
        "local 1.5B: check it",
        "2 steps · 3.0 s",
    ]


def test_lines_of_running_code_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    view = TerminalView(interactive=False)
    for event in [started(), *acted("slow()", stream("one\ntwo"))[:-1]]:
        view.show(event)
    assert capsys.readouterr().out.endswith("  one\n")


def test_markup_and_escape_codes_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[bold]x[/bold] [/] :smile: \x1b[2J\x9b2J\x1b]0;title\x07end"
    show(started(), *said(hostile), *acted(hostile, stream(hostile + "\n")), RunFinished(reason="no_progress"))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert out.count("[bold]x[/bold] [/] :smile:") == 3


def test_a_long_output_keeps_its_head_and_tail(capsys: pytest.CaptureFixture[str]) -> None:
    show(started(), *acted("flood()", *(stream(f"line {number}\n") for number in range(1000))))
    out = capsys.readouterr().out
    assert "  line 0\n" in out
    assert "  … 970 lines not shown …\n" in out
    assert "  line 999\n" in out
    assert "  line 500\n" not in out


def test_progress_that_never_ends_its_line_takes_no_room() -> None:
    folded = Folded()
    for number in range(100_000):
        assert folded.feed(f"\r{number}%", "stderr") == []
    assert folded.newest(5) == ["99999%"]
    assert folded.feed("done\n", "stdout") == ["99999%", "done"]


def test_an_error_shows_the_cells_own_frame_and_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "---",
        "KeyError   Traceback",
        "Cell In[3], line 1",
        "----> 1 df['x']",
        "",
        "File lib.py:9",
        "  deep",
        "",
    ]
    failed = stream("")
    failed = failed.model_copy(update={"output": {"output_type": "error", "traceback": [*lines, "KeyError: 'x'"]}})
    show(started(), *acted("df['x']", failed, status="error"))
    out = capsys.readouterr().out
    assert "  Cell In[3], line 1\n  ----> 1 df['x']\n  KeyError: 'x'\n  ✗ run_code: error" in out
    assert "deep" not in out


def test_nudges_and_retries_are_noted_and_void_text_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(
        started(),
        StepStarted(step=1),
        ThoughtDelta(text="half a tho", step=1),
        Retrying(attempt=2, wait=1, why="It broke.", step=1),
        *said("A whole one.")[1:],
        Nudged(guard="malformed", text="Use a tool.", step=1),
    )
    out = capsys.readouterr().out
    assert "half" not in out
    assert out.index("Trying again in 1 s") < out.index("A whole one.") < out.index("Use a tool.")


def test_an_action_that_never_ran_is_shown_with_its_fate(capsys: pytest.CaptureFixture[str]) -> None:
    at = {"step": 1, "call_id": "a"}
    show(
        started(),
        ActionProposed(tool="run_cod", arguments='{"code": "x"}', **at),  # type: ignore[arg-type]
        ActionFinished(status="invalid", seconds=0, summary="There is no tool", **at),  # type: ignore[arg-type]
    )
    assert "  │ x\n  ✗ run_cod: invalid · 0.0 s · There is no tool\n" in capsys.readouterr().out


def test_the_answering_call_is_not_shown_beside_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    at = {"step": 1, "call_id": "a"}
    show(
        started(),
        ActionProposed(tool="final_answer", arguments='{"answer": "Two."}', **at),  # type: ignore[arg-type]
        ActionStarted(tool="final_answer", arguments={"answer": "Two."}, **at),  # type: ignore[arg-type]
        ActionFinished(status="ok", seconds=0, **at),  # type: ignore[arg-type]
        answered("Two."),
    )
    out = capsys.readouterr().out
    assert out.count("Two.") == 1
    assert "final_answer" not in out


@pytest.mark.parametrize("quiet", [False, True])
def test_an_ending_says_why_and_what_to_do(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    show(started(), *said("I look."), RunFinished(reason="max_steps"), quiet=quiet)
    out = capsys.readouterr().out
    assert "Step limit reached. Raise --max-steps, or ask for less at once.\n" in out
    assert ("I look." in out) is not quiet


async def test_without_anyone_there_the_answer_is_no() -> None:
    approval = await TerminalView(interactive=False).ask(REQUEST)
    assert approval == Approval(
        approved=False, by="nobody", note="nobody is there to answer; see --approve", code=None
    )


@pytest.mark.parametrize(
    ("lines", "approval"),
    [
        (["y"], Approval(approved=True, by="user")),
        (["", "maybe", "YES"], Approval(approved=True, by="user")),
        (["n"], Approval(approved=False, by="user")),
        (["no use b.csv"], Approval(approved=False, by="user", note="use b.csv")),
        ([EOFError()], Approval(approved=False, by="nobody", note="nobody is there to answer; see --approve")),
    ],
)
async def test_answers(lines: list[str | BaseException], approval: Approval) -> None:
    assert await TerminalView(interactive=True, input_on_main=answering(*lines)).ask(REQUEST) == approval


async def test_the_question_shows_all_of_the_code_its_risk_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    await TerminalView(interactive=True, quiet=True, input_on_main=answering("n")).ask(REQUEST)
    out = capsys.readouterr().out
    assert "  │ import os\n  │ os.remove('a')\n  │ boom()\n" in out
    assert "destructive (deletes a)" in out


@pytest.mark.parametrize(("tool", "words"), [("plan", "Is this plan right?"), ("max_cost", "Go over the budget?")])
async def test_nbagents_own_questions_are_no_code_with_a_risk(
    capsys: pytest.CaptureFixture[str], tool: str, words: str
) -> None:
    request = ApprovalRequest("r", "a", tool, "Spend $1 more?", "network", "spent $1")
    await TerminalView(interactive=True, input_on_main=answering("n")).ask(request)
    printed = capsys.readouterr().out
    assert f"{words} (spent $1)" in printed
    assert "network" not in printed


async def test_ctrl_c_at_the_question_cancels() -> None:
    view = TerminalView(interactive=True, input_on_main=answering(KeyboardInterrupt()))
    with pytest.raises(asyncio.CancelledError):
        await view.ask(REQUEST)


async def test_an_edit_is_asked_about_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho 'print(1)' > \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    view = TerminalView(interactive=True, input_on_main=answering("e", "y"))
    assert await view.ask(REQUEST) == Approval(approved=True, by="user", code="print(1)")


async def test_an_editor_that_fails_leaves_the_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor-here")
    view = TerminalView(interactive=True, input_on_main=answering("e", "y"))
    assert await view.ask(REQUEST) == Approval(approved=True, by="user")
    assert "ditor" in capsys.readouterr().err


class Display(io.StringIO):
    """Takes what a terminal takes."""

    def isatty(self) -> bool:
        return True


@given(RUNS)
@pytest.mark.parametrize("stream_type", [io.StringIO, Display])
def test_any_run_is_shown_without_raising(stream_type: type[io.StringIO], events: list[Event]) -> None:
    with contextlib.redirect_stdout(stream_type()) as out:
        show(*events)
    left = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()) if stream_type is Display else out.getvalue()
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", left)


def test_on_a_terminal_what_still_changes_is_taken_away_again() -> None:
    with contextlib.redirect_stdout(Display()) as out:
        show(started(), *said("I look."), *acted("print(1)", stream("1\n")), *said("2.", step=2), answered("2."))
    shown = out.getvalue()
    assert "Running run_code" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor is back"
    assert "Running" not in shown[shown.rindex("\x1b[?25h") :]


def test_colours_that_are_not_wanted_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with contextlib.redirect_stdout(Display()) as out:
        show(started(), *acted("import os"))
    assert "\x1b[35m" not in out.getvalue()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int, *events: Event) -> list[str]:
    """What stands on a terminal of that width at the end: without colours and frames, the region taken away."""
    monkeypatch.setenv("COLUMNS", str(width))
    with contextlib.redirect_stdout(Display()) as out:
        show(*events)
    written = (line.rsplit("\r", 1)[-1] for line in out.getvalue().split("\n"))
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in written]


def test_a_line_of_code_that_goes_on_is_told_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(monkeypatch, 24, started(), *acted("first = 'a long line'\nsecond = 2"), answered())
    assert [line for line in lines if line[:3] in ("  │", "  ┊")] == [
        "  │ first = 'a long line",
        "  ┊ '",
        "  │ second = 2",
    ]


TABLED = "So:\n\n| shop | n |\n|:--|--:|\n| **Basel** | 3 |\n| Lyon | 12 |\n\nDone."


def test_a_table_of_an_answer_stands_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line.strip() for line in on_a_terminal(monkeypatch, 60, started(), answered(TABLED))]
    at = lines.index("shop    n")
    assert lines[at : at + 4] == ["shop    n", "─────  ──", "Basel   3", "Lyon   12"]
    narrow = on_a_terminal(monkeypatch, 12, started(), answered(TABLED))
    assert "| shop |" in "\n".join(narrow), "what has no room stays as it was written"
