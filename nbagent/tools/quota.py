"""How often a tool that costs money may be called in one session."""

from __future__ import annotations

from dataclasses import dataclass, field

from nbagent.protocols import Tool


@dataclass(slots=True)
class Quotas:
    """What was used so far. Attempts count, whatever came of them: they cost the same."""

    used: dict[str, int] = field(default_factory=dict)

    def refusal(self, tool: Tool) -> str:
        """Say that a tool's quota is used up, or "" """
        quota, used = tool.traits.quota, self.used.get(tool.name, 0)
        if quota is None or used < quota:
            return ""
        return f"The quota of {tool.name} is used up ({used} of {quota} calls in this session). Go on without it."

    def state(self, tool: Tool) -> str:
        """Say how much of a quota is left; "" for a tool without one."""
        quota, used = tool.traits.quota, self.used.get(tool.name, 0)
        if quota is None:
            return ""
        return (
            f"ready, {quota - used} of {quota} calls left" if used < quota else f"quota of {quota} calls used up"
        )

    def use(self, tool: Tool) -> None:
        """Count one attempt."""
        self.used[tool.name] = self.used.get(tool.name, 0) + 1
