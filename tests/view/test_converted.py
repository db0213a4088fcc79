"""What nbconvert makes of a finished run and of its export: readable in each form, and nothing is active."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import bleach
import nbformat
import pytest
from markdown_it import MarkdownIt
from nbconvert import HTMLExporter, MarkdownExporter, PythonExporter, RSTExporter

from nbagent.notebook.export import export_notebook
from nbagent.view import static
from nbagent.view.trace import Trace
from tests.notebook.logs import Log
from tests.view.runs import PNG, acted, answered, said, shown, started, stepped, stream


def nasty(address: str) -> list[str]:
    """What would fetch, run or read a file, each in a way that some converter knows."""
    return [
        f"![x]({address}/p.png?q=SECRET)",
        f'<img src="{address}/h.png">',
        "<script>window.bad = 1</script>",
        '<img src="data:image/png;base64,x" onerror="window.bad = 2">',
        "[x](javascript:window.bad=3)",
        f"@import url({address}/c.css)",
        "\\input{/etc/passwd}",
        "++++",
    ]


def payload(address: str) -> str:
    """Each of it after a blank line, and after each other end of a line that a reader may know."""
    ends = ("\n\n", "\r", "\x0b", "\x0c", "\u2028", "\x85")
    return "".join(f"{piece}{end}{piece}" for piece in nasty(address) for end in ends)


NOWHERE = "http://127.0.0.1:9"
PAYLOAD = payload(NOWHERE)
INJECTED = "harmless\rimport os; os.boom()\x0cos.boom()\n\u2028os.boom()\nos.boom()"
#: What GitHub lets through of HTML: no styles, classes or data.
GITHUB = {
    *("b", "i", "strong", "em", "a", "pre", "code", "img", "div", "p", "br", "hr", "span", "summary", "details"),
    *("ol", "ul", "li", "table", "thead", "tbody", "th", "td", "tr"),
}


def finished() -> Trace:
    """An answered run with a table and a figure."""
    table = "<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>"
    return Trace(
        [
            started(),
            *said("I look at `n`:\n\n- first\n- second"),
            *acted("for i in (1, 2):\n    print(i)\n\nn", stream("1\n2\n"), shown({"text/html": table})),
            stepped(),
            *said("I plot.", step=2),
            *acted("plot()", shown({"image/png": PNG, "text/plain": "<Figure>"}, step=2), step=2),
            *said("Mean: 2.\nMedian: 1.", step=3),
            answered("Mean: 2.\nMedian: 1."),
        ]
    )


def notebook(trace: Trace) -> nbformat.NotebookNode:
    """A notebook with the trace as its cell leaves it."""
    data = {"text/html": static.html(trace), "text/plain": static.text(trace)}
    cell = nbformat.v4.new_code_cell("%%agent\ngo", outputs=[nbformat.v4.new_output("display_data", data)])
    return nbformat.v4.new_notebook(cells=[cell])


def hostile(text: str = PAYLOAD) -> Trace:
    """A run in which this text stands wherever a model, a tool or data can bring it."""
    return Trace(
        [
            started(text, label=text),
            *said(text),
            *acted(text, stream(text), shown({"text/html": text, "text/plain": text})),
            answered(f"| {text} |\n|---|\n\n- {text}\n\n```\n{text}\n```\n{text}"),
        ]
    )


def exported(folder: Path, text: str) -> nbformat.NotebookNode:
    """The export of a session in which this text stands wherever a model can bring it."""
    log = Log().task(text).thought(text).ran("plot()").not_run(text, "denied", text).answer(text)
    return nbformat.read(export_notebook(log.events, folder / "out.ipynb").path, as_version=4)


class Active(HTMLParser):
    """Collects what a page would run, fetch or offer to click, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.source = page
        self.found: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inward = {name: value or "" for name, value in attrs if not (value or "").startswith(("data:image/", "#"))}
        if tag in ("script", "iframe", "object", "svg", "form") or "href" in inward or "src" in inward:
            self.found.append(self.get_starttag_text() or tag)
        self.found += [name for name in inward if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(markdown: str) -> Active:
    """A Markdown file as a renderer shows it that lets HTML through."""
    return Active(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(markdown))


def test_a_markdown_file_with_the_trace_is_readable_and_inert() -> None:
    page = rendered(MarkdownExporter().from_notebook_node(notebook(hostile()))[0])
    assert page.found == []
    for piece in nasty(NOWHERE):
        assert page.text.count(piece) >= 10
    assert "    print(i)\n\nn" in rendered(MarkdownExporter().from_notebook_node(notebook(finished()))[0]).text


@pytest.mark.parametrize("exporter", [MarkdownExporter, HTMLExporter])
def test_an_export_that_is_converted_is_inert(exporter: type, tmp_path: Path) -> None:
    page, _ = exporter().from_notebook_node(exported(tmp_path, PAYLOAD))
    shown = Active(page[page.index("<body") :]) if exporter is HTMLExporter else rendered(page)
    active = [one for one in shown.found if "127.0.0.1" in one or "bad" in one]
    assert [one for one in active if not one.startswith('<a href="http')] == []  # an address shows where it leads
    for piece in nasty(NOWHERE)[:6]:
        assert shown.text.count(piece) >= 4, piece


def test_a_script_runs_the_code_cells_and_nothing_that_was_said(tmp_path: Path) -> None:
    script, _ = PythonExporter().from_notebook_node(exported(tmp_path, INJECTED))
    assert "os.boom()" in script
    assert [ast.unparse(statement) for statement in ast.parse(script).body] == ["plot()"]
    calls = re.findall(r"^get_ipython\(\).*", PythonExporter().from_notebook_node(notebook(hostile()))[0], re.M)
    assert len(calls) == 1


def test_a_reader_of_other_markup_gets_the_trace_as_one_raw_line() -> None:
    text, _ = RSTExporter().from_notebook_node(notebook(hostile()))
    after = text[text.index(".. raw:: html") :].strip().split("\n")
    assert [line for line in after[1:] if line.strip() and not line.startswith("    <div class=")] == []


def test_a_page_that_strips_styles_and_data_still_reads_well() -> None:
    trace = finished()
    sheet = static.html(trace).index("<style>")
    page = static.html(trace)[:sheet] + "</div>"
    cleaned = bleach.clean(
        page, tags=GITHUB, attributes={"*": ["open", "alt", "start"], "img": ["src"]}, strip=True
    )
    shown = Active(cleaned)
    assert shown.text.index("Mean: 2.") < shown.text.index("I look at")
    for tag in ("Mean: 2.<br>Median", "<li>first</li>", "<summary>", "<th>n</th>", "<details open", "alt="):
        assert tag in cleaned
    assert "for i in (1, 2):\n    print(i)\n\nn" in shown.text


def test_its_text_is_made_of_characters_that_every_font_has() -> None:
    static.text(finished()).encode("cp1252")
    assert static.text(finished()).splitlines()[1] == "Answer: Mean: 2."
