"""Ways out of the confinement, each of which fails and leaves what is outside as it was."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nbagent.errors import KernelNotStarted
from nbagent.kernels.launch import landlock_abi
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import make_kernel, run

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(landlock_abi() < 6, reason="this system has no Landlock, or an old one"),
]

SECRET, PRECIOUS = "SECRET-of-the-user", "precious"
SIGURG = 23  # harmless, should it arrive


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kernel_kind: type[ProcessKernel]) -> Path:
    """A home folder with credentials, and the user's own files beside the workspace; for each kind of kernel."""
    place = tmp_path_factory.mktemp("place")
    (place / "home" / ".ssh").mkdir(parents=True)
    (place / "home" / ".ssh" / "key").write_text(SECRET)
    runtime = place / "home" / ".local" / "share" / "jupyter" / "runtime"
    runtime.mkdir(parents=True)
    (runtime / "kernel-1.json").write_text(SECRET)
    (place / "outside").mkdir()
    (place / "outside" / "mine").write_text(PRECIOUS)
    return place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def confined(place: Path, kernel_kind: type[ProcessKernel]) -> AsyncIterator[ProcessKernel]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(place / "home"))
        patched.delenv("PYTEST_CURRENT_TEST")  # with it, ipykernel does not read what programs print
        kernel = make_kernel(place, kernel_kind)
        await kernel.start()
    yield kernel
    await kernel.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(place: Path, kernel_kind: type[ProcessKernel]) -> AsyncIterator[ProcessKernel]:
    kernel = make_kernel(place, kernel_kind, confine="strict", max_memory=2)
    await kernel.start()
    yield kernel
    await kernel.close()


LIBC = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
FAILED = "\nif r < 0: raise OSError(ctypes.get_errno(), 'refused')"

