"""run_code over a real kernel: what runs, what is told, what is shown."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nbagent.events import ActionEdited, ActionFinished, ActionStarted, Observed, OutputAdded, SessionStarted
from nbagent.file_history import restore_files
from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Approval, ToolResult
from nbagent.redaction import Redactor
from nbagent.reply import Action
from nbagent.tools.code import RunCode
from nbagent.tools.gateway import Gateway
from tests.kernels.running import make_kernel
from tests.kernels.running import run as execute
from tests.tools.conftest import Context, User

YES = User(Approval(True, "user"))

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kernel works."""
    return tmp_path_factory.mktemp("kernel") / "work"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(folder: Path) -> AsyncIterator[ProcessKernel]:
    """One kernel for all."""
    made = make_kernel(folder.parent)
    yield made
    await made.close()


@pytest.fixture
def workspace(kernel: ProcessKernel, folder: Path) -> Path:
    """The kernel's folder, empty."""
    for path in folder.iterdir():
        path.unlink()
    return folder


@pytest_asyncio.fixture(loop_scope="module")
async def context(tmp_path: Path, kernel: ProcessKernel, workspace: Path) -> Context:
    """A context of the test's own over the kernel, which has no variables."""
    await execute(kernel, "%reset -f")
    return Context(kernel, tmp_path, workspace)


@pytest.fixture
def gate(workspace: Path) -> Gateway:
    return Gateway([RunCode(workspace)], approve="ask")


async def run(gate: Gateway, context: Context, code: str, user: User = YES) -> tuple[ToolResult, str]:
    return await gate.call(Action("c1", "run_code", json.dumps({"code": code})), context, user)


def inside(text: str) -> str:
    start, end = "<output 3fa9c1>\n", "\n</output 3fa9c1>"
    assert text.startswith(start), text
    assert text.endswith(end), text
    return text.removeprefix(start).removesuffix(end)


async def test_outputs_values_and_changed_variables_are_told(gate: Gateway, context: Context) -> None:
    result, text = await run(gate, context, "```python\nx = 5\nprint('hi')\nx + 1\n```")
    assert result.status == "ok"
    counted = result.execution_count
    assert inside(text) == "hi\n6\nChanged: x int 5"
    started, finished = context.of(ActionStarted)[0], context.of(ActionFinished)[0]
    assert (started.code, started.risk) == ("x = 5\nprint('hi')\nx + 1", "read")
    assert finished.seconds > 0
    assert [event.output["output_type"] for event in context.of(OutputAdded)] == ["stream", "execute_result"]
    result, text = await run(gate, context, "pass")
    assert text == "(no output)"
    assert (result.execution_count or 0) > (counted or 0) > 0
    assert {event.call_id for event in context.events} == {"c1"}


async def test_warnings_are_no_failure_and_failures_are_told(gate: Gateway, context: Context) -> None:
    result, text = await run(gate, context, 'import warnings; warnings.warn("old API"); print("total=5")')
    assert result.status == "ok"
    assert "total=5" in text
    assert "[warning, no failure] UserWarning: old API" in text
    result, text = await run(gate, context, 'print("loaded 3"); raise RuntimeError("boom")')
    assert result.status == "error"
    assert re.match(r"loaded 3\nCell In\[\d+\], line 1: ", inside(text))
    assert text.count("RuntimeError: boom") == 1
    assert result.summary == "RuntimeError: boom"
    result, text = await run(gate, context, "kept = 1\nimport sys; sys.exit(3)")
    assert result.status == "error"
    assert text.startswith("The code asked to exit with 3; the kernel is still up.")
    assert "To exit: use" not in text
    result, text = await run(gate, context, "!false")
    assert "exit status 1" in text
    result, text = await run(gate, context, "%%bash\nexit 4")
    assert result.status == "error"
    assert "exit status 4" in text


async def test_a_traceback_keeps_the_users_frames_only(gate: Gateway, context: Context) -> None:
    code = "import pandas as pd\ndef pick(d):\n    return d['b']\npick(pd.DataFrame({'a': [1]}))"
    _, text = await run(gate, context, code)
    assert re.sub(r"In\[\d+\]", "In[1]", inside(text)).split("\n")[:3] == [
        "Cell In[1], line 4: pick(pd.DataFrame({'a': [1]}))",
        "Cell In[1], line 3, in pick(d): return d['b']",
        "KeyError: 'b'",
    ]
    assert inside(text).endswith("\nThere is no such column. The columns are: 'a'.")
    assert "site-packages" not in text
    page = context.of(OutputAdded)[-1].output
    assert "\x1b[" in "".join(page["traceback"])
    deep = "import sys; sys.setrecursionlimit(400)\ndef f(n): return f(n + 1)\ntry: f(0)\n"
    _, text = await run(gate, context, f"{deep}finally: sys.setrecursionlimit(1000)")
    assert text.count("return f(n + 1)") < 4
    assert "RecursionError" in text
    assert len(text) < 900
    _, text = await run(gate, context, "try: 1/0\nexcept Exception as e:\n    raise OSError('wrapped') from e")
    assert "ZeroDivisionError: division by zero" in text
    assert inside(text).endswith("raise OSError('wrapped') from e\nOSError: wrapped")
    assert text.count("raise OSError") == 1
    _, text = await run(gate, context, "exec('def g(:')", YES)
    assert "def g(:" in text
    assert "SyntaxError: invalid syntax" in text


