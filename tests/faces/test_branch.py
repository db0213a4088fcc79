"""`--kernel branch`: a copy of the user's kernel that has everything and can touch nothing of it."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.faces.notebook import Cells, kernel
from tests.kernels.libraries import LIBRARIES as LISTED
from tests.kernels.libraries import Library
from tests.scripted_server import ScriptedServer, final, run_code

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a branch is a fork")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


def environment_of(server: ScriptedServer, folder: Path) -> dict[str, str]:
    return {
        "NBAGENT_BASE_URL": server.base_url,
        "NBAGENT_MODEL": "stub",
        "NBAGENT_KERNEL": "branch",
        "NBAGENT_HOME": str(folder / "h"),
        "NBAGENT_APPROVE": "off",
        "NBAGENT_CACHE": str(folder),
    }


USERS = """import threading, logging, sys, numpy as np
array = np.ones(1000); numbers = (n for n in range(9)); next(numbers); lock = threading.Lock()
file = open('lines.txt', 'w+'); _ = file.write('one\\ntwo\\n'); file.flush(); _ = file.seek(4)
logging.basicConfig(stream=sys.stderr); log = logging.getLogger('mine')
class Mine: pass
mine = Mine(); mine.value = 7"""


@pytest.fixture(scope="module")
def users_kernel(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    folder = tmp_path_factory.mktemp("branch")
    with kernel(folder, environment_of(server, folder)) as made:
        made.run("%load_ext nbagent")
        yield made


@pytest.fixture
def cells(users_kernel: Cells) -> Iterator[Cells]:
    """The user's kernel with these variables and no branch of it."""
    users_kernel.run(USERS)
    yield users_kernel
    users_kernel.run("%agent reset\n%reset -f")


def told(cells: Cells, server: ScriptedServer, code: str, options: str = "") -> str:
    """Have the agent run code in a branch; give what the model was told of it."""
    server.responses += [run_code(code), final("done")]
    shown = cells.text(f"%%agent {options}\ngo on")
    assert "done" in shown, shown
    return str(server.bodies[-1]["messages"][-1]["content"])


def test_everything_of_the_users_is_there_and_stays_theirs(cells: Cells, server: ScriptedServer) -> None:
    text = told(
        cells,
        server,
        "array[:] = 2; print(array.sum(), next(numbers), lock.acquire(), file.read(), mine.value)\n"
        "log.warning('logged'); new = Mine()",
    )
    for word in ("2000.0 1 True two", "7", "logged"):
        assert word in text, text
    assert "In your copy of the user's kernel: these open files are read-only in it: lines.txt." in text
    assert cells.text("print(array.sum(), next(numbers), lock.locked(), repr(file.read()))").strip() == (
        "1000.0 1 False 'two\\n'"
    )
    assert cells.text("%agent status")


def test_it_is_the_same_branch_in_later_runs_and_what_the_user_changed_since_is_copied(
    cells: Cells, server: ScriptedServer
) -> None:
    told(cells, server, "array[:] = 2; next(numbers)")
    cells.run("same, other = [1], [2]")
    assert "2000.0 2" in told(cells, server, "mark = 5; print(array.sum(), next(numbers))")
    text = told(cells, server, "print(mark, same, other)")
    assert "In your copy" not in text
    assert "5 [1] [2]" in text
    assert "other was copied from the user's kernel" in text
    assert "copied" not in told(cells, server, "print(file.name, array.shape, other)")


def test_undo_adopt_and_export_work_with_it(cells: Cells, server: ScriptedServer) -> None:
    cells.run("same = [1]")
    told(cells, server, "array[:] = 2")
    told(cells, server, "array[:] = 9; same = 1; made = array * 2")
    assert "18.0" in cells.text("%agent adopt made\nprint(made[0])")
    undone = cells.text("%agent undo")
    assert "Gone: made. As before: same." in undone, undone
    assert "2000.0 False" in told(cells, server, "print(array.sum(), 'made' in globals())")
    assert "branch.ipynb" in cells.text("%agent export branch.ipynb")
    cells.run("%agent reset\nrows = [1, 2]")
    cells.run("rows.append(3)")
    assert "6" in told(cells, server, "print(sum(rows))")
    cells.run("rows = None")
    exported = cells.text("%agent export rows.ipynb --verify\nprint(open('rows.ipynb').read())")
    assert "Verified" in exported, exported
    assert exported.index("rows = [1, 2]") < exported.index("rows.append(3)") < exported.index("print(sum(rows))")
    assert "rows = None" not in exported, "the copy was made before"


