"""The trace that stays: escaped HTML without script or anything remote, and plain text.

Both read well alone: in a saved notebook without kernel, through nbconvert, on a page that strips styles.
Colours are greys with alpha and mid-tones, so that it is readable on light and on dark. The HTML is one line:
in a Markdown file, what comes after a blank line would be read as Markdown. The text keeps to characters that
every font has.
"""

from __future__ import annotations

import re

from nbagent.checklist import shown
from nbagent.events import Output
from nbagent.view import markdown
from nbagent.view.highlight import spans
from nbagent.view.markdown import FONT, TABLE
from nbagent.view.markdown import text as _text
from nbagent.view.outputs import Block, block, plain, visible
from nbagent.view.trace import Trace, TraceAction, TraceStep, spent

_LINE = "1px solid rgba(128, 128, 128, 0.35)"
_BOX = "margin: 6px 0; padding: 8px 12px; border-radius: 6px; overflow: auto; white-space: pre-wrap;"
_LETTERS = f"{FONT} font-size: 13px; line-height: 1.4;"
_CODE = f"{_BOX} background: rgba(128, 128, 128, 0.12); {_LETTERS}"
_EDGE = "border-left: 2px solid rgba(128, 128, 128, 0.35); border-radius: 0;"
_OUTPUT = f"{_BOX} padding: 2px 12px; max-height: 32em; {_LETTERS} {_EDGE}"
_PAGE = "max-width: 60em; padding-left: 4px; line-height: 1.45;"
_QUIET = "color: #7c7c7c; font-size: 12px;"
_COLOURS = {
    "keyword": "#9c5fd0",
    "string": "#3b8a4c",
    "comment": "#7c7c7c",
    "number": "#b06a1e",
    "name": "#2f7fc4",
}
_PAPER = "background: #fff;"  # a figure brings black axes, perhaps on nothing
_MARKS = {
    "ok": "✓",
    "error": "✗",
    "denied": "✗",
    "timeout": "✗",
    "interrupted": "■",
    "undone": "↶",
    "running": "…",
    "waiting": "?",
}
#: On paper nothing can be unfolded or scrolled.
_PRINTED = (
    "<style>@media print {{ .{0} ::details-content {{ content-visibility: visible; }}"
    " .{0} pre {{ max-height: none !important; }} .{0} .wide {{ font-size: 6px; }} }}</style>"
)
_SIZE = re.compile(r"\[(\d+) rows x (\d+) columns\]")
_PYTHON = ("", "py", "python", "python3", "ipython")  #: the languages of fences that are coloured
_LONGEST_TITLE = 160  #: characters
_WIDE = 10  #: columns, beyond which a table is printed small
_LONGEST_OUTPUT = 400  #: lines of one output that stay in the trace


def html(trace: Trace) -> str:
    """Give the trace as an HTML fragment: the answer first, then each step, folded."""
    # The classes keep MathJax off: "$5 and $7" is no formula, and a formula may hold a link.
    own = f"nbagent-{trace.mark}"
    parts = [f'<div class="{own} mathjax_ignore tex2jax_ignore" style="{_PAGE}">', _head(trace)]
    if trace.answer:
        parts.append(f'<div style="margin: 8px 0 12px 0;">{_prose(trace.answer)}</div>')
    if trace.label and trace.answer:
        parts.append(f'<div style="{_QUIET}">{_text(trace.label)}</div>')
    parts += [_lines(part, "margin: 6px 0;") for part in (trace.advice, shown(trace.plan)) if part]
    parts += [_note(note) for note in trace.notes]
    opened = _opened(trace)
    parts += [_step(step, opened=step is opened, answer=trace.answer) for step in trace.steps]
    if trace.task:
        parts.append(f'<div style="{_QUIET} margin-top: 6px;">Task: {_text(_first_line(trace.task))}</div>')
    return "".join([*parts, _PRINTED.format(own), "</div>"]).replace("\n", "&#10;")


