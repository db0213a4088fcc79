"""A breaker per tool: after a row of the tool's own faults its calls are answered at once, for a while.

Time comes from a clock that is handed in, so that tests can turn it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When a breaker opens, and for how long. All times are seconds."""

    faults: int = 3  #: in a row
    cooldown: float = 30.0
    rate: float = 0.6  #: of at least `calls` calls within `window`
    calls: int = 10
    window: float = 300.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to one call. A probe is the one call that decides whether an open breaker closes."""

    opened: int  #: how often the breaker had opened when it was given
    probe: bool


@dataclass(slots=True)
class Breaker:
    """The state of one tool. A fault is the tool's own: a time-out, what it raises; never the user's code's."""

    limits: BreakerLimits
    clock: Callable[[], float]
    _row: int = 0
    _outcomes: deque[tuple[float, bool]] = field(default_factory=deque)
    _open_until: float | None = None
    _probing: bool = False
    _opened: int = 0
    _why: str = ""

    @property
    def why(self) -> str:
        """What opened it, in words; "" while it is closed."""
        return self._why if self._open_until is not None else ""

    def refusal(self) -> str:
        """Say when a call may be tried again; "" where one may be now. Looking changes nothing."""
        if self._open_until is None:
            return ""
        left = self._open_until - self.clock()
        if left > 0:
            return f"it may be tried again in {_seconds(left)}"
        return "it is being tried once more just now" if self._probing else ""

    def begin(self) -> Ticket | None:
        """Give the right to a call, or None while it is open. Hand the ticket back to `end`, always."""
        if self.refusal():
            return None
        self._probing = probe = self._open_until is not None
        return Ticket(self._opened, probe)

    def end(self, ticket: Ticket, fault: bool | None) -> None:
        """Take in how a call ended; None where it came to no outcome: then a probe was not used up."""
        if ticket.opened != self._opened:
            return  # begun before it opened: says nothing of the tool as it is since
        if ticket.probe:
            self._probing = False
        if fault is None:
            return
        now = self.clock()
        if ticket.probe and not fault:
            self._open_until, self._row = None, 0
            self._outcomes.clear()
        self._row = self._row + 1 if fault else 0
        self._outcomes.append((now, fault))
        while self._outcomes and self._outcomes[0][0] < now - self.limits.window:
            self._outcomes.popleft()
        failed = sum(fault for _, fault in self._outcomes)
        if ticket.probe and fault:
            self._open(now, "it failed again when it was tried")
        elif self._row >= self.limits.faults:
            self._open(now, f"{self._row} fault{'s' if self._row > 1 else ''} in a row")
        elif len(self._outcomes) >= self.limits.calls and failed >= self.limits.rate * len(self._outcomes):
            self._open(now, f"{failed} of {len(self._outcomes)} calls failed")

    def _open(self, now: float, why: str) -> None:
        self._open_until, self._why = now + self.limits.cooldown, why
        self._opened += 1
        self._row = 0
        self._outcomes.clear()


@dataclass(slots=True)
class Breakers:
    """The breakers of a session's tools. A tool that was made anew starts with a good name."""

    _by_name: dict[str, tuple[object, Breaker]] = field(default_factory=dict)

    def of(self, name: str, tool: object, limits: BreakerLimits, clock: Callable[[], float]) -> Breaker:
        """Give the tool's breaker, under these limits from now on."""
        known, breaker = self._by_name.get(name, (None, None))
        if breaker is None or known is not tool:
            breaker = Breaker(limits, clock)
            self._by_name[name] = (tool, breaker)
        breaker.limits, breaker.clock = limits, clock
        return breaker

    def state(self, name: str, tool: object) -> str:
        """Say why calls of a tool are refused now; "" where they are not."""
        known, breaker = self._by_name.get(name, (None, None))
        if breaker is None or known is not tool or not (refusal := breaker.refusal()):
            return ""
        return f"breaker open: {breaker.why}; {refusal}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 1 else f"{value:.1f} s"
