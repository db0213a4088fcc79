"""Turns a cell's outputs into the few words that a model needs of them. Numbers stay as they were printed."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from itertools import count
from typing import Any

from nbagent.events import Output
from nbagent.protocols import Executed, Variable
from nbagent.tools.terminal import plain
from nbagent.tools.trace import shorten

#: More changed variables than this are counted only; a longer summary is cut.
MOST_VARIABLES = 12
LONGEST_SUMMARY = 60
CUT_TABLE = "(the view is cut: not all rows and columns are shown)"
MOST_HTML = 20_000  #: characters that are read of an output that is HTML only

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")

_LEFT_OUT = re.compile(r"^\[\.\.\. ([\d,]+) characters left out \.\.\.\]$", re.MULTILINE)
_WARNING = re.compile(r"^(?:.*?:\d+: )?(\w*Warning: .*)(?:\n[ \t]+.*)?$", re.MULTILINE)
_DIMENSIONS = re.compile(r"\[(\d+) rows x (\d+) columns\]\s*\Z")
_CUT = re.compile(r"^\.\.\.?(?:\s|$)|\s\.\.\.(?:\s|$)", re.MULTILINE)
_PRINTED_TABLE = re.compile(r"^\[\d+ rows x \d+ columns\]$", re.MULTILINE)
_HTML_DIMENSIONS = re.compile(r"<p>(\d+) rows . (\d+) columns</p>")
_NAMELESS = re.compile(r"<[\w.]+(?: object)?(?: at 0x[0-9a-f]+)?>")  # says nothing of what is shown
_ROW_END = re.compile(r"<br ?/?>|</(?:tr|p|li|div|h\d)>", re.IGNORECASE)
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^<>]*>", re.DOTALL | re.IGNORECASE)


def tell(outputs: Sequence[Output], executed: Executed) -> str:
    """Give the data of one execution: its outputs in order."""
    figures = count(1)
    parts = [_one(output, executed, figures) for output in merged(outputs)]
    if executed.status == "error" and not any(output.get("output_type") == "error" for output in outputs):
        parts.append(executed.error)  # the kernel could not send it, or shows it in some way of its own
    return "\n".join(part for part in parts if part.strip())


def notice(outputs: Sequence[Output], executed: Executed) -> str:
    """Give what must be told first and whole: a time limit, an interrupt, a death, lost variables, an exit."""
    words = []
    if executed.status == "timeout":
        words.append(f"Stopped after {executed.seconds:.3g} s: the time limit of one action.")
    elif executed.status == "interrupted":
        words.append("The code was interrupted.")
    elif executed.status == "died":
        words.append(f"The kernel died: {executed.error or 'it ended by itself'}.".replace("..", "."))
    words += [
        f"The code asked to exit with {output.get('evalue') or 0}; the kernel is still up."
        for output in outputs
        if output.get("output_type") == "error" and output.get("ename") == "SystemExit"
    ]
    if dropped := _dropped(outputs):
        words.append(f"It printed far too much: {dropped} characters in the middle were not kept.")
    if executed.replaced:
        words.append(f"This took names of the user's: {_names(executed.replaced)}. Use names of your own.")
    if executed.restored:
        back = _names(executed.back_names) or "none"
        words.append(f"An earlier state of the kernel is back; the code was not run again. Variables: {back}.")
        if executed.lost_names:
            words.append(f"Gone, or older than they were: {_names(executed.lost_names)}.")
        words.append("What the code did to files is still there.")
    elif executed.state_lost and executed.back_names:
        gone = _names(executed.lost_names) or "none"
        words.append(f"A new copy of the user's kernel was made, with their variables. Variables gone: {gone}.")
    elif executed.state_lost:
        names = _names(executed.lost_names) or "all of them"
        words.append(f"A new kernel was started, earlier variables are gone: {names}.")
    elif executed.status in ("timeout", "interrupted"):
        words.append("The kernel and its variables are still there.")
    return " ".join(words)


def _names(names: Sequence[str]) -> str:
    """List names in words of ours: what is no name of code could be a text that came from data."""
    plain_names = [name for name in names if name.isidentifier()]
    odd = len(names) - len(plain_names)
    return ", ".join([*plain_names, *([f"{odd} that are no names"] if odd else [])])


def _dropped(outputs: Sequence[Output]) -> str:
    """Give the number of characters that the kernel left out of what was printed, or ""."""
    texts = (_text(output.get("text", "")) for output in outputs if output.get("output_type") == "stream")
    found = next((found for text in texts if (found := _LEFT_OUT.search(text))), None)
    return found[1] if found else ""


def merged(outputs: Iterable[Output]) -> list[Output]:
    """Join neighbouring stream outputs of one name."""
    joined: list[Output] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.get("output_type") == last.get("output_type") == "stream" and output["name"] == last["name"]:
            joined[-1] = {**last, "text": _text(last["text"]) + _text(output["text"])}
        else:
            joined.append(output)
    return joined


def variables_line(changes: Sequence[Variable], gone: Sequence[str]) -> str:
    """Say what changed among the variables, in one line."""
    told = [" ".join(filter(None, (v.name, v.type, _short(v.summary)))) for v in changes[:MOST_VARIABLES]]
    if len(changes) > MOST_VARIABLES:
        told.append(f"and {len(changes) - MOST_VARIABLES} more")
    line = f"Changed: {'; '.join(told)}" if told else ""
    if gone:
        deleted = f"Deleted: {', '.join(gone[:MOST_VARIABLES])}"
        if len(gone) > MOST_VARIABLES:
            deleted += f" and {len(gone) - MOST_VARIABLES} more"
        line = f"{line}\n{deleted}" if line else deleted
    return line


def cut(text: str, limit: int, handle: str = "") -> str:
    """Keep head and tail of a text that is over `limit` characters, and count what is left out.

    `handle` is what `read_output` takes to show the whole.
    """
    if len(text) <= limit:
        return text
    how = f'; read_output(handle="{handle}") shows it' if handle else ""
    room = max(0, limit - 60 - len(how))  # for the line that counts
    head, tail = room * 3 // 5, room - room * 3 // 5
    start = _line_end(text, head)
    end = _line_start(text, len(text) - tail)
    left_out = text[start:end]
    return (
        f"{text[:start]}\n[… {len(left_out)} characters, {left_out.count(chr(10))} lines left out{how} …]\n"
        f"{text[end:]}"
    )


def fence(data: str, nonce: str, limit: int) -> str:
    """Mark data off from our own words, cut to `limit` characters.

    No mark with the nonce can stand in the data, so that it cannot end the block. Elsewhere the nonce may
    stand: it could be a part of a number.
    """
    return f"<output {nonce}>\n{cut(unmarked(data, nonce), limit)}\n</output {nonce}>"


def unmarked(data: str, nonce: str) -> str:
    """Take the nonce out of what looks like a mark: before anything is cut, or half a mark could be left."""
    mark = re.compile(rf"(<\s{{0,9}}/?\s{{0,9}}output\b[^<>\n]{{0,20}}?){re.escape(nonce)}", re.IGNORECASE)
    return mark.sub(r"\1…", data)


def _one(output: Output, executed: Executed, figures: Iterator[int]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        text = plain(_text(output.get("text", ""))).rstrip("\n")
        return _printed(text) if output.get("name") != "stderr" else _stderr(text)
    if kind == "error":
        return "" if output.get("ename") == "SystemExit" else shorten(output, executed.error)
    shown = _display(output.get("data") or {}, figures)
    if kind == "execute_result" and executed.table:
        return f"{shown}\n[table: {executed.table}]"
    return shown


def _stderr(text: str) -> str:
    """Label what is no failure as such; Python's own warnings lose the path and the repeated source line."""
    text = "\n".join(line for line in text.split("\n") if "To exit: use 'exit', 'quit'" not in line)
    text = re.sub(r"^  warn\(\"To exit: .*$\n?", "", text, flags=re.MULTILINE)
    text, warned = _WARNING.subn(r"[warning, no failure] \1", text)
    if not text.strip():
        return ""
    return text.strip("\n") if warned else f"[stderr] {text.strip(chr(10))}"


