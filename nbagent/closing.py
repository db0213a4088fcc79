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
from nbagent.usual_imports import import_for

#: A frame of the model's own code, as `tools.trace` writes it.
_FRAME = re.compile(r"^Cell In\[\d+\], line \d+(?:, in [^:\n]*)?: (.+)$", re.MULTILINE)


@dataclass(slots=True)
class Closing:
    """Ends the observations of one run with this task."""

    dialect: DialectName
    task: str
    _at_fault: set[str] = field(default_factory=set)

    def __call__(self, result: ToolResult, code: str) -> str:
        """Give the last words on what came of `code`, or ""."""
        if self.dialect == "tools" or result.answer is not None:
            return ""
        if result.status == "ok":
            return self._after_output() if result.text.strip() or result.images else text_named("after_silence")
        if result.status != "error":
            return ""
        if needed := import_for(result.summary):
            return text_named("after_missing_import").replace("{line}", needed)
        return self._after_error(result.text, code)

    def _after_output(self) -> str:
        language = language_of(self.task)
        line = text_named("after_output").replace("{task}", shorten(self.task.strip()))
        return f"{line} Answer in {language}." if language else line

    def _after_error(self, told: str, code: str) -> str:
        # Output can look like a frame: only what the model wrote itself is said to it outside of the fence.
        own = {line.strip() for line in code.splitlines()}
        line = next((found for found in reversed(_FRAME.findall(told)) if found.strip() in own), "")
        if not line:
            return ""
        name = "after_error_again" if line in self._at_fault else "after_error"
        self._at_fault.add(line)
        return text_named(name).replace("{line}", line)
