"""Scripted runs for the live view: a thread plays events while the cell blocks, as the magic does.

Imported by the kernel under test: `from tests.browser import story; story.play(story.analysis)`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from nbagent import events as e
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.view.widget import WidgetView

LOAD = """import pandas as pd

# Every reading of the station, one row an hour
readings = pd.read_csv("readings.csv", parse_dates=["time"])
readings.head()"""
PLOT = '''def monthly(frame, column="temperature"):
    """Mean of a column by month."""
    return frame.set_index("time")[column].resample("MS").mean()

for month, mean in monthly(readings).items():
    print(f"{month:%Y-%m}  {mean:6.2f}")
monthly(readings).plot(kind="bar", figsize=(7, 2.4))'''


class Stage:
    """What a script plays on."""

    def __init__(self, view: WidgetView):
        self.view = view
        self.step = 0

    def show(self, event: e.Event) -> None:
        """Show an event of the current step."""
        self.view.show(event.model_copy(update={"step": self.step, "run": 1, "time": time.time()}))

    def begin(self) -> None:
        """Start the next step."""
        self.step += 1
        self.show(e.StepStarted())

    async def say(self, text: str, pace: float = 0.02) -> None:
        """Stream a thought, word by word."""
        for word in text.split(" "):
            self.show(e.ThoughtDelta(text=word + " "))
            await asyncio.sleep(pace)
        self.show(e.Thought(text=text))

    async def act(self, code: str, outputs: list[e.Output], *, seconds: float = 0.1, error: str = "") -> None:
        """Write code, run it, show what it gave."""
        call = f"call-{self.step}"
        for line in code.splitlines(keepends=True):
            self.show(e.ActionDelta(tool="run_code", text=line))
            await asyncio.sleep(0.02)
        self.show(e.ActionStarted(call_id=call, tool="run_code", arguments={"code": code}, code=code))
        await asyncio.sleep(seconds)
        for output in outputs:
            self.show(e.OutputAdded(call_id=call, output=output))
        status: e.ActionStatus = "error" if error else "ok"
        self.show(e.ActionFinished(call_id=call, status=status, seconds=seconds, summary=error))
        self.show(e.StepFinished(usage=e.Usage(prompt_tokens=812, completion_tokens=96), seconds=seconds + 0.8))


Script = Callable[[Stage], Awaitable[Any]]


def play(script: Script, *, task: str = "Which month was the warmest?", pause: float = 0.0) -> dict[str, Any]:
    """Play a script in the running cell; give what the page did."""
    record: dict[str, Any] = {"stopped": None, "result": None}
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[Any]] = []

    def stop() -> None:
        record["stopped"] = time.time()
        record["thread"] = threading.current_thread().name
        loop.call_soon_threadsafe(tasks[0].cancel)

    view = WidgetView(on_stop=stop)
    stage = Stage(view)

    async def agent() -> None:
        tasks.append(asyncio.ensure_future(script(stage)))
        view.show(e.RunStarted(task=task, message=task, model="scripted-1", label="scripted: check it"))
        reason: e.Reason = "answered"
        try:
            record["result"] = await tasks[0]
        except asyncio.CancelledError:
            reason = "interrupted"
        answer = record["result"] if isinstance(record["result"], str) and reason == "answered" else ""
        view.show(e.RunFinished(reason=reason, answer=answer, steps=stage.step, seconds=time.time() - began))
        await asyncio.sleep(pause)

    view.open()
    began = time.time()
    thread = threading.Thread(target=loop.run_until_complete, args=(agent(),))
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
    except KeyboardInterrupt:
        stop()
        thread.join()
        record["interrupted"] = True
    finally:
        view.close()
        loop.close()
    record["callbacks_work"] = view.callbacks_work
    return record


def ran(code: str) -> list[e.Output]:
    """Make the outputs of a DataFrame and a figure, as a kernel would."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    if code == LOAD:
        frame = pd.DataFrame(
            {
                "time": pd.date_range("2024-01-01", periods=5, freq="h"),
                "temperature": [3.1, 2.9, 2.8, 3.0, 3.4],
                "wind <km/h>": [12, 14, 9, 7, 8],
                "station": ["Nord & Süd"] * 5,
            }
        )
        data = {"text/plain": repr(frame), "text/html": frame._repr_html_()}  # type: ignore[operator]
        return [{"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": 1}]
    figure, axes = plt.subplots(figsize=(7, 2.4))
    axes.bar(range(12), [3, 4, 7, 11, 15, 19, 21, 20, 16, 11, 6, 4])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    plt.close(figure)
    png = base64.b64encode(buffer.getvalue()).decode()
    table = "".join(f"2024-{month:02d}  {mean:6.2f}\n" for month, mean in enumerate([3, 4, 7, 11, 15, 19, 21], 1))
    return [
        {"output_type": "stream", "name": "stdout", "text": table},
        {"output_type": "display_data", "data": {"image/png": png, "text/plain": "<Figure>"}, "metadata": {}},
    ]


def failed() -> e.Output:
    """Make the output of a KeyError with a long, coloured traceback."""
    from IPython.core.ultratb import VerboseTB

    try:
        {}["temp"]
    except KeyError as error:
        lines = VerboseTB(theme_name="neutral").structured_traceback(type(error), error, error.__traceback__)
        return {"output_type": "error", "ename": "KeyError", "evalue": "'temp'", "traceback": lines}
    raise AssertionError


async def analysis(stage: Stage) -> str:
    """Play a whole analysis: a table, an error, a figure, an answer."""
    stage.begin()
    stage.show(
        e.ReasoningDelta(text="The user wants the warmest month. I should look at the file's columns first.")
    )
    await stage.say(
        "I will load **readings.csv** and look at its columns.\n\n- `time` should be parsed\n- units matter"
    )
    await stage.act(LOAD, ran(LOAD), seconds=0.3)
    stage.begin()
    await stage.say("Now the mean by month.")
    await stage.act('readings["temp"].mean()', [failed()], error="KeyError: 'temp'")
    stage.begin()
    stage.show(e.Nudged(guard="failures", text="Look at the columns before you change the code."))
    await stage.say("The column is called `temperature`. I group by month and draw it.")
    await stage.act(PLOT, ran(PLOT), seconds=1.5)
    stage.begin()
    answer = "**July** was the warmest month, with a mean of 21.0 °C; January was the coldest (3.0 °C)."
    await stage.say(answer)
    stage.show(e.StepFinished(usage=e.Usage(prompt_tokens=1900, completion_tokens=40), seconds=0.9))
    return answer


async def waits_for_approval(stage: Stage) -> dict[str, Any]:
    """Ask whether a destructive action may run, and give the answer."""
    stage.begin()
    await stage.say("The old results are in the way; I delete them.")
    code = 'import shutil\n\nshutil.rmtree("results")  # 12 files'
    request = ApprovalRequest("request-1", "call-1", "run_code", code, "destructive", "deletes the folder results")
    stage.show(e.ActionProposed(call_id="call-1", tool="run_code", arguments='{"code": "x"}'))
    asked = e.ApprovalAsked(
        call_id="call-1", request="request-1", tool="run_code", code=code, risk=request.risk, why=request.why
    )
    stage.show(asked)
    approval: Approval = await stage.view.ask(request)
    stage.show(e.ApprovalGiven(call_id="call-1", request="request-1", approved=approval.approved, by=approval.by))
    await asyncio.sleep(0.2)
    return {"approved": approval.approved, "by": approval.by, "note": approval.note, "code": approval.code}