ESCAPES = {
    "write through a symbolic link": "import os; os.symlink(mine, 'way'); open('way', 'w')",
    "write through a link to the folder": "import os; os.symlink(outside, 'folder'); open('folder/new', 'w')",
    "hard link, then write": "import os; os.link(mine, 'mine2'); open('mine2', 'w')",
    "hard link to credentials": "import os; os.link(key, 'key2'); print(open('key2').read())",
    "hard link of an open file": "import os; f = os.open(mine, os.O_RDONLY)\n"
    "os.link(f'/proc/self/fd/{f}', 'mine3', follow_symlinks=True); open('mine3', 'w')",
    "rename out of its place": "import os; os.rename(mine, 'taken')",
    "rename over it": "import os; open('x', 'w').close(); os.rename('x', mine)",
    "make, by mkdir": "import os; os.mkdir(outside + '/new')",
    "make, by mknod": "import os; os.mkfifo(outside + '/new')",
    "delete": "import os; os.remove(mine)",
    "truncate": "import os; os.truncate(mine, 0)",
    "a shell's redirection": "import subprocess; subprocess.run(['sh', '-c', f'echo x > {mine}'], check=True)",
    "another interpreter": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-I', '-c', f'open({mine!r}, \"w\")'], check=True)",
    "a process of multiprocessing": "import os, multiprocessing as m\n"
    "with m.get_context('fork').Pool(1) as p: p.apply(os.truncate, (mine, 0))",
    "a daemon that outlives its parent": "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
    "    try: open(mine, 'w')\n    finally: os._exit(0)\nos.wait(); raise PermissionError('see the file')",
    "credentials by cat": "import subprocess; print(subprocess.check_output(['cat', key], text=True))",
    "credentials through a link": "import os; os.symlink(os.path.dirname(key), 'dot')\n"
    "print(open('dot/key').read())",
    "credentials through /proc": "print(open('/proc/self/root' + key).read())",
    "credentials through a folder's descriptor": "import os; d = os.open(os.path.dirname(key), os.O_RDONLY)\n"
    "print(os.read(os.open('key', os.O_RDONLY, dir_fd=d), 99))",
    "the host's environment": "print(open(f'/proc/{host}/environ', 'rb').read())",
    "the host's memory": "open(f'/proc/{host}/mem', 'r+b')",
    "tracing the host": LIBC + "r = libc.ptrace(16, host, 0, 0)" + FAILED,
    "a signal to the host": f"import os; os.kill(host, {SIGURG})",
    "a mount over it": LIBC + "r = libc.unshare(0x10000000 | 0x00020000)\n"
    "r = libc.mount(os.getcwd().encode(), outside.encode(), None, 4096, None)" + FAILED,
    "another root": "import os\nif os.fork() == 0:\n    try:\n        os.chroot('/'); open(mine, 'w')\n"
    "    finally: os._exit(0)\nos.wait(); raise PermissionError('see the file')",
    "a disk": "import glob; open((glob.glob('/dev/vd*') + glob.glob('/dev/sd*') + ['/dev/mem'])[0], 'r+b')",
    "the key of the user's own kernel": "print(open(runtime + '/kernel-1.json').read())",
    "a socket of the host's without a file": "import socket\n"
    "s = socket.socket(socket.AF_UNIX); s.connect(bytes([0]) + b'nbagent-test-%d' % host)",
    "the host's descriptors": "import os; print(os.open(f'/proc/{host}/fd/0', os.O_RDONLY))",
    "the host's root": "print(open(f'/proc/{host}/root' + key).read())",
    "a program without a file": LIBC + "f = os.memfd_create('p')\n"
    "os.write(f, b'#!/bin/sh\\necho x > ' + mine.encode())\n"
    "import subprocess; subprocess.run([f'/proc/self/fd/{f}'], pass_fds=[f], check=True)",
}  # fmt: skip


#: Their own code hides why they failed, or the system itself forbids it.
SAYS_NOTHING = {"credentials through a folder's descriptor"}


@pytest.mark.parametrize("way", ESCAPES)
async def test_a_way_out_fails_and_changes_nothing(confined: ProcessKernel, place: Path, way: str) -> None:
    names = {"mine": place / "outside" / "mine", "outside": place / "outside", "key": place / "home/.ssh/key"}
    names["runtime"] = place / "home/.local/share/jupyter/runtime"
    given = "; ".join(f"{name} = {str(path)!r}" for name, path in names.items())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(b"\0nbagent-test-%d" % os.getpid())
        listening.listen()
        ran = await run(confined, f"{given}; host = {os.getpid()}\n{ESCAPES[way]}")
    assert ran.executed.status == "error", ran.text()
    if way not in SAYS_NOTHING:
        told = ran.executed.error
        assert re.search(r"blocked by confinement: .*(; allow with --|holds credentials)|; allow with --", told), (
            told
        )
    assert SECRET not in ran.text() + ran.executed.error
    assert (place / "outside" / "mine").read_text() == PRECIOUS
    assert [path.name for path in (place / "outside").iterdir()] == ["mine"]
    assert (place / "home" / ".ssh" / "key").read_text() == SECRET


async def test_links_that_code_left_in_scratch_do_not_lead_the_host_out(
    place: Path, kernel_kind: type[ProcessKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the host itself writes there, with all its rights, when a kernel or a program starts again."""
    fonts = place / "home" / ".cache" / "matplotlib" / "fontlist-v1.json"
    fonts.parent.mkdir(parents=True)
    fonts.write_text("{}")
    monkeypatch.setenv("HOME", str(place / "home"))
    kernel = make_kernel(place, kernel_kind)
    mine, outside = place / "outside" / "mine", place / "outside"
    code = (
        "import os, shutil, pathlib\n"
        "def put(link, target):\n"
        "    shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True); link.symlink_to(target)\n"
        "scratch = pathlib.Path(os.environ['XDG_CACHE_HOME']).parent\n"
        f"put(scratch / 'cache' / 'matplotlib' / 'fontlist-v1.json', {str(mine)!r})\n"
        f"put(scratch / 'kernel.log', {str(mine)!r})\n"
        f"put(scratch / 'ipython', {str(outside)!r})"
    )
    try:
        assert (await run(kernel, code)).executed.status == "ok"
        await kernel.restart()
        assert (await run(kernel, code.replace("'fontlist-v1.json'", "''"))).executed.status == "ok"
        async for _ in kernel.run_program(["true"], timeout=30):
            pass
        await kernel.restart()
    finally:
        await kernel.close()
    assert mine.read_text() == PRECIOUS
    assert [path.name for path in outside.iterdir()] == ["mine"]


async def test_modules_that_code_left_in_the_workspace_are_not_loaded_before_the_next_process_is_held(
    place: Path, kernel_kind: type[ProcessKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = place / "work"
    monkeypatch.setenv("PYTHONPATH", str(work))  # as many have it, or as "."
    kernel = make_kernel(place, kernel_kind)
    trap = f"try: open({str(place / 'outside' / 'new')!r}, 'w')\nexcept OSError: pass\n"
    try:
        await run(kernel, f"for n in ('sitecustomize', 'json', 'ctypes'): open(n + '.py', 'w').write({trap!r})")
        async for _ in kernel.run_program(["true"], timeout=30):
            pass
        with contextlib.suppress(KernelNotStarted):  # it may well be broken, as any interpreter there is now
            await kernel.restart()
    finally:
        await kernel.close()
        for name in ("sitecustomize", "json", "ctypes"):
            (work / f"{name}.py").unlink()
    assert not (place / "outside" / "new").exists()


async def test_no_descriptor_of_the_hosts_is_handed_down(place: Path, kernel_kind: type[ProcessKernel]) -> None:
    with (place / "outside" / "mine").open("r+") as held:
        os.set_inheritable(held.fileno(), True)
        kernel = make_kernel(place, kernel_kind)
        await kernel.start()
        try:
            code = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in range(3, 200)"
            code += " if os.path.exists(f'/proc/self/fd/{n}')])"
            assert "outside" not in (await run(kernel, code)).text()
        finally:
            await kernel.close()


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.socket(socket.AF_INET6)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "import socket; socket.socket(17, socket.SOCK_RAW)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "import socket; socket.getaddrinfo('example.org', 80)",
    ],
)
async def test_strict_has_no_network_and_says_how_to_have_it(strict: ProcessKernel, code: str) -> None:
    ran = await run(strict, code)
    assert ran.executed.status == "error"
    assert ran.executed.error.endswith("the network is cut (confine=strict); allow with --confine workspace")


async def test_strict_has_no_network_in_programs_either_and_sockets_within_the_machine_work(
    strict: ProcessKernel,
) -> None:
    code = (
        "import subprocess, sys, socket, multiprocessing as m\n"
        "code = 'import socket\\ntry: socket.socket()\\nexcept OSError as e: print(e.errno)'\n"
        "print(subprocess.check_output([sys.executable, '-c', code], text=True).strip())\n"
        "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
        "with m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
    )
    assert (await run(strict, code)).text() == "101\nb'x'\n[1, 2]\n"


async def test_memory_is_limited_and_the_error_says_how_to_have_more(strict: ProcessKernel) -> None:
    ran = await run(strict, "big = bytearray(3_000_000_000)")
    assert ran.executed.status == "error"
    assert ran.executed.error.endswith("2 GB of memory here; allow more with --max-memory GB")
    assert (await run(strict, "print(len(bytearray(10_000_000)))")).text() == "10000000\n"


async def test_a_refused_signal_says_what_it_may_be(confined: ProcessKernel) -> None:
    ran = await run(confined, f"import os; os.kill({os.getpid()}, {SIGURG})")
    assert ran.executed.error.endswith("allow with --confine off")