async def test_an_error_ends_with_the_advice_for_its_kind(gate: Gateway, context: Context) -> None:
    await run(gate, context, "import pandas as pd\nd = pd.DataFrame({'Gdp per Capita': ['1', 'x'], 'b': [1, 2]})")
    advice = "There is no such column. Use 'Gdp per Capita'. The columns are: 'Gdp per Capita', 'b'."
    asked = ["d['gdppercapita']", "d[['gdp_per_capita', 'b']]", "d.gdp_per_capita", "d.groupby('GDP per capita')"]
    for code in asked:
        _, text = await run(gate, context, code)
        assert inside(text).rpartition("\n")[2] == advice
    _, text = await run(gate, context, "d['Gdp per Capita'].astype(float)")
    assert "errors='coerce'" in inside(text).rpartition("\n")[2]
    _, text = await run(gate, context, "{'a': 1}['gdp']")
    assert "column" not in text


async def test_figures_and_tables_are_told_in_few_words(gate: Gateway, context: Context) -> None:
    _, text = await run(gate, context, "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); plt.show()")
    assert "[figure 1: " in text
    assert " png]" in text
    assert len(text) < 300
    _, text = await run(
        gate, context, "import pandas as pd\npd.DataFrame([{f'c{i}': i for i in range(40)}] * 100)"
    )
    assert "[100 rows x 40 columns]" in text
    assert "cut" in text
    assert "<table" not in text
    page = context.of(OutputAdded)[-1].output["data"]
    assert "<table" in page["text/html"]
    _, text = await run(gate, context, "pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [.5, 1]})")
    assert "[table: 2 rows x 3 columns; int64: a; " in text
    assert "float64: c]" in text
    _, text = await run(gate, context, "print(pd.DataFrame({'a': range(1000)}))")
    assert "[1000 rows x 1 columns] (the view is cut: not all rows and columns are shown)" in text
    _, text = await run(gate, context, "pd.get_option('display.max_columns'), pd.get_option('display.max_rows')")
    assert "(20, 60)" in text


async def test_secrets_are_masked_in_all_that_is_shown_and_still_work(gate: Gateway, context: Context) -> None:
    secret, other = "sk-test-ABCDEFGHIJKLMNOPQRSTUVWX", "wJalrTESTKEY/EXAMPLE+abcdefghijklmnop"
    context.redactor = Redactor({"OPENAI_API_KEY": secret, "AWS_SECRET_ACCESS_KEY": other})
    half = "sk-test-ABCDEFGH"
    codes = [
        f"a = {half!r} + {secret[len(half) :]!r}\nlen(a)",
        "import sys, time\nsys.stdout.write(a[:16]); sys.stdout.flush(); time.sleep(0.5); print(a[16:])",
        f"b = {other[:9]!r} + {other[9:]!r}\nraise ValueError(b)",
        "import pandas as pd; pd.DataFrame({'k': [b]})",
        "import hashlib; hashlib.sha256(a.encode()).hexdigest()",
    ]
    texts = [(await run(gate, context, code))[1] for code in codes]
    assert "32" in texts[0]
    assert "[masked OPENAI_API_KEY]" in texts[1]
    assert "ValueError: [masked AWS_SECRET_ACCESS_KEY]" in texts[2]
    assert len(texts[4].split("'")[1]) == 64
    log = "".join(event.model_dump_json() for event in context.events)
    for hidden in (secret, other):
        assert hidden not in "".join(texts)
        assert hidden not in log


async def test_a_time_limit_is_told_first_and_the_variables_stay(gate: Gateway, context: Context) -> None:
    await run(gate, context, "kept = 1")
    context.cell_timeout = 0.5
    result, text = await run(gate, context, "import time\nprint('begun')\ntime.sleep(60)")
    assert result.status == "timeout"
    assert re.match(r"Stopped after 0\.\d+ s: the time limit of one action\. ", text)
    assert "are still there" in text
    assert "begun" in text
    context.cell_timeout = 30
    assert "1" in (await run(gate, context, "kept"))[1]


async def test_a_dead_kernel_and_its_lost_variables_are_told_and_never_cut(
    gate: Gateway, context: Context, workspace: Path
) -> None:
    context.observation_characters = 200
    await run(gate, context, "rows = [1, 2, 3]")
    code = "f = open('log.txt', 'a'); f.write('once\\n'); f.close()\nprint('x\\n' * 500)\nimport os; os._exit(9)"
    result, text = await run(gate, context, code)
    assert result.status == "error"
    assert not result.kernel_lost
    assert "a new kernel was started, earlier variables are gone: rows" in text.replace("A new", "a new")
    assert (workspace / "log.txt").read_text() == "once\n"
    assert "NameError" in (await run(gate, context, "print(rows)"))[1]


