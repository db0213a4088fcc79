"""What is shown of an output: text, cells and figures, never its markup."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.view.outputs import WIDGET, block, plain, visible
from tests.view.runs import OUTPUTS, PNG, TEXTS


def rich(**data: Any) -> dict[str, Any]:
    names = {"html": "text/html", "plain": "text/plain", "png": "image/png", "svg": "image/svg+xml"}
    return {"output_type": "display_data", "data": {names[key]: value for key, value in data.items()}}


def test_a_table_is_read_cell_by_cell() -> None:
    html = (
        "<style>td {color: red}</style><table><thead><tr><th></th><th>a</th></tr></thead>"
        "<tbody><tr><th>0</th><td>1 &lt; 2 <script>alert(1)</script></td></tr></tbody></table>"
    )
    shown = block(rich(html=html, plain="   a"))
    assert (shown.kind, shown.heads, shown.rows) == ("table", 1, [["", "a"], ["0", "1 < 2"]])
    assert shown.text == "   a"


@pytest.mark.parametrize(
    "html", ["<b>x</b>", "<table></table>", "<table><tr><td>1</table><table><tr><td>2</table>"]
)
def test_other_markup_is_shown_by_its_plain_form(html: str) -> None:
    shown = block(rich(html=html, plain="Thing()"))
    assert (shown.kind, shown.text) == ("text", "Thing()")


def test_a_figure_is_its_bytes() -> None:
    shown = block(rich(png=[PNG[:20] + "\n", PNG[20:]], plain="<Figure size 640x480 with 1 Axes>"))
    assert (shown.kind, shown.mime, shown.data) == ("image", "image/png", PNG)


@pytest.mark.parametrize("data", ['x" onerror="alert(1)', "http://127.0.0.1/x.png", "", None, 3.5])
def test_what_is_no_image_data_is_no_figure(data: object) -> None:
    assert block(rich(png=data, plain="p")).kind == "text"


def test_vector_graphics_are_named_and_not_taken_in() -> None:
    assert block(rich(svg="<svg onload=alert(1)>")).text == "(image/svg+xml)"


def test_a_widget_of_the_agents_kernel_is_named() -> None:
    shown = block(
        {"output_type": "display_data", "data": {WIDGET: {"model_id": "x"}, "text/plain": "IntSlider()"}}
    )
    assert shown.text.startswith("IntSlider()")
    assert "not shown" in shown.text


def test_an_error_without_traceback_is_its_name_and_value() -> None:
    assert block({"output_type": "error", "ename": "E", "evalue": "v", "traceback": []}).text == "E: v"


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        ("\r 10%\r 20%\r100%|##\n", "100%|##\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\x1b[31mred\x1b[0m \x1b[2K\x1b[1Adone", "red done"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("\x9b2J\x00\x08\x7fx\ty", "2Jx\ty"),
        ("50%\r", "50%"),
    ],
)
def test_text_is_as_a_terminal_would_leave_it(raw: str, left: str) -> None:
    assert plain(raw) == left


def test_nothing_in_code_is_hidden() -> None:
    assert visible("boom()\rprint('hi')\r\nx\n") == "boom()\nprint('hi')\nx\n"
    assert visible("a\x1b[2Jb\u202ec\u200b\td") == "a\\x1b[2Jb\\u202ec\\u200b\td"


@given(OUTPUTS)
def test_any_output_is_shown(output: dict[str, Any]) -> None:
    shown = block(output)
    assert isinstance(shown.text, str)
    assert all(isinstance(cell, str) for row in shown.rows for cell in row)


@given(TEXTS | st.text())
def test_no_text_steers_the_terminal(text: str) -> None:
    steering = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
    assert not steering & set(plain(text))
    assert not steering & set(visible(text))