def test_nothing_that_it_says_reaches_the_users_notebook(cells: Cells, server: ScriptedServer) -> None:
    cells.run(
        "%agent reset\nimport os, sys, threading\nfrom IPython.display import display\n"
        "user_out = sys.stdout; shown = display"
    )
    server.responses += [
        run_code(
            "print('said 1', file=user_out); print('said 2', file=sys.__stdout__, flush=True)\n"
            "log.error('said 3'); shown('said 4'); os.system('echo said 5'); os.write(1, b'said 6')\n"
            "t = threading.Thread(target=lambda: print('said 7', file=user_out)); t.start(); t.join()\n"
            "import subprocess; subprocess.run('echo said 8', shell=True)\n"
            "sys.__stderr__.write('said 9'); 'said A'"
        ),
        final("done"),
    ]
    outputs = cells.run("%%agent\ngo on")
    seen = str(server.bodies[-1]["messages"][-1]["content"])
    for number in "123456789A":
        assert f"said {number}" in seen, (number, seen)
    assert not [one for one in outputs if one["output_type"] == "stream" and "said" in one["text"]]
    assert cells.text("print('mine')") == "mine\n"


def test_files_connections_and_shared_memory_stay_the_users(cells: Cells, server: ScriptedServer) -> None:
    cells.run("import os, socket, sqlite3, mmap, tempfile, pathlib")
    cells.run("place = pathlib.Path(tempfile.mkdtemp()); (place / 'a').write_bytes(bytes(4096))")
    cells.run(
        "server = socket.create_server(('127.0.0.1', 0)); a = socket.create_connection(server.getsockname())"
    )
    cells.run(
        "b, _ = server.accept(); mapped = np.memmap(place / 'a', dtype='u1', mode='r+'); anon = mmap.mmap(-1, 10)"
    )
    cells.run("db = sqlite3.connect(place / 'x.db'); _ = db.execute('create table t (x)'); db.commit()")
    text = told(
        cells,
        server,
        "def tried(f):\n"
        "  try: return f()\n"
        "  except Exception as e: return type(e).__name__\n"
        "def write(): file.write('x'); file.flush()\n"
        "mapped[:] = 9; mapped.flush(); anon[:3] = b'abc'\n"
        "print([tried(f) for f in (lambda: a.sendall(b'x'), write, lambda: (place / 'b').write_text('x'),\n"
        "  lambda: db.execute('select 1'), lambda: (place / 'a').unlink(), db.close)])\n"
        "print(os.system(f'rm -f {place}/a'), pathlib.Path('mine.txt').write_text('in the workspace'))\n"
        "import subprocess; print(subprocess.run(['echo', 'child'], capture_output=True).stdout, mapped[0])",
    )
    assert "'OSError', 'PermissionError', 'DatabaseError', 'PermissionError'" in text, text
    for word in ("BrokenPipeError", "b'child", " 9", "256 16"):
        assert word in text, text
    looks = "a.sendall(b'ok'); print(b.recv(9), mapped[0], anon[:3], (place / 'a').exists(), file.write('y'))"
    assert cells.text(looks).strip() == "b'ok' 0 b'\\x00\\x00\\x00' True 1"
    assert "(1,)" in cells.text(
        "_ = db.execute('insert into t values (1)'); db.commit(); print(*db.execute('select * from t'))"
    )


def test_a_stop_ends_what_runs_in_it_and_it_goes_on(cells: Cells, server: ScriptedServer) -> None:
    begun = Path(cells.text("import os; print(os.getcwd())").strip()) / "begun"

    def wait() -> None:
        until = time.monotonic() + 20
        while not begun.exists():
            assert time.monotonic() < until
            time.sleep(0.02)

    server.responses += [run_code("kept = 3; open('begun', 'w').close()\nwhile True: pass"), final("done")]
    assert "Stopped" in cells.text_when_stopped("%%agent\ngo on", begun=wait)
    del server.responses[len(server.bodies) :]
    assert "3 1000" in told(cells, server, "print(kept, array.size)")


def test_the_users_kernel_lives_on_whatever_becomes_of_it(cells: Cells, server: ScriptedServer) -> None:
    pid = cells.text("import os; print(os.getpid())")
    for end in ("os.kill(os.getpid(), 9)", "os.kill(os.getpgrp(), 9)", "ctypes.string_at(0)"):
        text = told(cells, server, f"import os, ctypes, time; own = 1\n{end}; time.sleep(20)")
        assert "kernel process" in text, (end, text)
        assert "getpgrp" not in end or "with their variables. Variables gone: " in text, text
        assert "9 False" in told(cells, server, "print(9, 'own' in globals())")
        assert cells.text("print(array.sum(), lock.locked())") == "1000.0 False\n"
    assert cells.text("print(os.getpid())") == pid
    cells.run("%agent reset")
    assert cells.text("import psutil; print(psutil.Process().children(recursive=True))") == "[]\n"