async def test_a_cancelled_action_is_answered_and_the_kernel_stays(gate: Gateway, context: Context) -> None:
    await run(gate, context, "kept = 7")
    task = asyncio.create_task(run(gate, context, "import time\nprint('begun', flush=True)\ntime.sleep(60)"))
    async with asyncio.timeout(20):
        while not any("begun" in str(event.output) for event in context.of(OutputAdded)):
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert context.of(ActionFinished)[-1].status == "interrupted"
    assert context.of(Observed)[-1].text == "interrupted by the user"
    assert "7" in (await run(gate, context, "kept"))[1]


async def test_the_users_edited_code_is_what_runs_and_what_the_model_sees(
    gate: Gateway, context: Context, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("mine")
    user = User(Approval(True, "user", code="print('edited')"))
    _, text = await run(gate, context, "open('a.txt', 'w').write('theirs')", user)
    assert user.asked[0].risk == "overwrite"
    assert (workspace / "a.txt").read_text() == "mine"
    assert context.of(ActionStarted)[0].code == "print('edited')"
    assert json.loads(context.of(ActionEdited)[0].arguments) == {"code": "print('edited')"}
    assert text.startswith("The user changed the code before it ran. What ran:\nprint('edited')\n<output")


async def test_the_users_edit_is_checked_like_the_models_code(gate: Gateway, context: Context) -> None:
    for code in ("!sudo ls", "def f(:"):
        result, _ = await run(gate, context, "import os; os.remove(p)", User(Approval(True, "user", code=code)))
        assert result.status in ("denied", "invalid")
    assert not context.of(ActionStarted)


async def test_a_file_is_overwritten_unasked_only_if_the_session_made_it(
    gate: Gateway, context: Context, workspace: Path
) -> None:
    (workspace / "users.txt").write_text("precious")
    user = User(Approval(False, "user"))
    write = "with open({!r}, 'w') as f: f.write('x')"
    assert (await run(gate, context, write.format("new.txt"), user))[0].status == "ok"
    assert (await run(gate, context, write.format("new.txt"), user))[0].status == "ok"
    assert user.asked == []
    assert (await run(gate, context, write.format("users.txt"), user))[0].status == "denied"
    assert (workspace / "users.txt").read_text() == "precious"


async def test_files_that_code_changes_are_told_and_can_be_put_back(
    gate: Gateway, context: Context, workspace: Path
) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (workspace / name).write_text(f"user's {name}")
    before = {path.name: path.read_text() for path in workspace.iterdir()}
    started = SessionStarted(nonce="n", versions={}, folder=str(workspace))
    codes = [
        "from pathlib import Path\nPath('a.txt').write_text('new')\nPath('made.txt').write_text('1')",
        "import os; os.remove('b.txt')",
        "name = 'c.txt'\n!echo gone > {name}",
        "Path('made.txt').unlink()",
        "import time\nopen('late.txt', 'w').write('x')\ntime.sleep(60)",
    ]
    context.cell_timeout = 2
    texts = [(await run(gate, context, code))[1] for code in codes]
    assert "Files: made made.txt; changed a.txt" in texts[0]
    assert "Files: deleted b.txt" in texts[1]
    assert "Files: changed c.txt" in texts[2]
    assert "Files: deleted made.txt" in texts[3]
    assert "Files: made late.txt" in texts[4]
    log = [started, *(event.model_copy(update={"seq": seq}) for seq, event in enumerate(context.events, 1))]
    restored = restore_files(log, context.session_folder, since=1)
    assert {path.name: path.read_text() for path in workspace.iterdir()} == before
    assert restored.words() == "Files put back: a.txt, b.txt, c.txt; removed again: late.txt"


async def test_the_machinery_works_after_builtins_are_rebound(gate: Gateway, context: Context) -> None:
    await run(gate, context, "list = [1]\nprint = len = str = json = None")
    _, text = await run(gate, context, "y = 2\ny")
    assert inside(text) == "2\nChanged: y int 2"


async def test_values_that_were_lost_and_numbers_that_are_none_are_told_as_a_doubt(
    gate: Gateway, context: Context, workspace: Path
) -> None:
    (workspace / "a.csv").write_text('volume,empty\n"5,350,380",\n"683,580",\n')
    result, _ = await run(gate, context, "import pandas as pd\ndf = pd.read_csv('a.csv')")
    assert result.doubt == ""
    code = "volume = pd.to_numeric(df['volume'], errors='coerce')\nmean = volume.mean()"
    result, _ = await run(gate, context, code)
    assert "No number came out for mean: there may be missing values." in result.doubt
    assert "pd.to_numeric makes 2 of 2 values of 'volume' missing" in result.doubt
    result, _ = await run(gate, context, "left = df.dropna()\nshare = left['empty'].mean()")
    assert "No number came out for share: no rows are left in left." in result.doubt
    failed, _ = await run(gate, context, "mean = float('nan')\n1 / 0")
    assert failed.doubt == ""
