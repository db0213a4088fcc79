"""What the agent's code may write and read, and what it is told when it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nbagent.errors import KernelNotStarted
from nbagent.kernels.confinement import confinement_for
from nbagent.kernels.launch import landlock_abi
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import KernelMaker, make_kernel, run, value

pytestmark = pytest.mark.skipif(not landlock_abi(), reason="this system has no Landlock")
shared_loop = pytest.mark.asyncio(loop_scope="module")  #: for the kernel that tests share


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds home, workspace and scratch of the kernel that tests share."""
    return tmp_path_factory.mktemp("confined")


@pytest.fixture(scope="module")
def the_home(around: Path) -> Path:
    """A home folder with credentials, beside the workspace."""
    home = around / "home"
    for name in (".ssh", ".config/gcloud", ".config/other", "project"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text("content")
    (home / ".netrc").write_text("machine x password y")
    (home / "data.csv").write_text("a,b")
    return home


@pytest.fixture
def home(the_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That home folder, as the user's."""
    monkeypatch.setenv("HOME", str(the_home))
    return the_home


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(the_home: Path, around: Path, kernel_kind: type[ProcessKernel]) -> AsyncIterator[ProcessKernel]:
    """A started, confined kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(the_home))
        made = make_kernel(around, kernel_kind)
        await made.start()
    yield made
    await made.close()


@shared_loop
async def test_the_workspace_and_scratch_are_writable_and_nothing_else(
    kernel: ProcessKernel, around: Path, tmp_path: Path
) -> None:
    assert kernel.confinement == f"writes only to {around / 'work'}; credential files hidden"
    inside = (
        "import os, tempfile, pathlib\n"
        "pathlib.Path('a/b').mkdir(parents=True); pathlib.Path('a/b/f').write_text('x')\n"
        "os.rename('a/b/f', 'a/g'); os.remove('a/g')\n"
        "tempfile.NamedTemporaryFile().write(b'x')\nprint('ok')"
    )
    ran = await run(kernel, inside)
    assert ran.text() == "ok\n", ran.executed.error
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("precious")
    for code in (
        f"open({str(outside / 'mine')!r}, 'w')",
        f"import os; os.remove({str(outside / 'mine')!r})",
        f"import os; os.truncate({str(outside / 'mine')!r}, 0)",
        f"import os; os.mkdir({str(outside / 'new')!r})",
    ):
        ran = await run(kernel, code)
        assert ran.executed.status == "error"
        assert f"; blocked by confinement: {outside}" in ran.executed.error
        assert ran.executed.error.endswith(f"; allow with --allow-write {outside}")
    ran = await run(kernel, f"!rm {outside / 'mine'}")
    assert "exit status 1" in ran.text("stderr")
    assert (outside / "mine").read_text() == "precious"
    assert not (outside / "new").exists()


@shared_loop
async def test_credentials_are_hidden_and_the_rest_is_readable(kernel: ProcessKernel, home: Path) -> None:
    for name in (".ssh/file", ".netrc", ".config/gcloud/file"):
        ran = await run(kernel, f"open({str(home / name)!r})")
        assert ran.executed.status == "error"
        assert f"; blocked by confinement: {home / name} holds credentials" in ran.executed.error
    for name in (".config/other/file", "project/file", "data.csv"):
        assert (await run(kernel, f"open({str(home / name)!r}).read()")).executed.status == "ok"


@shared_loop
async def test_a_file_made_after_the_start_beside_credentials_is_explained(
    kernel: ProcessKernel, home: Path
) -> None:
    (home / "late.csv").write_text("a")
    ran = await run(kernel, f"open({str(home / 'late.csv')!r})")
    assert ran.executed.error.endswith("(what was made there since can be read after `%agent reset`)")


@shared_loop
async def test_a_refusal_inside_another_error_is_explained_too(kernel: ProcessKernel, tmp_path: Path) -> None:
    code = f"try: open({str(tmp_path / 'f')!r}, 'w')\nexcept OSError as e: raise RuntimeError('no report') from e"
    ran = await run(kernel, code)
    assert ran.executed.error.startswith("RuntimeError: no report; blocked by confinement: ")


@shared_loop
async def test_a_failure_that_is_not_the_confinements_is_left_alone(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "open('/proc/self/mem/no', 'w')")
    assert "confinement" not in ran.executed.error
    ran = await run(kernel, "raise PermissionError(13, 'mine', 'inside.txt')")
    assert ran.executed.error == "PermissionError: [Errno 13] mine: 'inside.txt'"


@shared_loop
async def test_processes_shells_and_shared_memory_work(kernel: ProcessKernel) -> None:
    code = (
        "import subprocess, multiprocessing as m, pty, os\n"
        "print(subprocess.check_output('echo hi > /dev/null; echo there', shell=True, text=True))\n"
        "print(m.get_context('fork').Pool(2).map(abs, [-1, -2]))\n"
        "from multiprocessing.shared_memory import SharedMemory\n"
        "s = SharedMemory(create=True, size=10); s.close(); s.unlink()\n"
        "os.close(pty.openpty()[0])\n"
    )
    ran = await run(kernel, code)
    assert ran.executed.status == "ok", ran.executed.error
    assert ran.text() == "there\n\n[1, 2]\n"


async def test_caches_are_written_to_scratch(kernel_maker: KernelMaker, home: Path, tmp_path: Path) -> None:
    kernel = kernel_maker()
    names = ("MPLCONFIGDIR", "IPYTHONDIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")
    found = (await value(kernel, f"*[__import__('os').environ[n] for n in {names!r}]")).split()
    assert all(Path(path).resolve().is_relative_to(tmp_path / "scratch") for path in found)
    # Names of sockets are at most 107 characters long, and torch's and multiprocessing's lie in there.
    assert len(found[-1]) <= 60
    await kernel.close()
    assert Path(found[-1]).is_relative_to(tmp_path) or not Path(found[-1]).parent.exists()


async def test_data_sets_that_are_there_are_used_and_others_have_a_place(
    kernel_maker: KernelMaker, home: Path, tmp_path: Path
) -> None:
    (home / ".cache" / "seaborn").mkdir(parents=True)
    kernel = kernel_maker()
    code = "import os; print(os.environ['SEABORN_DATA'], os.environ['SCIKIT_LEARN_DATA'])"
    there, new = (await run(kernel, code)).text().split()
    assert there == str(home / ".cache" / "seaborn")
    assert Path(new).is_relative_to(tmp_path / "scratch")
    ran = await run(kernel, f"open({there!r} + '/new.csv', 'w').close(); os.makedirs({new!r})")
    assert ran.executed.status == "ok"


async def test_allowed_folders_are_writable_and_named(
    home: Path, kernel_maker: KernelMaker, tmp_path: Path
) -> None:
    kernel = kernel_maker(allow_write=[home / "project"])
    ran = await run(kernel, f"open({str(home / 'project' / 'new')!r}, 'w').close()")
    assert ran.executed.status == "ok"
    assert kernel.confinement == (
        f"writes only to {tmp_path / 'work'}, {home / 'project'}; credential files hidden"
    )


async def test_a_missing_allowed_folder_is_told(home: Path, kernel_maker: KernelMaker) -> None:
    with pytest.raises(KernelNotStarted, match="--allow-write /no/such: there is no such folder"):
        await kernel_maker(allow_write=[Path("/no/such")]).start()


async def test_a_home_folder_is_too_wide_to_be_opened(home: Path, tmp_path: Path) -> None:
    kernel = ProcessKernel(folder=home, scratch=tmp_path / "scratch")
    try:
        await kernel.start()
        assert kernel.confinement == (
            f"writes only to {home / 'nbagent-work'} ({home} is too wide to be opened); credential files hidden"
        )
        assert await value(kernel, "open('data.csv').read()") == "a,b"
        assert "blocked by confinement" in (await run(kernel, "open('data.csv', 'w')")).executed.error
        assert (await run(kernel, "open('nbagent-work/f', 'w').close()")).executed.status == "ok"
        assert "holds credentials" in (await run(kernel, "open('.netrc')")).executed.error
    finally:
        await kernel.close()


async def test_off_means_off_and_says_so(home: Path, kernel_maker: KernelMaker, tmp_path: Path) -> None:
    kernel = kernel_maker(confine="off")
    ran = await run(kernel, f"open({str(tmp_path / 'anywhere')!r}, 'w').close(); open({str(home / '.netrc')!r})")
    assert ran.executed.status == "ok"
    assert kernel.confinement == "none: confine is off"


@shared_loop
async def test_confined_code_can_be_interrupted(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "while True: pass", timeout=0.5)
    assert ran.executed.status == "timeout"
    assert not ran.executed.state_lost


def test_a_link_to_credentials_does_not_open_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "vault").mkdir(parents=True)
    (home / ".ssh").symlink_to(home / "vault")
    held = confinement_for("workspace", tmp_path, tmp_path / "scratch", [], home)
    assert held.hidden == (home / "vault",)


@pytest.mark.parametrize("abi", range(1, landlock_abi() + 1))
def test_every_version_of_landlock_up_to_this_systems_is_spoken(abi: int, tmp_path: Path) -> None:
    """The rights asked for in an older version are accepted, and they hold."""
    code = (
        "import sys; from nbagent.kernels import launch\n"
        f"launch.confine([{str(tmp_path)!r}], ['/etc/hostname'], {abi})\n"
        f"open({str(tmp_path / 'f')!r}, 'w').close()\n"
        "for path, mode in (('/etc/hosts', 'r+'), ('/etc/hostname', 'r')):\n"
        "    try: open(path, mode)\n"
        "    except PermissionError: print('refused')\n"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout == "refused\nrefused\n", done.stderr
