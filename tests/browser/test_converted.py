"""A finished run and its export, converted, in Chromium: on a page, on paper and in a Markdown file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter, SlidesExporter
from playwright.sync_api import Page

from tests.browser.lab import Lab
from tests.scripted_server import ScriptedServer
from tests.view.test_converted import exported, finished, hostile, nasty, notebook, payload, rendered

pytestmark = pytest.mark.browser

FORMS = {
    "light": HTMLExporter(),
    "dark": HTMLExporter(theme="dark"),
    "classic": HTMLExporter(template_name="classic"),
    "paper": HTMLExporter(template_name="webpdf"),
    "slides": SlidesExporter(),
}


@pytest.fixture
def page(lab: Lab) -> Iterator[Page]:
    yield lab.page
    lab.page.emulate_media(media="screen")


def pages(cells: nbformat.NotebookNode, folder: Path) -> Iterator[tuple[str, Path]]:
    """Every form as a file that a browser can open."""
    for name, exporter in FORMS.items():
        file = folder / f"{name}.html"
        file.write_text(exporter.from_notebook_node(cells)[0])
        yield name, file
    markdown = MarkdownExporter().from_notebook_node(cells)[0]
    file = folder / "markdown.html"
    file.write_text(f"<meta charset=utf-8><body>{rendered(markdown).source}")
    yield "markdown", file


def test_nothing_of_it_runs_or_is_fetched_in_any_form(page: Page, server: ScriptedServer, tmp_path: Path) -> None:
    text = payload(f"{server.root}/leak")
    for cells in (notebook(hostile(text)), exported(tmp_path, text)):
        for name, file in pages(cells, tmp_path):
            page.goto(file.as_uri(), wait_until="domcontentloaded")
            page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
            page.wait_for_timeout(300)  # what would run or load, would have by now
            if name == "paper":
                assert page.pdf(print_background=True).startswith(b"%PDF")
            assert page.evaluate("() => window.bad") is None, name
            assert not [request.path for request in server.others if "leak" in request.path], name
            words = page.evaluate("() => document.body.textContent")
            for piece in nasty(f"{server.root}/leak")[:6]:
                assert piece in words, (name, piece)


VISIBLE = (
    "() => [...document.querySelectorAll('pre, td, img')].filter(e => e.closest('details'))"
    ".map(e => [e.textContent || e.alt, e.checkVisibility()])"
)
FONTS = "() => [...document.querySelectorAll('details pre')].map(e => getComputedStyle(e).fontFamily)"


def test_on_paper_every_step_is_unfolded_and_on_a_page_the_one_with_the_figure(page: Page, tmp_path: Path) -> None:
    for name, file in pages(notebook(finished()), tmp_path):
        if name in ("markdown", "slides"):  # the former has no style sheet, the latter shows one slide at a time
            continue
        page.emulate_media(media="print" if name == "paper" else "screen")
        page.goto(file.as_uri(), wait_until="domcontentloaded")
        seen = dict(page.evaluate(VISIBLE))
        assert seen["<Figure>"] is True
        assert seen["for i in (1, 2):\n    print(i)\n\nn"] is (name == "paper")
        fonts = page.evaluate(FONTS)
        assert all("monospace" in font for font in fonts)