def _display(data: dict[str, Any], figures: Iterator[int]) -> str:
    for mime in IMAGES:
        if mime in data:
            kind = mime.partition("/")[2].partition("+")[0]
            return f"[figure {next(figures)}: {_size(mime, data[mime])}{kind}]"
    words, html = plain(_text(data.get("text/plain", ""))), _text(data.get("text/html", ""))
    if words and not (len(data) > 1 and _NAMELESS.fullmatch(words)):
        return words + _table_is_cut(words, html)
    for mime in ("text/markdown", "text/latex"):
        if mime in data:
            return plain(_text(data[mime]))
    if html:
        rows = _ROW_END.sub("\n", re.sub(r"\s+", " ", html[:MOST_HTML]))
        return plain(unescape(re.sub(r" *\n[ \n]*", "\n", re.sub(r" +", " ", _TAGS.sub(" ", rows))))).strip()
    if "application/json" in data:
        return str(data["application/json"])
    return words or f"[output: {', '.join(data)}]"


def _printed(text: str) -> str:
    """Say of each table that was printed with its dimensions that pandas did not print it whole."""
    return _PRINTED_TABLE.sub(rf"\g<0> {CUT_TABLE}", text) if _CUT.search(text) else text


def _table_is_cut(words: str, html: str) -> str:
    """A pandas table may be shortened: say so, or the model takes what is hidden for absent."""
    if found := _DIMENSIONS.search(words):
        return f"\n{CUT_TABLE}" if _CUT.search(words) else ""
    if found := _HTML_DIMENSIONS.search(html):
        return f"\n[{found[1]} rows x {found[2]} columns] (the view is cut)"
    return ""


def _size(mime: str, image: Any) -> str:
    """Read width and height from a PNG's header; "" for others."""
    if mime != "image/png":
        return ""
    try:
        header = base64.b64decode(_text(image)[:64].replace("\n", "")[:32])
        width, height = struct.unpack(">II", header[16:24])
    except (binascii.Error, struct.error):
        return ""
    return f"{width}x{height} "


def _text(value: Any) -> str:
    """nbformat allows a list of lines where it allows a string."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(summary: str) -> str:
    line = " ".join(summary.split())
    return line if len(line) <= LONGEST_SUMMARY else f"{line[: LONGEST_SUMMARY - 1]}…"


def _line_end(text: str, position: int) -> int:
    """Give the last end of a line, or of a word, that is near before `position`: a number is not cut in two."""
    least = position - position // 4
    near = text.rfind("\n", least, position)
    near = near if near > 0 else text.rfind(" ", least, position)
    return near if near > 0 else position


def _line_start(text: str, position: int) -> int:
    most = position + (len(text) - position) // 4
    near = text.find("\n", position, most)
    near = near if near >= 0 else text.find(" ", position, most)
    return near + 1 if near >= 0 else position
