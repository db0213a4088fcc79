"""Session logs for the export's tests, told in the order in which a session records them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from nbagent.events import (
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalAsked,
    ApprovalGiven,
    DialectChosen,
    Event,
    KernelDied,
    KernelStarted,
    Observed,
    Output,
    OutputAdded,
    Reasoning,
    RunFinished,
    RunStarted,
    SessionStarted,
    Shared,
    StateLost,
    StepStarted,
    Thought,
    Usage,
)


def stream(text: str, name: str = "stdout") -> Output:
    return {"output_type": "stream", "name": name, "text": text}


def raised(line: str) -> Output:
    name, _, value = line.partition(": ")
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": [f"Traceback\n{line}"]}


class Log:
    """Builds a session's events; each method is one thing that happened."""

    def __init__(self, folder: str = "/data/project") -> None:
        self.events: list[Event] = []
        self._run = self._step = 0
        self._calls = 0
        self.add(SessionStarted(nonce="n", versions={"python": "3.11.2", "nbagent": "0.1.0"}, folder=folder))

    def add(self, event: Event) -> Log:
        stamp = {
            "seq": len(self.events) + 1,
            "session": "20261130-214512-k3f9",
            "run": self._run,
            "step": self._step,
        }
        self.events.append(event.model_copy(update=stamp))
        return self

    def task(self, task: str = "What is the mean?", label: str = "") -> Log:
        self._run, self._step = self._run + 1, 0
        self.add(RunStarted(task=task, message=task, model="m", label=label))
        return self.add(DialectChosen(dialect="tools", why="", system="You are.", parameters={}))

    def kernel(self) -> Log:
        return self.add(KernelStarted(generation=1, kind="fresh", python="3.11", confinement=""))

    def thought(self, text: str) -> Log:
        self._step += 1
        return self.add(StepStarted()).add(Thought(text=text))

    def reasoning(self, text: str) -> Log:
        return self.add(Reasoning(text=text))

    def ran(
        self, code: str, *outputs: Output, status: Any = "ok", summary: str = "", tool: str = "run_code"
    ) -> Log:
        call = self._propose(code, tool)
        self.add(ActionStarted(tool=tool, arguments={"code": code}, code=code, call_id=call))
        for output in outputs:
            self.add(OutputAdded(output=output, call_id=call))
        return self.add(ActionFinished(status=status, seconds=0.5, summary=summary, call_id=call))

    def observed(self, text: str) -> Log:
        """What the model is told of the last action."""
        return self.add(Observed(text=text, call_id=f"call_{self._calls}"))

    def failed(self, code: str, line: str = "ValueError: no") -> Log:
        return self.ran(code, raised(line), status="error", summary=line)

    def not_run(self, code: str, status: Any, summary: str = "") -> Log:
        call = self._propose(code, "run_code")
        if status == "denied":
            ask = ApprovalAsked(
                request="r", tool="run_code", code=code, risk="destructive", why="deletes", call_id=call
            )
            self.add(ask).add(ApprovalGiven(request="r", approved=False, by="user", call_id=call))
        return self.add(ActionFinished(status=status, seconds=0, summary=summary, call_id=call))

    def died(self, code: str, *outputs: Output) -> Log:
        call = self._propose(code, "run_code")
        self.add(ActionStarted(tool="run_code", arguments={"code": code}, code=code, call_id=call))
        for output in outputs:
            self.add(OutputAdded(output=output, call_id=call))
        self.add(KernelDied(why="signal 9", call_id=call)).add(StateLost(names=["df"], call_id=call))
        return self.add(ActionFinished(status="error", seconds=1, summary="the kernel died", call_id=call))

    def propose(self, code: str) -> Log:
        self._propose(code, "run_code")
        return self

    def run_proposed(
        self, code: str, *, call: str = "", dies: bool = False, shared: tuple[str, Any, Path] | None = None
    ) -> Log:
        """Run what was proposed (the last, or `call`); `shared` is brought once it has started."""
        call = call or f"call_{self._calls}"
        self.add(ActionStarted(tool="run_code", arguments={"code": code}, code=code, call_id=call))
        if shared is not None:
            self.shared(*shared, call=call)
        if dies:
            self.add(KernelDied(why="signal 9", call_id=call)).add(StateLost(names=["df"], call_id=call))
        return self.add(ActionFinished(status="error" if dies else "ok", seconds=0.5, call_id=call))

    def shared(self, name: str, value: Any, folder: Path, call: str = "") -> Log:
        file = folder / f"{name}-{len(self.events)}.pkl"
        file.write_bytes(pickle.dumps(value))
        return self.add(Shared(name=name, summary=type(value).__name__, file=str(file), call_id=call))

    def answer(self, answer: str) -> Log:
        return self._finish("answered", answer=answer)

    def ended(self, reason: Any, message: str = "stopped") -> Log:
        return self._finish(reason, message=message)

    def _finish(self, reason: Any, answer: str = "", message: str = "") -> Log:
        usage = Usage(prompt_tokens=10, completion_tokens=5)
        steps = self._step
        return self.add(
            RunFinished(reason=reason, answer=answer, message=message, usage=usage, steps=steps, seconds=2)
        )

    def _propose(self, code: str, tool: str) -> str:
        self._calls += 1
        call = f"call_{self._calls}"
        arguments = '{"code": ' + repr(code) + "}"
        self.add(ActionProposed(tool=tool, arguments=arguments, call_id=call))
        return call
