"""Text of a model as Markdown: readable, and nothing in it loads or runs in any renderer."""

from __future__ import annotations

from html.parser import HTMLParser

import mistune
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from nbagent.notebook.prose import fenced, inert

ALLOWED_TAGS = set("p br hr h1 h2 h3 h4 h5 h6 ul ol li em strong del code pre blockquote span div".split())  # noqa: SIM905
ALLOWED_TAGS |= {"table", "thead", "tbody", "tr", "th", "td", "a", "input"}
#: Pieces from which an attack, or an honest text, could be made.
PIECES = st.sampled_from(
    [
        *(
            "<script>",
            "<img src=x onerror=y>",
            "![x](http://e/i.png)",
            "[l](http://e/l)",
            "![x][1]",
            "<http://e/a>",
        ),
        *("[1]: http://e/r\n", "<a href=javascript:x>", "<div style='background:url(http://e/c)'>", "<!--", "-->"),
        *(
            "`",
            "``",
            "```",
            "````",
            "~~~",
            "```python\n",
            "```\n",
            "~~~\n",
            "---\n",
            "\n",
            "\n\n",
            "    ",
            "\t",
            " ",
        ),
        *(
            "- ",
            "> ",
            "1. ",
            "# ",
            "|",
            "$",
            "$$",
            "\\",
            "\\[",
            "\\(",
            "&lt;",
            "&",
            "*",
            "_",
            "x",
            "<",
            "]",
            "(",
            "!",
        ),
    ]
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


class Texts(HTMLParser):
    text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(markdown: str) -> dict[str, str]:
    """Render with the libraries of nbconvert and of JupyterLab's and VS Code's family, raw HTML allowed."""
    commonmark = MarkdownIt("commonmark", {"html": True}).enable("table")
    return {
        "nbconvert": str(markdown2html_mistune(markdown)),
        "markdown-it": commonmark.render(markdown),
        "mistune": str(mistune.create_markdown(escape=False, plugins=["table"])(markdown)),
    }


def active(html: str) -> list[str]:
    """List what in the HTML loads or runs something, or hides where it leads."""
    tags = Tags()
    tags.feed(html)
    wrong = []
    for tag, attributes in tags.found:
        if tag not in ALLOWED_TAGS or any(name.startswith("on") for name in attributes):
            wrong.append(tag)
        if "url(" in (attributes.get("style") or "") or attributes.get("src"):
            wrong.append(tag)
    return wrong


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<img src="http://e/h.png?q=2">',
        "Done ![x](http://e/p.png?q=secret)",
        "![x][1]\n\n[1]: http://e/p.png",
        '<div style="background:url(http://e/c)">',
        "- ` \n- `x` <img src=http://e/i> `",
        "` foo\n` <img src=http://e/i> `",
        "```\ncode\n<!-- -->\n```\n<script>",
        "~~~\n<script>\n~~~~\n<script>",
        "> ```\n<script>\n",
        "- ```python\nx\n  ```\n<script>\n```\n<script>",
        "$$\n<img src=http://e/i>\n$$",
        "`a`<img src=http://e/i>`b`",
        "\\<script>\\![x](http://e/i)",
    ],
)
def test_nothing_in_it_loads_or_runs(text: str) -> None:
    for html in rendered(inert(text)).values():
        assert active(html) == []


@given(st.lists(PIECES, max_size=25).map("".join))
def test_no_combination_of_markup_loads_or_runs(text: str) -> None:
    for html in rendered(inert(text)).values():
        assert active(html) == []


def test_addresses_of_images_and_links_stay_visible() -> None:
    text = inert("![x](http://e/p.png) and [more](http://e/l)")
    html = rendered(text)["markdown-it"]
    assert "![x](http://e/p.png) and [more](http://e/l)" in html
    assert "href" not in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        # each alone in its element: pages look for formulas in what Markdown became
        ("5 $ and 7 $", "5 <span>$</span> and 7 <span>$</span>"),
        ("\\(x\\) \\begin{a}", "<span>\\</span>(x<span>\\</span>) <span>\\</span>begin{a}"),
        ("use `df.mean()` now", "<code>df.mean()</code>"),
        ('use `df["a"]` now', '<code>df["a"]</code>'),
        ("**bold** and *more*", "<strong>bold</strong> and <em>more</em>"),
        ("- one\n- two", "<li>one</li>"),
        ("C:\\new\\table", "C:\\new\\table"),
        ("half ` a tick", "half ` a tick"),
    ],
)
def test_ordinary_text_reads_as_it_was_written(text: str, shown: str) -> None:
    html = rendered(inert(text))["markdown-it"].replace("&quot;", '"')
    assert shown in html


def test_code_blocks_keep_every_character() -> None:
    code = 'if a < b & c:\n    print("$x", df["a"], "![x](y)")  # `tick`\n\n~~~'
    for html in rendered(inert(f"Look:\n```python\n{code}\n```\ndone")).values():
        texts = Texts()
        texts.feed(html)
        assert code in texts.text


@given(st.text(alphabet="`~a\n", max_size=40))
def test_code_cannot_leave_its_fence(code: str) -> None:
    html = MarkdownIt("commonmark").render(fenced(code, "python") + "\n\nafter")
    assert html.endswith("</code></pre>\n<p>after</p>\n")


def test_an_open_fence_ends_with_the_text() -> None:
    assert inert("```python\nx = 1") == "```python\nx = 1\n```"


def test_a_fences_word_is_a_word() -> None:
    assert fenced("x", "python onload=<script>").startswith("```python\n")
