"""The export of a real session: a real kernel, a real HTTP stream, read back from the store on disk."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import nbformat

from nbagent.notebook.export import export_notebook
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.redaction import Redactor
from nbagent.session import Session
from nbagent.settings import resolve
from nbagent.stores.files import FileStore, default_home
from tests.notebook.clean_kernel import execute_clean
from tests.scripted_server import ScriptedServer, final, run_code

KEY = "sk-test-ABCDEFGHIJKLMNOPQRSTUVWX"


class Unseen:
    """A view that nobody looks at."""

    def show(self, event: object) -> None:
        pass

    async def ask(self, request: ApprovalRequest) -> Approval:
        return Approval(approved=False, by="nobody")

    def close(self) -> None:
        pass


async def test_what_an_agent_did_runs_again_in_a_clean_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "shop.csv").write_text("price\n2\n4\n")
    environment = {**os.environ, "MY_API_KEY": KEY}
    responses = [
        run_code("import csv\nrows = list(csv.DictReader(open('shop.csv')))\nrows[0].price"),
        run_code("prices = [int(row['price']) for row in rows]"),
        run_code(f"print('{KEY}'[:9], end=''); print('{KEY}'[9:])"),
        run_code("import shutil; shutil.rmtree('/nowhere/at/all')"),
        run_code("!echo from the shell"),
        run_code("mean = sum(prices) / len(prices)\nmean"),
        final("The mean is 3.0."),
    ]
    store = FileStore(default_home(os.environ))
    with ScriptedServer(responses) as server:
        options = {"model": "stub", "base_url": server.base_url, "folder": str(folder)}
        session = Session(resolve(options, {}), store=store, environment=environment)
        finished = await session.run("What is the mean price?", view=Unseen())
        await session.close()
    assert finished.reason == "answered"

    path = tmp_path / "report.ipynb"
    report = export_notebook(store.read(session.id), path, redactor=Redactor.from_environment(environment))
    assert (report.code_cells, report.left_out, report.missing) == (5, 1, ())
    for file in (path, *session.log.folder.rglob("*.json*")):
        assert KEY not in file.read_text()
        assert KEY[9:] not in file.read_text()
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells[0].metadata.tags == ["parameters"]
    assert cells[0].source.splitlines()[1:] == ["shop_csv = 'shop.csv'"]
    assert "open(shop_csv)" in cells[1].source
    assert cells[1].metadata.tags == ["raises-exception"]
    assert str(folder) not in json.dumps(cells[1].outputs)
    (data,) = notebook.metadata.nbagent.environment.data_files
    content = (folder / "shop.csv").read_bytes()
    assert data == {"path": "shop.csv", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    printed = [text for _, text in execute_clean(path, folder=folder)]
    assert "AttributeError" in printed[1]
    assert [text.strip() for text in printed[4:]] == ["from the shell", "3.0"]
