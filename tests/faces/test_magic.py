"""`%%agent` and `%agent` in a real kernel whose front end takes no questions (nbclient, papermill)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import nbformat
import psutil

from nbagent.magic_commands import COMMANDS
from nbagent.options import options
from tests.faces.notebook import Cells
from tests.scripted_server import C, F, Gate, Recorded, Response, ScriptedServer, T, final, plain, run_code, sse

MERGE = "merged = left.assign(key=left.key.str.strip()).merge(right)\nprint(len(merged))"


def bring(name: str) -> Response:
    arguments = f'{{"name": "{name}"}}'
    return sse(
        C(T(index=0, id=name, type="function", function=F("bring_variable", arguments))), C({}, "tool_calls")
    )


def test_the_users_own_variables_are_merged_mended_and_taken_back(
    cells: Cells, server: ScriptedServer, folder: Path
) -> None:
    server.responses = [bring("left"), bring("right"), run_code(MERGE), final("A trailing space loses 1 row.")]
    cells.run(
        "import pandas as pd\n"
        "left = pd.DataFrame({'key': ['a', 'b ', 'c'], 'x': [1, 2, 3]})\n"
        "right = pd.DataFrame({'key': ['a', 'b', 'c'], 'y': [4, 5, 6]})"
    )
    (trace,) = cells.run("%%agent\nWhy does the merge lose a row?")
    assert cells.status == "ok"
    assert "A trailing space loses 1 row." in trace["data"]["text/html"]
    assert "A trailing space loses 1 row." in trace["data"]["text/plain"]
    assert "<script" not in trace["data"]["text/html"]
    told = server.bodies[0]["messages"][1]["content"]
    assert "left: DataFrame (3, 2)" in told
    assert "pd.DataFrame" in told
    assert "Why does the merge lose a row?" in told
    assert cells.text("print('merged' in globals(), _agent.answer, _agent.reason, _agent.steps)").split() == (
        ["False", "A", "trailing", "space", "loses", "1", "row.", "answered", "4"]
    )
    assert "merged is now yours" in cells.text("%agent adopt merged")
    assert cells.text("print(len(merged), len(left), left.key[1] == 'b ')").split() == ["3", "3", "True"]
    told = cells.text("%agent export out.ipynb --distill --verify")
    assert told.startswith("distilled: Verified: 2 code cells gave the same in a clean kernel")
    assert "Exported to out.ipynb: the distilled notebook." in told
    nbformat.validate(nbformat.read(folder / "out.ipynb", as_version=4))
    status = " ".join(cells.text("%agent status").split())  # long values go on in the next line
    for words in (": 1 run, 4 steps", "model stub at http://127.0.0.1:", "undo 1 step ran code"):
        assert words in status
    assert "'merged'" in cells.text("print(get_ipython().Completer.complete(line_buffer='%agent adopt mer'))")
    assert "step 4" in (spent := cells.text("%agent usage"))
    assert spent.splitlines()[0].startswith("run 1  stub, answered: about ")


def test_money_is_limited_on_the_cells_line_and_shown_under_the_run(cells: Cells, server: ScriptedServer) -> None:
    (trace,) = cells.run("%%agent --max-cost 0.5\ncount")
    assert "max_cost cannot be kept: no price is known for stub" in str(trace)
    server.responses = [run_code("n = 3\nn"), final("3")]
    (trace,) = cells.run("%%agent --max-cost 0.5 --price 1,10\ncount")
    assert "$0.00" in trace["data"]["text/plain"]
    assert cells.text("print(0 < _agent.usage.cost < 0.5)").strip() == "True"
    (trace,) = cells.run("%%agent --max-cost 0.0001 --price 1,10\ncount")
    assert "Cost limit reached" in trace["data"]["text/plain"]
    assert cells.text("print(_agent.success, _agent.reason)").split() == ["False", "max_cost"]


def test_code_that_uses_a_users_variable_gets_it_without_asking(cells: Cells, server: ScriptedServer) -> None:
    server.responses = [
        run_code("print(sum(prices))"),
        run_code("prices = [1]"),
        run_code("print(prices)"),
        final("6"),
    ]
    cells.run("prices = [1, 2, 3]")
    cells.run("%%agent\nsum them")
    tools = [message["content"] for message in server.bodies[3]["messages"] if message["role"] == "tool"]
    assert "6" in tools[0]
    assert "copied from the user's kernel" in tools[0]
    assert "[1]" in tools[2]
    assert cells.text("print(prices)").strip() == "[1, 2, 3]"


def test_one_kernel_serves_all_cells_and_ends_with_the_notebook(cells: Cells, server: ScriptedServer) -> None:
    server.answer = lambda request: alternate(request)
    pid = int(cells.text("import os; print(os.getpid())"))
    for number in range(3):
        cells.run(f"%%agent\ntask {number}")
    children = psutil.Process(pid).children()
    assert len(children) == 1
    cells.run("%agent reset")
    psutil.wait_procs(children, timeout=5)
    assert not [child for child in children if child.is_running()]


def alternate(request: Recorded) -> Response:
    last = request.body["messages"][-1]
    return final("ok") if last["role"] == "tool" else run_code("x = 1")


def test_the_users_event_loop_is_left_alone(cells: Cells, server: ScriptedServer) -> None:
    server.responses = [run_code("import asyncio\nawait asyncio.sleep(0.01)\ny = 5\nprint(y)"), final("ok")]
    cells.run("%%agent\ngo")
    assert cells.status == "ok"
    assert cells.text("import asyncio; print(asyncio.run.__module__); await asyncio.sleep(0.01)").strip() == (
        "asyncio.runners"
    )


def test_markup_of_the_model_and_of_data_is_text(cells: Cells, server: ScriptedServer) -> None:
    hostile = '<img src=x onerror="pwned()"><script>pwned()</script>'
    server.responses = [run_code(f"print('''</pre>{hostile}''')"), final(f"Done {hostile}")]
    (trace,) = cells.run(f"%%agent\nsay {hostile}")
    page = trace["data"]["text/html"]
    assert "<script>" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;" in page


BAD_INPUT = [
    ("%agent dance", "status"),
    ("%agent adopt", "NAME"),
    ("%agent adopt x", "no session"),
    ("%agent export", "PATH"),
    ("%%agent\n", "empty"),
    ("%%agent\n   ", "empty"),
    ("%%agent --no-such-option\ngo", "no-such-option"),
    ("%%agent --max-steps ten\ngo", "max_steps"),
    ("%%agent --max-steps 0\ngo", "max_steps"),
    ("%%agent --approve maybe\ngo", "approve"),
    ("%%agent --folder /no/such/folder\ngo", "--folder"),
    ("%%agent --model local:nothing\ngo", "qwen2.5-coder-1.5b"),
    ("%%agent --model local:qwen2.5-coder-1.5b\ngo", "nbagent model pull"),
    ("%%agent --key-env NOT_SET\ngo", "NOT_SET"),
    ('%%agent --model "unclosed\ngo', "cannot be read"),
]


def test_bad_input_is_one_line_that_says_what_to_do(cells: Cells) -> None:
    for cell, said in BAD_INPUT:
        text = cells.text(cell)
        assert "Traceback" not in text, cell
        assert len(text.strip().splitlines()) <= 2, cell
        assert said in text, cell


def test_errors_of_the_server_are_told_in_a_line_and_nothing_is_lost(cells: Cells, server: ScriptedServer) -> None:
    errors = [
        (plain(401, {"error": {"message": "bad key"}}), "bad key"),
        (plain(404, {"error": {"message": "model 'stub' not found"}}), "stub"),
        (plain(200, "<html><body>please log in</body></html>", {"Content-Type": "text/html"}), "log in"),
    ]
    for number, (response, said) in enumerate(errors, 1):
        server.begin_again()
        server.responses = [run_code(f"x = {number}7"), response, run_code("print(x)"), final(f"It is {number}7")]
        text = cells.text("%%agent\ngo")
        assert "Traceback" not in text
        assert said in text
        assert cells.text("print(_agent.reason)").strip() == "model_error"
        assert f"It is {number}7" in cells.text("%%agent\nagain")
        assert f"\n{number}7\n" in server.bodies[-1]["messages"][-1]["content"]


def test_a_server_that_is_down_is_named(cells: Cells) -> None:
    text = cells.text("%%agent --base-url http://127.0.0.1:9/v1 --max-retry-seconds 0\ngo")
    assert "127.0.0.1:9" in text
    assert "Traceback" not in text


def test_config_tells_where_each_value_comes_from_and_hides_the_key(cells: Cells) -> None:
    cells.run("import os; os.environ['NBAGENT_API_KEY'] = 'sk-very-secret-key-1234'")
    text = cells.text("%agent config")
    cells.run("del os.environ['NBAGENT_API_KEY']")
    assert "environment NBAGENT_BASE_URL" in text
    assert "very-secret" not in text
    assert "…1234" in text


def test_help_is_a_page_and_explains_every_command_and_on_request_every_option(cells: Cells) -> None:
    text = cells.text("%agent help")
    assert [name for name in COMMANDS if f"%agent {name}" not in text] == []
    for word in ("--max-steps", "--approve", "--model", "--again", "%config NbAgent", "%agent help options"):
        assert word in text
    assert len(text.splitlines()) < 50
    every = cells.text("%agent help options")
    assert [option.flag for option in options() if f"  {option.flag} " not in every] == []
    assert max(map(len, (text + every).splitlines())) <= 100


def test_config_line_sets_settings_below_those_of_the_cell(cells: Cells, server: ScriptedServer) -> None:
    cells.run("%config NbAgent.max_steps = 7")
    cells.run("%config NbAgent.cells = 'last:1'")
    text = cells.text("%agent config")
    assert [line.split()[1:] for line in text.splitlines() if line.startswith("max_steps")] == [["7", "config"]]
    server.responses = [final("ok")]
    cells.run("a = 1")
    cells.run("b = 2")
    cells.run("%%agent --cells last:2\ngo")
    told = server.bodies[0]["messages"][1]["content"]
    assert "a = 1" in told
    assert "b = 2" in told


def test_what_shapes_the_kernel_stays_from_cell_to_cell(cells: Cells, server: ScriptedServer) -> None:
    server.responses = [final("ok"), final("ok")]
    cells.run("%%agent --confine off\ngo")
    cells.run("%%agent\ngo")
    assert cells.status == "ok"
    assert "reset" in cells.text("%%agent --confine workspace\ngo")


def test_a_process_that_ends_without_closing_leaves_nothing_and_says_nothing(tmp_path: Path) -> None:
    script = (
        "from nbagent import Agent; import os, psutil\n"
        "agent = Agent(model='stub', base_url=os.environ['URL'], folder='.')\n"
        "agent.run_sync('go'); print(*[child.pid for child in psutil.Process().children()])"
    )
    with ScriptedServer([run_code("x = 1"), final("ok")]) as server:
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "URL": server.base_url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    assert done.stdout.split()
    assert not [pid for pid in map(int, done.stdout.split()) if psutil.pid_exists(pid)]


def test_a_stop_before_the_run_has_begun_is_heard_at_once_and_the_next_run_works(
    cells: Cells, server: ScriptedServer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        held = ExitStack()
        cells.run("from nbagent.models import openai_chat; usual = openai_chat.MODELS_SECONDS")
        cells.run("openai_chat.MODELS_SECONDS = 1000  # so that nothing but the stop ends it")
        text = cells.text_when_stopped(
            f"%%agent --base-url {address} --model ''\ngo", begun=lambda: held.enter_context(silent.accept()[0])
        )
        held.close()
        cells.run("openai_chat.MODELS_SECONDS = usual")
    assert text.strip() == "Stopped."
    server.responses = [final("heard")]
    assert "heard" in cells.text("%%agent\ngo on")


def test_a_second_press_of_stop_as_the_run_ends_adds_nothing_below_its_trace(
    cells: Cells, server: ScriptedServer
) -> None:
    held = Gate()
    server.responses = [sse(C({"content": "Let me think"}), held)]
    cells.run(
        "import signal\n"
        "from nbagent import cell\n"
        "usual = cell.result_of\n"
        "cell.result_of = lambda *given: [signal.raise_signal(signal.SIGINT), usual(*given)]"
    )
    outputs = cells.stopped("%%agent\nthink", begun=lambda: held.reached.wait(20))
    assert cells.status == "error"  # what a Run All goes by
    assert [output["output_type"] for output in outputs] == ["display_data"]
    assert "Stopped" in outputs[0]["data"]["text/plain"]
    cells.run("cell.result_of = usual")


def test_a_stop_while_a_variable_is_copied_is_one_word(
    cells: Cells, server: ScriptedServer, folder: Path, tmp_path: Path
) -> None:
    server.responses = [final("begun")]
    cells.run("%%agent\nbegin")
    sign = tmp_path / "begun"
    (folder / "slow.py").write_text(
        "import pathlib, time\n"
        "class Slow:\n"
        "    def __reduce__(self):\n"
        f"        pathlib.Path({str(sign)!r}).touch()\n"
        "        time.sleep(30)\n"
        "        return (Slow, ())\n"
    )
    cells.run("import slow\nx = slow.Slow()")

    def copying() -> None:
        until = time.monotonic() + 20
        while not sign.exists() and time.monotonic() < until:
            time.sleep(0.02)

    assert cells.text_when_stopped("%agent bring x", begun=copying).strip() == "Stopped."


def test_undo_takes_the_last_step_back_and_says_what_came_of_it(cells: Cells, server: ScriptedServer) -> None:
    records = Path(os.environ["NBAGENT_HOME"]) / "records"
    server.responses = [run_code("x = 1"), run_code("x = 2; y = 3"), final("done")]
    cells.run("%%agent\ncount")
    (record,) = records.glob("*/*.json")
    assert "y = 3" in record.read_text()
    assert cells.text("%agent undo") == (
        "Undone: 1 step that ran code. Gone: y. As before: x. They changed no file that is known of. "
        "What they did to databases or over the network stays.\n"
    )
    assert "y = 3" not in record.read_text(), "what was undone is not replayed"
    assert "1 step ran code; 1 can be undone without running cells again" in cells.text("%agent status")
    assert "write how many steps to undo: 1 or more" in cells.text("%agent undo 0")


def test_what_cannot_be_adopted_is_told_why_and_its_cell_is_offered(cells: Cells, server: ScriptedServer) -> None:
    server.responses = [run_code("import threading\nlock = threading.Lock()"), final("done")]
    cells.run("%%agent\nmake a lock")
    told = cells.text("%agent adopt lock")
    assert "lock cannot travel: TypeError: cannot pickle '_thread.lock' object" in told
    assert "The cell that made it is below: run it in your kernel instead" in told
    assert "there is no such variable" in cells.text("%agent adopt nothing")