def text(trace: Trace) -> str:
    """Give the trace as plain text that needs nothing else to be understood."""
    parts = [f"Task: {trace.task}" if trace.task else ""]
    parts.append(f"Answer: {trace.answer}" if trace.answer else "")
    parts.append(trace.label if trace.answer else "")
    parts.append(f"{trace.ending}. {trace.advice}" if trace.advice else "")
    parts += [_facts(trace), _boxes(shown(trace.plan))]
    parts += [f"· {_boxes(note)}" for note in trace.notes]
    for step in trace.steps:
        if _is_answer(step, trace.answer) and not (step.actions or step.notes):
            continue  # it stands at the top
        parts.append(f"-- Step {step.number} ".ljust(50, "-"))
        parts.append("" if _is_answer(step, trace.answer) else step.thought.strip())
        for action in step.actions:
            parts.append(_indented(visible(action.code), "  | "))
            parts += [_indented(_plain_output(output), "  ") for output in action.outputs]
            parts.append(f"  [{_outcome(action)}]")
        parts.append(_indented(visible(step.draft), "  | "))
        parts += [f"· {_boxes(note)}" for note in step.notes]
    return plain("\n".join(part for part in parts if part))


def _head(trace: Trace) -> str:
    good = trace.reason == "answered"
    colour = "#3b8a4c" if good else "#b06a1e"
    return (
        f'<div style="padding-bottom: 6px; border-bottom: {_LINE};">'
        f'<b style="color: {colour};">{"✓" if good else "■"} {_text(trace.ending)}</b>'
        f' <span style="{_QUIET}">&nbsp; {_text(_facts(trace))}</span></div>'
    )


def _facts(trace: Trace) -> str:
    steps = len(trace.steps)
    facts = [f"{steps} step{'' if steps == 1 else 's'}", seconds(trace.seconds), *spent(trace.usage)]
    return " · ".join([*facts, *filter(None, [trace.model])])


def _step(step: TraceStep, *, opened: bool, answer: str) -> str:
    is_answer = _is_answer(step, answer)
    if is_answer and not (step.actions or step.notes or step.reasoning):
        return ""  # it stands at the top
    parts = [f'<details{" open" if opened else ""} style="border-bottom: {_LINE};">', _summary(step, is_answer)]
    parts.append('<div style="padding-left: 20px;">')
    if step.reasoning.strip():
        parts.append(f'<details style="{_QUIET}"><summary>Reasoning</summary>{_prose(step.reasoning)}</details>')
    if not is_answer:
        parts.append(_prose(_beyond_title(step)))
    parts += [_action(action) for action in step.actions]
    if step.draft:
        parts.append(
            f'<pre style="{_CODE}">{_text(visible(step.draft))}</pre>'
            f'<div style="{_QUIET}">not finished, not run</div>'
        )
    parts += [_note(note) for note in step.notes]
    return "".join(parts) + '<div style="height: 6px;"></div></div></details>'


def _is_answer(step: TraceStep, answer: str) -> bool:
    return bool(answer) and step.thought.strip() == answer.strip()


def _opened(trace: Trace) -> TraceStep | None:
    """Choose the step to look at first: where an unanswered run ended, or the last that made a figure."""
    if trace.reason != "answered":
        return trace.steps[-1] if trace.steps else None
    made = (
        step
        for step in reversed(trace.steps)
        for action in step.actions
        for output in action.outputs
        if block(output).kind == "image"
    )
    return next(made, None)


def _summary(step: TraceStep, is_answer: bool) -> str:
    title = "Answer" if is_answer else title_of(step)
    marks = "".join(_MARKS.get(action.status, "–") for action in step.actions)
    took = f" · {seconds(step.seconds)}" if step.seconds else ""
    return (
        '<summary style="padding: 5px 0; cursor: pointer;">'
        f'<span style="{_QUIET}">{step.number}</span>&nbsp; {markdown.line(title)}'
        f' <span style="{_QUIET}">&nbsp;{marks}{took}</span></summary>'
    )


def _action(action: TraceAction) -> str:
    parts = [_coloured(action.code) if action.code else ""]
    parts += [_shown(block(output)) for output in action.outputs]
    parts.append(f'<div style="{_QUIET}">{_text(_outcome(action))}</div>')
    return "".join(parts)


