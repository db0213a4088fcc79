"""What ends each observation in the text dialects, which small models speak.

They forget what was asked and in which form, answer from a step that showed nothing, and send code that failed
once more as it was. Larger models need none of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nbagent.events import DialectName
from nbagent.prompt import shorten, text_named
from nbagent.protocols import ToolResult
from nbagent.task_reading import language_of
from nbagent.tools.hints import advice
from nbagent.usual_imports import import_for

#: A variable that holds a number which is none, as `RunCode` tells of it.
_NOT_A_NUMBER = re.compile(r"\b([A-Za-z_]\w*) float(?:64|32)? nan\b")
MOST_NAMES = 5
#: A frame of the model's own code, as `tools.trace` writes it.
_FRAME = re.compile(r"^Cell In\[\d+\], line \d+(?:, in [^:\n]*)?: (.+)$", re.MULTILINE)


@dataclass(slots=True)
class Closing:
    """Ends the observations of one run with this task."""

    dialect: DialectName
    task: str
    _at_fault: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)  #: names that hold no number

    def __call__(self, result: ToolResult, code: str) -> str:
        """Give the last words on what came of `code`, or ""."""
        if self.dialect == "tools" or result.answer is not None:
            return ""
        if result.status == "ok":
            if lost := self._lost(result.changes, code):
                return text_named("after_nan").replace("{names}", ", ".join(lost[:MOST_NAMES]))
            return self._after_output() if result.text.strip() or result.images else text_named("after_silence")
        return self._after_error(result, code) if result.status == "error" else ""

    def _lost(self, changes: str, code: str) -> list[str]:
        """Give the names of the code's that came to hold no number, each once: it may be meant so."""
        names = [name for name in _NOT_A_NUMBER.findall(changes) if re.search(rf"\b{name}\b", code)]
        new = [name for name in names if name not in self._told]
        self._told |= set(new)
        return new

    def _after_output(self) -> str:
        language = language_of(self.task)
        line = text_named("after_output").replace("{task}", shorten(self.task.strip()))
        return f"{line} Answer in {language}." if language else line

    def _after_error(self, result: ToolResult, code: str) -> str:
        if needed := import_for(result.summary):
            return text_named("after_missing_import").replace("{line}", needed)
        # Output can look like a frame: only what the model wrote itself is said to it outside of the fence.
        own = {line.strip() for line in code.splitlines()}
        line = next((found for found in reversed(_FRAME.findall(result.text)) if found.strip() in own), "")
        if not line:
            return ""
        # What stands in the fence is passed over by small models: the way out is said once more behind it.
        way_out = advice(result.summary, line)
        name = "after_error_again" if line in self._at_fault and not way_out else "after_error"
        self._at_fault.add(line)
        return "\n".join(filter(None, [text_named(name).replace("{line}", line), way_out]))
