"""What ends an observation: what makes it doubtful, and in the text dialects, for small models, what to do next.

They forget what was asked and in which form, answer from a step that showed nothing, leave to their judgement what
code could decide, and send code that failed once more as it was. Larger models need none of that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nbagent.answer_form import choices, missing, named_values, outside, said_as_asked
from nbagent.events import DialectName
from nbagent.prompt import shorten, text_named
from nbagent.protocols import ToolResult
from nbagent.task_reading import language_of
from nbagent.tools.hints import advice
from nbagent.usual_imports import import_for

#: How often a run's outputs are said not to hold what was asked for.
MOST_SENT_BACK = 2
#: A frame of the model's own code, as `tools.trace` writes it.
_FRAME = re.compile(r"^Cell In\[\d+\], line \d+(?:, in [^:\n]*)?: (.+)$", re.MULTILINE)


@dataclass(slots=True)
class Closing:
    """Ends the observations of one run with this task."""

    dialect: DialectName
    task: str
    _at_fault: set[str] = field(default_factory=set)
    _sent_back: int = 0
    _shown: str = ""  #: all that was shown so far

    def __call__(self, result: ToolResult, code: str) -> str:
        """Give the last words on what came of `code`, or ""."""
        if self.dialect == "tools" or result.answer is not None or result.doubt:
            return result.doubt
        if result.status == "ok":
            shown = result.text.strip() or result.images
            return self._after_output(result.text) if shown else text_named("after_silence")
        return self._after_error(result, code) if result.status == "error" else ""

    def _after_output(self, shown: str) -> str:
        if self._sent_back < MOST_SENT_BACK and (told := self._not_as_asked(shown)):
            self._sent_back += 1
            return told
        language = language_of(self.task)
        line = self._told("after_output")
        return f"{line} Answer in {language}." if language else line

    def _not_as_asked(self, shown: str) -> str:
        """Say which values the code still has to print: what is left to a small model's judgement goes wrong."""
        if words := outside(self.task, said_as_asked(self.task, shown)):
            name, words_asked = next(iter(words.items()))
            return self._told("after_other_word", name=name, choices=" or ".join(map(repr, words_asked)))
        self._shown += f"\n{shown}"
        absent = missing(self.task, self._shown)
        part = len(absent) < len(named_values(self.task))
        if not absent or not (part or any(name in choices(self.task) for name in absent)):
            return ""
        return self._told("after_part", form=" ".join(f"@{name}[...]" for name in absent))

    def _told(self, text: str, **words: str) -> str:
        told = text_named(text)
        for name, word in {**words, "task": shorten(self.task.strip())}.items():
            told = told.replace(f"{{{name}}}", word)
        return told

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
