"""Finds the one python block in prose that is still arriving.

A fence line inside the block may belong to a string of the program. The end is the first fence line up to
which the program parses; where there is none, the first fence line.
"""

from __future__ import annotations

import ast
import re
import warnings

from nbagent.reply import ActionPart, ReplyPart, Text

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*)")
#: Small models open the block at the end of a line of prose.
_LATE_OPENING = re.compile(r"(?P<before>.*[^\s`][ \t]*)(?P<marks>`{3,})[ \t]*(?:python3?|py)[ \t]*", re.IGNORECASE)
_MAY_BE_FENCE = re.compile(r"[ \t]*(`{0,2}|`{3,}[^\n]*|~{0,2}|~{3,}[^\n]*)")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MARKED = {"python", "py", "python3"}
#: Notebook lines that are no Python: magics and shell escapes.
_NOTEBOOK_LINE = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)


class FenceReader:
    """Reads one reply. `raw` is the reply without what comes after the block.

    `opening` is how the reply was begun for the model: of the reply, but not to be shown.
    """

    def __init__(self, opening: str = "") -> None:
        self.raw = ""
        self._early: list[ReplyPart] = []
        self.beyond = False  #: the reply goes on behind its block
        self.undecided = False  #: a marked block may or may not be part of an example that never ended
        self._line = ""  #: the line under way
        self._given = 0  #: characters of it that were given out
        self._fence: tuple[str, str] | None = None  #: indent and marks of the fence that is open
        self._state = "prose"  # "prose", "example", "block", "done"
        self._body: list[str] = []
        self._first_end: tuple[int, int] | None = None  #: lines of the body, and of raw, at the first fence line
        self._marked_in_example = False
        self._early = self.feed(opening)  #: what is to be shown of the opening, with the first of the rest

    @property
    def in_block(self) -> bool:
        """Whether the reply is over and the block's end was not found."""
        return self._state == "block"

    @property
    def code(self) -> str | None:
        """The block's program, once the reply is over; None where there is no block."""
        if self._state in ("prose", "example"):
            return None
        return "\n".join(self._body)

    def feed(self, text: str) -> list[ReplyPart]:
        """Take more of the reply; give what can be shown of it."""
        shown, self._early = self._early, []
        for piece in _LINE.findall(text):
            if self._state == "done":
                self.beyond |= bool(piece.strip())
                continue
            self._line += piece
            if piece.endswith("\n"):
                self._whole_line(shown)
            elif not _MAY_BE_FENCE.fullmatch(self._line):
                self._give(shown, self._line if self._state == "block" else _before_marks(self._line))
        return shown

    def finish(self) -> list[ReplyPart]:
        """End the reply; give what was kept back of it."""
        shown: list[ReplyPart] = []
        if self._line and self._state != "done":
            self._whole_line(shown)
        if self._state == "example":
            self.undecided = self._marked_in_example
        if self._state == "block" and self._first_end is not None and not _parses(self.code or ""):
            lines, characters = self._first_end
            self._body = self._body[:lines]
            self.raw = self.raw[:characters]
        return shown

    def _whole_line(self, shown: list[ReplyPart]) -> None:
        line = self._line.removesuffix("\n").removesuffix("\r")
        fence = _FENCE.fullmatch(line)
        self.raw += self._line
        if self._state == "block":
            self._block_line(line, fence, shown)
        elif self._state == "prose" and (late := _LATE_OPENING.fullmatch(line)):
            self._give(shown, late["before"])
            self._fence, self._state = ("", late["marks"]), "block"
        else:
            self._prose_line(fence)
            if self._state != "block":
                self._give(shown, self._line)
        self._line, self._given = "", 0

    def _prose_line(self, fence: re.Match[str] | None) -> None:
        if fence is None:
            return
        words = fence["info"].strip("{}. \t").lower().split()
        marked = bool(words) and words[0] in _MARKED
        if self._state == "example":
            self._marked_in_example |= marked
            if self._closes(fence):
                self._state, self._marked_in_example = "prose", False
            return
        if fence["marks"][0] == "`" and "`" in fence["info"]:
            return  # a code span in a line of prose
        self._fence = (fence["indent"], fence["marks"])
        self._state = "block" if marked else "example"

    def _block_line(self, line: str, fence: re.Match[str] | None, shown: list[ReplyPart]) -> None:
        if fence is not None and self._closes(fence):
            if _parses("\n".join(self._body)):
                self._state = "done"
                return
            self._first_end = self._first_end or (len(self._body), len(self.raw))
        self._give(shown, self._line)
        indent = self._fence[0] if self._fence else ""
        self._body.append(line.removeprefix(indent))

    def _closes(self, fence: re.Match[str]) -> bool:
        marks = self._fence[1] if self._fence else ""
        return not fence["info"].strip() and fence["marks"].startswith(marks)

    def _give(self, shown: list[ReplyPart], line: str) -> None:
        new, self._given = line[self._given :], max(self._given, len(line))
        if new:
            shown.append(ActionPart("run_code", new) if self._state == "block" else Text(new))


def _before_marks(line: str) -> str:
    """The part of a line under way that no late opening can begin in."""
    marks = line.find("```")
    return line[:marks] if marks >= 0 else line.rstrip("`")


def _parses(code: str) -> bool:
    """Say whether `code` is a whole notebook cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(
                _NOTEBOOK_LINE.sub(r"\1pass", code),
                "<cell>",
                "exec",
                ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            )
        except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):  # the last: a bug of 3.11
            return False
    return True
