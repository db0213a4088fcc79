"""What a page asks while a cell runs is answered by the waiting main thread; the rest has its turn."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.agent_thread import interrupts_held
from tests.faces.notebook import Cells, kernel
from tests.interpreters import PYTHONS, ipykernel_of

SETUP = """
import time
from pathlib import Path
from types import SimpleNamespace
from comm import create_comm
from nbagent.view.mail import Mail, hear_while_running

order, heard = [], []
for name in ("ours", "theirs"):
    comm = create_comm(target_name="jupyter.widget", comm_id=name)
    comm.on_msg(lambda message: heard.append(message["content"]["comm_id"]))
hear_while_running(SimpleNamespace(comm=__import__("comm").get_comm_manager().comms["ours"]))
"""
WAITS = """
began = time.monotonic()
while not Path("go-on").exists() and time.monotonic() - began < 30:
    Mail(get_ipython()).look()
    time.sleep(0.01)
    if "ours" in heard:
        Path("said").write_text(repr([order, heard]))
        Path("said").rename("heard")
"""


Where = tuple[Path, Cells]


@pytest.fixture(scope="module", params=PYTHONS, ids=ipykernel_of)
def where(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Where]:
    """A kernel of one of the interpreters, and its folder."""
    folder = tmp_path_factory.mktemp("mail")
    places = os.pathsep.join((os.environ["PYTHONPATH"], str(Path(__file__).parents[2])))
    with kernel(folder, {"PYTHONPATH": places}, request.param) as cells:
        yield folder, cells


def test_questions_and_our_own_messages_are_heard_at_once_and_all_others_in_their_order(where: Where) -> None:
    folder, cells = where
    client = cells._client
    cells.run(SETUP)
    waiting = client.execute(WAITS)
    client.execute("order.append(1)")
    comm_message(client, "theirs")
    client.execute("order.append(2)")
    asked = [client.kernel_info(), client.comm_info(), comm_message(client, "ours")]
    while not (folder / "heard").exists():
        time.sleep(0.01)
    assert (folder / "heard").read_text() == "[[], ['ours']]"
    replies = [client.get_shell_msg(timeout=20) for _ in range(2)]
    assert [reply["parent_header"]["msg_id"] for reply in replies] == asked[:2]
    assert set(replies[1]["content"]["comms"]) == {"ours", "theirs"}
    states = busy_and_idle(client, asked[2])
    (folder / "go-on").touch()
    assert client.get_shell_msg(timeout=20)["parent_header"]["msg_id"] == waiting
    assert cells.text("print(order, heard)").strip() == "[1, 2] ['ours', 'theirs']"
    assert [state for of, state in states if of in asked] == ["busy", "idle"] * len(asked)
    assert states[-1] == (waiting, "busy")  # the page must not hold the kernel to be idle: the cell runs


def comm_message(client: Any, comm: str) -> str:
    message = client.session.msg("comm_msg", {"comm_id": comm, "data": {"method": "custom", "content": {}}})
    client.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def busy_and_idle(client: Any, last: str) -> list[tuple[str, str]]:
    """Give what was said of whose work, until the cell is busy again after the `last` question."""
    states: list[tuple[str, str]] = []
    while (last, "idle") not in states[:-1]:
        message = client.get_iopub_msg(timeout=20)
        if message["msg_type"] == "status":
            states.append((message["parent_header"]["msg_id"], message["content"]["execution_state"]))
    return states


CLOSES = """
import os, signal
from nbagent.events import RunFinished, RunStarted
from nbagent.view.widget import WidgetView

view = WidgetView(on_stop=lambda: None)
view.open()
view.show(RunStarted(task="count", message="count", model="stub", host="http://127.0.0.1"))
view.show(RunFinished(reason="answered", answer="It is 42.", steps=1, seconds=1.0))
leave = view._leave_static
view._leave_static = lambda: (os.kill(os.getpid(), signal.SIGINT), leave())
try:
    view.close()
except KeyboardInterrupt:
    print("stopped after it")
"""


def test_an_interrupt_while_the_trace_is_left_takes_nothing_of_it(where: Where) -> None:
    shown, said = where[1].run(CLOSES)
    assert said["text"] == "stopped after it\n"
    assert "It is 42." in shown["data"]["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" not in shown["data"]


def test_an_interrupt_waits_until_the_messages_are_dealt_with() -> None:
    done: list[str] = []

    def work() -> None:
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)
            done.append("whole")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
