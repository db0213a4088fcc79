"""Which tools a session may use at all, by name, tag and risk: `allow_tools` and `deny_tools`.

A pattern is a name (`run_shell`, `read_*`), a tag (`tag:web`) or a grade of risk (`risk:network`). To deny a
grade denies the worse ones with it; to allow one allows the milder ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from nbagent.events import Risk
from nbagent.protocols import Tool
from nbagent.tools.findings import RISKS

#: To answer is always allowed.
_ALWAYS = "final_answer"


@dataclass(frozen=True, slots=True)
class Permission:
    """What the settings allow. Nothing in `allow` allows everything; `deny` wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def of_tool(self, tool: Tool) -> str:
        """Say why no call of this tool is allowed; "" where one may be."""
        return self.of_call(tool, tool.traits.risk)

    def of_call(self, tool: Tool, risk: Risk | None) -> str:
        """Say why a call of this risk is not allowed (None: not graded yet), or "" """
        if tool.name == _ALWAYS:
            return ""
        for pattern in self.deny:
            if _matches(pattern, tool, risk, deny=True):
                return f"denied by setting (deny_tools={pattern})"
        if self.allow and not any(_matches(pattern, tool, risk, deny=False) for pattern in self.allow):
            return f"denied by setting (allow_tools={','.join(self.allow)})"
        return ""


def _matches(pattern: str, tool: Tool, risk: Risk | None, *, deny: bool) -> bool:
    kind, colon, value = pattern.partition(":")
    if not colon:
        return fnmatchcase(tool.name, pattern)
    if kind == "tag":
        return value in tool.traits.tags
    if risk is None:  # decided when the call is graded
        return not deny
    given, named = RISKS.index(risk), [str(risk) for risk in RISKS].index(value)
    return given >= named if deny else given <= named
