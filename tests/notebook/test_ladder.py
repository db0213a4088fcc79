"""Real sessions over a real kernel, exported by the smallest notebook that verifies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbagent import Agent
from nbagent.errors import FileExistsRefused, UsageError, VerificationFailed
from nbagent.notebook.export import ExportReport
from nbagent.notebook.request import Exported, ExportRequest, export_session
from tests.scripted_server import ScriptedServer, final, run_code

PROVEN = ExportRequest(distill=True, verify=True)


class Bench:
    """One agent with one kernel for all tests here; each test is a run of its own session folder."""

    def __init__(self, folder: Path, server: ScriptedServer, agent: Agent) -> None:
        self.folder, self.server, self.agent = folder, server, agent

    def run(self, cells: Sequence[str], answer: str) -> list[Any]:
        """Run cells and give the events of this run, as a session of their own."""
        assert self.agent.session is None or not self.agent.session.running
        self.server.responses += [*map(run_code, cells), final(answer)]
        before = len(self.agent.session.events) if self.agent.session is not None else 0
        result = self.agent.run_sync("What comes out?")
        assert result.reason == "answered", result.message
        assert self.agent.session is not None
        events = self.agent.session.events
        return list(events) if not before else [events[0], *events[before:]]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("work")
    with (
        ScriptedServer() as server,
        Agent(model="stub", base_url=server.base_url, folder=str(folder), approve="off") as agent,
    ):
        yield Bench(folder, server, agent)


def climbed(events: list[Any], path: Path, request: ExportRequest = PROVEN) -> Exported:
    return export_session(events, path, request)


def code(report: ExportReport) -> list[str]:
    notebook = nbformat.read(report.path, as_version=4)
    nbformat.validate(notebook)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_distilled_notebook_is_written_where_it_verifies(bench: Bench, tmp_path: Path) -> None:
    (bench.folder / "shop.csv").write_text("price\n2\n4\n")
    cells = [
        "import csv\nrows = list(csv.DictReader(open('shop.csv')))",
        "rows[:1]",
        "rows[0].price",
        "prices = [int(row['price']) for row in rows]\nseen = []",
        "seen.append(prices)\nprices.append(6)",
        "doubled = [2 * price for price in prices]",
        "print(sum(prices) / len(prices))",
    ]
    exported = climbed(bench.run(cells, "The mean is 4.0."), tmp_path / "a.ipynb")
    assert code(exported.report)[1:] == [
        "import csv",
        "rows = list(csv.DictReader(open(shop_csv)))",
        cells[3],
        cells[4],
        cells[6],
    ]
    assert exported.lines[0].startswith("distilled: Verified: 6 code cells gave the same in a clean kernel")
    assert "  left out: run 1, step 2: it only looks: nothing that is kept depends on it" in exported.lines
    verified = nbformat.read(tmp_path / "a.ipynb", as_version=4).metadata.nbagent.verified
    assert verified.ok
    assert [tried.rung for tried in verified.tried] == ["distilled"]


def test_the_clean_notebook_is_written_where_distilling_took_too_much(bench: Bench, tmp_path: Path) -> None:
    """What a library keeps for itself is in no name: the reader of cells cannot know, but the clean run does."""
    (bench.folder / "hidden.py").write_text(
        "import itertools, json\ncount = itertools.count(1)\njson.step = lambda: next(count)\n"
    )
    cells = [
        "import hidden, json",
        "first = json.step()",
        "nothing.there",
        "print(json.step())",
    ]
    exported = climbed(bench.run(cells, "It is 2."), tmp_path / "a.ipynb")
    assert exported.climb is not None
    assert [(rung, verdict.ok) for rung, verdict in exported.climb.tried] == [
        ("distilled", False),
        ("clean", True),
    ]
    assert exported.lines[0].startswith("distilled: Not verified: cell 3 gave '1' in place of '2'")
    assert code(exported.report) == [cells[0], cells[1], cells[3]]


def test_where_none_verifies_the_full_one_is_written_and_it_is_said(bench: Bench, tmp_path: Path) -> None:
    cells = ["import random\nx = random.random()", "nope", "print(x)", "import time\nprint(time.time_ns())"]
    exported = climbed(bench.run(cells, "Hard to say."), tmp_path / "a.ipynb")
    assert exported.climb is not None
    assert [rung for rung, _ in exported.climb.tried] == ["distilled", "clean", "full"]
    assert exported.report.rung == "full"
    with pytest.raises(VerificationFailed, match="random numbers are drawn without a seed") as raised:
        exported.check()
    assert raised.value.exit_code == 4
    notebook = nbformat.read(tmp_path / "a.ipynb", as_version=4)
    assert any("nope" in cell.source for cell in notebook.cells)
    assert notebook.cells[-1].source.startswith("*Not verified*: cell ")
    assert not notebook.metadata.nbagent.verified.ok


@pytest.mark.long
def test_files_that_the_session_made_are_made_again(bench: Bench, tmp_path: Path) -> None:
    cells = [
        "from pathlib import Path\nPath('out.txt').write_text('12');",
        "junk = 5",
        "print(Path('out.txt').read_text())",
    ]
    exported = climbed(bench.run(cells, "It is 12."), tmp_path / "a.ipynb")
    assert exported.climb is not None
    assert exported.climb.ok
    assert code(exported.report) == ["from pathlib import Path", "Path('out.txt').write_text('12');", cells[2]]


@pytest.mark.long
def test_it_starts_from_the_files_as_they_were_before_the_session_changed_them(
    bench: Bench, tmp_path: Path
) -> None:
    (bench.folder / "n.txt").write_text("1")
    (bench.folder.parent / "beside.txt").write_text("5")
    cells = [
        "text = open('n.txt').read() + open('../beside.txt').read()",
        "print(int(text))\nwith open('n.txt', 'w') as file:\n    file.write('2')",
        "junk = 1",
    ]
    events = bench.run(cells, "It is 15.")
    assert bench.agent.session is not None
    copies = bench.agent.session.log.folder
    exported = export_session(events, tmp_path / "a.ipynb", PROVEN, session_folder=copies)
    assert exported.lines[0].startswith("distilled: Verified"), exported.lines
    assert (bench.folder / "n.txt").read_text() == "2"
    assert code(exported.report)[0].splitlines()[1:] == ["n_txt = 'n.txt'", "beside_txt = '../beside.txt'"]
    assert "open(beside_txt)" in code(exported.report)[1]


def test_an_existing_file_is_refused_before_anything_is_executed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("mine")
    with pytest.raises(FileExistsRefused):
        climbed(bench.run(["print(1)"], "1"), tmp_path / "a.ipynb")
    with pytest.raises(UsageError, match="exclude each other"):
        climbed([], tmp_path / "b.ipynb", ExportRequest(clean=True, distill=True))
    assert (tmp_path / "a.ipynb").read_text() == "mine"