@pytest.mark.parametrize("part", ["keeper", "worker", "checkpoint"])
def test_any_of_its_processes_may_be_killed_and_it_goes_on_with_the_users_variables(
    cells: Cells, server: ScriptedServer, part: str
) -> None:
    pid = int(cells.text("import os; print(os.getpid())"))
    assert "1000.0" in told(cells, server, "own = 5; print(array.sum())")
    assert "6" in told(cells, server, "own = own + 1; print(own)")  # the state before it is kept
    (keeper,) = psutil.Process(pid).children()
    (worker,) = keeper.children()
    family = {"keeper": [keeper], "worker": [worker], "checkpoint": worker.children()}
    assert family[part], "there is none to be killed"
    for one in family[part]:
        one.kill()
    text = told(cells, server, "array[:] = 3; print(array.sum(), 'own' in globals())")
    assert "3000.0" in text or "3000.0" in told(cells, server, "array[:] = 3; print(array.sum())"), text
    assert cells.text("print(os.getpid(), array.sum())") == f"{pid} 1000.0\n"
    cells.run("%agent reset")
    assert psutil.Process(pid).children() == []


@pytest.mark.parametrize(
    ("state", "back", "why"),
    [
        (
            "import threading, numpy as np; stop = threading.Event(); m = np.ones((700, 700))\n"
            "def burn():\n  while not stop.is_set(): m @ m\n"
            "burner = threading.Thread(target=burn, name='burner'); burner.start()",
            "stop.set(); burner.join()",
            "is computing, and a fork could freeze your kernel",
        ),
        (
            "import sqlite3; db = sqlite3.connect('work.db'); _ = db.execute('create table if not exists t (x)')\n"
            "_ = db.execute('insert into t values (2)')",
            "db.rollback(); db.close()",
            "in a transaction",
        ),
        (
            "import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow')",
            "del sys.modules['tensorflow']",
            "TensorFlow is loaded",
        ),
        (
            "import pathlib, threading; pathlib.Path('slow_import.py').write_text('import time; time.sleep(3)')\n"
            "importer = threading.Thread(target=__import__, args=('slow_import',)); importer.start()",
            "importer.join()",
            "a thread of yours is importing a module",
        ),
    ],
    ids=["busy", "transaction", "library", "import"],
)
def test_what_could_harm_is_refused_with_the_reason(
    cells: Cells, server: ScriptedServer, state: str, back: str, why: str
) -> None:
    cells.run(state)
    server.responses += [run_code("print(1)"), final("done")]
    try:
        text = cells.text("%%agent\ngo on")
    finally:
        del server.responses[len(server.bodies) :]  # the run may end before it asks
        cells.run(back)
    assert why in text, text
    assert "`--kernel fresh`" in text


@pytest.mark.long
@pytest.mark.timeout(300)
def test_thirty_branches_leave_nothing_behind(cells: Cells, server: ScriptedServer) -> None:
    look = "import os, psutil; print(len(os.listdir('/proc/self/fd')), psutil.Process().children(recursive=True))"
    counts = []
    for _ in range(30):
        assert "5" in told(cells, server, "x = 5; print(x)")
        cells.run("%agent reset")
        descriptors, children = cells.text(look).split(maxsplit=1)
        assert children == "[]\n"
        counts.append(int(descriptors))
    # IPython's history opens and closes some of its own; one left by each branch would be twenty.
    assert max(counts[-5:]) <= max(counts[:5]) + 3, counts


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "library", LISTED, ids=lambda one: f"{one.module}-{'refused' if one.declined else 'works'}"
)
def test_a_library_works_in_a_branch_and_in_the_users_kernel_after_it_or_is_refused_in_words(
    library: Library, server: ScriptedServer
) -> None:
    if importlib.util.find_spec(library.module) is None:
        pytest.skip(f"{library.module} is not installed")
    with ExitStack() as stack:
        short = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b-")))  # sockets of torch are in it
        cells = stack.enter_context(kernel(short, environment_of(server, short)))
        cells.run("%load_ext nbagent")
        cells.run(library.make, timeout=120)
        assert cells.status == "ok"
        expected = cells.text(f"print({library.use})", timeout=120).splitlines()[-1]
        if library.declined:
            server.responses += [run_code("print(1)"), final("done")]
            refused = cells.text("%%agent\ngo on")
            del server.responses[len(server.bodies) :]
            assert library.declined in refused
        else:
            assert expected in told(cells, server, f"print({library.use})", "--cell-timeout 120")
        assert cells.text(f"print({library.use})", timeout=120).splitlines()[-1] == expected
