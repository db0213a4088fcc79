"""The part of Markdown that is taken: what it looks like, and that nothing else ever comes of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.view import markdown
from tests.view.markup import Markup
from tests.view.runs import TEXTS


def block(code: str, language: str) -> str:
    return f'<pre class="{markdown.text(language)}">{markdown.text(code)}</pre>'


def read(text: str) -> Markup:
    page = Markup(markdown.html(text, code=block))
    page.assert_harmless()
    return page


def shape(text: str) -> str:
    """The HTML without its attributes."""
    return re.sub(r"<(\w+)[^>]*>", r"<\1>", markdown.html(text, code=block))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<div>one<br>two</div><div>three</div>"),
        ("## A **b**", "<div><b>A <b>b</b></b></div>"),
        ("#1 is no heading", "<div>#1 is no heading</div>"),
        ("**`a` is** `**b**`", "<div><b><code>a</code> is</b> <code>**b**</code></div>"),
        ("2 ** 3 ** 4 and `", "<div>2 ** 3 ** 4 and &#96;</div>"),
        ("- a\n* b", "<ul><li>a</li><li>b</li></ul>"),
        ("1. a\n\n2. b", "<ol><li>a</li><li>b</li></ol>"),
        ("- a\n  - b\n    1. c\n- d", "<ul><li>a<ul><li>b<ol><li>c</li></ol></li></ul></li><li>d</li></ul>"),
        ("- a\n1. b", "<ul><li>a</li></ul><ol><li>b</li></ol>"),
        ("- a\n  more\n\n  still\n\nend", "<ul><li>a<br>more<br>still</li></ul><div>end</div>"),
        ("- a\n  ```\n  x\n    y\n  ```\n- b", "<ul><li>a<pre>x&#10;  y</pre></li><li>b</li></ul>"),
        ("a\n```py\nx = 1\n\n```\nb", "<div>a</div><pre>x = 1&#10;</pre><div>b</div>"),
        ("````\n```\n````", "<pre>&#96;&#96;&#96;</pre>"),
        ("~~~\nnever closed", "<pre>never closed</pre>"),
        ("``` is no fence ` here", "<div>&#96;&#96;<code> is no fence </code> here</div>"),
    ],
)
def test_blocks_and_lines(text: str, html: str) -> None:
    assert shape(text) == html


def test_a_numbered_list_goes_on_where_it_was_left() -> None:
    page = read("1. a\n\ntext\n\n2. b")
    assert [attributes.get("start") for tag, attributes in page.tags if tag == "ol"] == [None, "2"]


def test_a_table_keeps_its_cells_and_their_sides() -> None:
    page = read("Sizes:\n| a | **b** | c |\n|:--|--:|:-:|\n| `x|y` | 2 |\n| 1 \\| 2 | 3 | 4 | 5 |\nend")
    cells = [(tag, attributes["style"]) for tag, attributes in page.tags if tag in ("th", "td")]
    assert cells[:3] == [("th", f"text-align: {side};") for side in ("left", "right", "center")]
    assert page.names().count("tr") == 3
    assert len(cells) == 9
    assert "1 | 2" in page.text
    assert page.text.startswith("Sizes:")
    assert page.text.endswith("end")


@pytest.mark.parametrize("text", ["a | b", "a | b\n---", "a | b\nc | d", "| a |\n|---|---|", "---\n\n| - |"])
def test_what_only_looks_like_a_table_is_text(text: str) -> None:
    assert "table" not in read(text).names()


def test_lists_in_lists_without_end_are_cut_off() -> None:
    page = read("\n".join(f"{'  ' * depth}- {depth}" for depth in range(500)))
    assert page.names().count("ul") == markdown.DEEPEST
    assert page.names().count("li") == 500


@pytest.mark.parametrize(
    "payload",
    [
        "<script>x()</script>",
        '<img src=x onerror="x()">',
        "![x](http://127.0.0.1:9/p.png?q=SECRET)",
        "[x](javascript:x())",
        "[x]: http://127.0.0.1:9/",
        "<http://127.0.0.1:9/>",
        "&lt;script&gt;",
        "</pre></td></li></div>",
        '" style="background: url(http://127.0.0.1:9/)',
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "# {}", "- {}", "1. {}", "**{}**", "`{}`", "```{}\n{}\n```", "| {} |\n|-|\n| {} |", "> {}"]
)
def test_markup_and_addresses_are_text_wherever_they_stand(payload: str, around: str) -> None:
    page = read(around.format(*[payload] * around.count("{}")))
    assert payload in page.text
    assert "img" not in page.names()
    assert "a" not in page.names()


_PIECES = [*"#-*+~`|:!\\ \t\n[](<>1.a", "```", "~~~", "**", "\n\n", "| - |", "  - ", "1. "]
MARKS = st.lists(st.sampled_from(_PIECES), max_size=60).map("".join)


@given(MARKS | TEXTS | st.lists(MARKS | TEXTS, max_size=6).map("\n".join))
def test_any_text_gives_harmless_html_that_a_markdown_file_may_hold(text: str) -> None:
    html = markdown.html(text, code=block)
    Markup(html).assert_harmless()
    html.encode()
    assert not set(html) & {"\n", "\r", "[", "`"}


@given(MARKS)
def test_no_word_is_lost(text: str) -> None:
    page = read(text)
    assert page.text.count("a") == text.count("a") or "```" in text or "~~~" in text or "|" in text
