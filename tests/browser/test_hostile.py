"""Markup of the model, of data and of file names is text: nothing of it runs, and nothing is fetched."""

from __future__ import annotations

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page, expect

from tests.browser.conftest import Start
from tests.browser.lab import Lab, Notebook
from tests.scripted_server import C, F, Gate, ScriptedServer, T, run_code, sse

pytestmark = pytest.mark.browser


def hostile(address: str, number: int) -> str:
    ran = f"window.pwned={number}"
    return (
        f'</pre></textarea></summary><img src=x onerror="{ran}"><script>{ran}</script><svg onload="{ran}"></svg>'
        f'<iframe srcdoc="<script>parent.{ran}</script>"></iframe><img src="{address}/leak/{number}">'
        f'<div style="background:url({address}/leak/css{number})">![x]({address}/leak/md{number}?q=SECRET)'
        f" [x](javascript:{ran}) [more]({address}/leak/link) $\\href{{javascript:{ran}}}{{x}}$"
    )


def test_markup_is_text_live_reloaded_reopened_and_converted(
    start: Start, lab: Lab, server: ScriptedServer
) -> None:
    bad = [hostile(server.root, number) for number in range(9)]
    file = "<img src=x onerror=window.pwned=9>.csv"
    (lab.folder / file).write_text("old")
    code = "\n".join(
        [
            f"# {bad[2]}",
            "import pandas as pd, sys",
            f"print({bad[3]!r})",
            f"print({bad[4]!r}, file=sys.stderr)",
            f"display(pd.DataFrame({{{bad[5]!r}: [{bad[5]!r}]}}))",
            f"markup = {bad[6]!r}",
            "display({'text/html': markup, 'text/plain': markup, 'text/markdown': markup}, raw=True)",
            f"open({file!r}, 'w').close()",
            f"raise ValueError({bad[7]!r})",
        ]
    )
    pieces = [bad[1][i : i + 7] for i in range(0, len(bad[1]), 7)]
    act = run_code(code).items
    thinks = sse(C({"reasoning_content": bad[0]}), *(C({"content": piece}) for piece in pieces), *act)
    held = Gate()
    answers = sse(C({"content": f"Costs $5 and $7. {bad[8]}"}), held, C({}, "stop"))
    unknown = sse(
        C(T(index=0, id="b", type="function", function=F(f"tool{bad[0]}", '{"x": "<b>"}'))), C({}, "tool_calls")
    )
    notebook = start([f"%%agent\n{bad[0]}", "%agent export exported.ipynb"], [thinks, unknown, answers])
    notebook.run(0, wait=False)
    expect(notebook.find(".nba-card")).to_contain_text(file)
    harmless(lab.page, server)
    notebook.find(".nba-approve").click()
    expect(notebook.cell(0)).to_contain_text("Costs $5 and $7.")
    whole(lab.page, server)
    notebook.save()
    notebook.reload()
    held.open()
    expect(notebook.cell(0)).to_contain_text("Costs $5 and $7.", timeout=20_000)
    lab.until(lambda: "text/html" in notebook.outputs(0)[0]["data"])
    whole(lab.page, server)
    notebook.save()
    notebook.run(1)
    notebook.shut_down_kernel()
    notebook.open_without_kernel()
    whole(lab.page, server)
    converted(notebook, lab, server)
    exported = Notebook(lab, "exported.ipynb")
    exported.open_without_kernel()
    lab.page.wait_for_timeout(1000)  # formulas are looked for after the page is there
    whole(lab.page, server)
    converted(exported, lab, server)


def converted(notebook: Notebook, lab: Lab, server: ScriptedServer) -> None:
    """The page that nbconvert makes of a notebook."""
    page = notebook.path.with_suffix(".html")
    page.write_text(HTMLExporter().from_filename(str(notebook.path))[0])
    lab.page.goto(page.as_uri(), wait_until="domcontentloaded")
    whole(lab.page, server)


def whole(page: Page, server: ScriptedServer) -> None:
    """Everything is there to be read, and none of it is more than text."""
    expect(page.locator("body")).to_contain_text('onerror="window.pwned=8"')
    page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
    text = page.evaluate("() => document.body.innerText")
    for number in (0, 1, 2, 3, 4, 7, 8):
        assert f'onerror="window.pwned={number}"' in text, number
        assert f"$\\href{{javascript:window.pwned={number}}}" in text, number
    assert f"{server.root}/leak/md8?q=SECRET" in text
    assert "Costs $5 and $7." in text
    harmless(page, server)


def harmless(page: Page, server: ScriptedServer) -> None:
    """Nothing ran and nothing was asked of the counting server."""
    page.wait_for_timeout(300)  # what would run or load, would have by now
    assert page.evaluate("() => window.pwned") is None
    assert not [request.path for request in server.others if "leak" in request.path]
    frames = [frame for frame in page.frames if frame.parent_frame is not None]
    assert not frames