def _coloured(code: str, language: str = "python") -> str:
    pieces = (
        f'<span style="color: {_COLOURS[kind]};">{_text(piece)}</span>' if kind else _text(piece)
        for kind, piece in (spans(visible(code)) if language in _PYTHON else [("", plain(code))])
    )
    return f'<pre style="{_CODE}">{"".join(pieces)}</pre>'


def _shown(shown: Block) -> str:
    if shown.kind == "image":
        alt = _text(plain(shown.text) or "figure")
        source = f"data:{shown.mime};base64,{shown.data}"
        return f'<div><img src="{source}" alt="{alt}" style="max-width: 100%; {_PAPER}"></div>'
    if shown.kind == "table":
        return _table(shown)
    content = _cut(plain(shown.text)).strip("\n")
    return f'<pre style="{_OUTPUT}">{_text(content)}</pre>' if content else ""


def _table(shown: Block) -> str:
    rows = []
    for number, cells in enumerate(shown.rows[: _LONGEST_OUTPUT + shown.heads]):
        rows.append("<tr>")
        for column, cell in enumerate(cells):
            tag = "th" if number < shown.heads or (shown.heads and column == 0) else "td"
            rows.append(f"<{tag}>{_text(plain(cell))}</{tag}>")
        rows.append("</tr>")
    left_out = max(0, len(shown.rows) - _LONGEST_OUTPUT - shown.heads)
    size = _SIZE.search(shown.text)
    note = f"{left_out:,} more rows" if left_out else f"{size[1]} rows × {size[2]} columns" if size else ""
    caption = f'<div style="{_QUIET}">{note}</div>' if note else ""
    wide = ' class="wide"' if max(map(len, shown.rows)) > _WIDE else ""
    return f'<div{wide} style="overflow-x: auto; {TABLE}"><table{wide}>{"".join(rows)}</table></div>{caption}'


def _plain_output(output: Output) -> str:
    shown = block(output)
    content = _cut(plain(shown.text)).strip("\n")
    return f"[figure: {content or shown.mime}]" if shown.kind == "image" else content


def _outcome(action: TraceAction) -> str:
    facts = [action.tool, action.status if action.status != "ok" else "", seconds(action.seconds), action.summary]
    yours = ["edited by you" if action.edited else "", "allowed by your earlier yes" if action.allowed else ""]
    return " · ".join(filter(None, [*facts, *yours]))


def title_of(step: TraceStep) -> str:
    """Name a step by the first line of its thought, or by its tools."""
    return (
        _first_line(step.thought).lstrip("# ")
        or ", ".join(action.tool for action in step.actions)
        or step.draft_tool
        or "…"
    )


def seconds(value: float) -> str:
    """Write a time for people, e.g. `0.3 s`, `12 s`, `3 min 05 s`."""
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 59.5:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def _beyond_title(step: TraceStep) -> str:
    """Give what the step's title does not say already: all of the thought where it had to be cut."""
    thought = step.thought.strip()
    first, _, rest = thought.partition("\n")
    return rest if len(first) <= _LONGEST_TITLE else thought


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1] + "…"


def _cut(text: str) -> str:
    lines = text.split("\n")
    if len(lines) <= _LONGEST_OUTPUT:
        return text
    half = _LONGEST_OUTPUT // 2
    return "\n".join([*lines[:half], f"… {len(lines) - 2 * half:,} lines …", *lines[-half:]])


def _boxes(text: str) -> str:
    return text.replace("☑", "[x]").replace("☐", "[ ]")


def _indented(text: str, margin: str) -> str:
    return "\n".join(margin + line for line in text.split("\n")) if text.strip() else ""


def _prose(text: str) -> str:
    return markdown.html(text, code=_coloured) if text.strip() else ""


def _note(note: str) -> str:
    return _lines(note, f"{_QUIET} margin: 4px 0;")


def _lines(text: str, style: str) -> str:
    """Give text whose lines stay apart where styles are stripped, too."""
    lines = "<br>".join(_text(plain(line)) for line in text.split("\n"))
    return f'<div style="{style} white-space: pre-wrap;">{lines}</div>'
