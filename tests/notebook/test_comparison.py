"""What may differ between two executions of one cell, and what may not."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import pytest

from nbagent.notebook.comparison import difference


def printed(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data: Any) -> dict[str, Any]:
    names = {"plain": "text/plain", "html": "text/html", "png": "image/png", "svg": "image/svg+xml"}
    return {
        "output_type": "display_data",
        "data": {names[key]: value for key, value in data.items()},
        "metadata": {},
    }


def raised(name: str, value: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": [name]}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("<A object at 0x7f3a5c1d2e80>", "<A object at 0x7fffffff0010>"),
        ("took 1.23 s", "took 45 ms"),
        ("CPU times: user 3.1 ms, sys: 1 ms", "CPU times: user 1.1 s, sys: 20 µs"),
        (
            "CPU times: user 5 µs, sys: 1e+03 ns, total: 6 µs\nWall time: 1min 2s",
            "CPU times: total: 0 ns\nWall time: 3 s",
        ),
        (
            "1.2 µs ± 3 ns per loop (mean ± std. dev. of 7 runs, 10,000 loops each)",
            "3 ms ± 1 µs per loop (a, 10 b)",
        ),
        ("at 2026-11-30 21:45:12.123", "at 2026-12-01T08:00:00Z"),
        ("{'b', 'a'}", "{'a', 'b'}"),
        ("a      b\n1      2", "a  b\n1  2"),
        ("0.30000000000000004", "0.3"),
        ("mean 1234.5678901234", "mean 1234.5678901235"),
        ("/tmp/abc/x.csv", "/tmp/zz9/x.csv"),
        ("File ipykernel_123/45.py", "File ipykernel_9/45.py"),
        ("pid 123", "pid 4567"),
        ("x\n\n", "x\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        (f"<DisplayHandle display_id={'a' * 32}>", f"<DisplayHandle display_id={'b' * 32}>"),
    ],
)
def test_these_may_differ(before: str, now: str) -> None:
    assert difference([printed(before)], [printed(now)]) == ""
    assert difference([shown(plain=before)], [shown(plain=[now])]) == ""


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("2", "3", "gave '3' in place of '2'"),
        ("mean 1.25", "mean 1.26", "gave 'mean 1.26' in place of 'mean 1.25'"),
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "gave \"{'b': 2, 'a': 1}\" in place of \"{'a': 1, 'b': 2}\""),
        ("[1, 2]", "[2, 1]", "gave '[2, 1]' in place of '[1, 2]'"),
        ("{1, 2}", "{1, 3}", "gave '{1, 3}' in place of '{1, 2}'"),
        ("a\nb", "a", "gave 1 line in place of 2"),
        ("2024-01-05", "2024-01-06", "gave '2024-01-06' in place of '2024-01-05'"),
        ("10 rows", "11 rows", "gave '11 rows' in place of '10 rows'"),
    ],
)
def test_these_may_not(before: str, now: str, said: str) -> None:
    assert difference([printed(before)], [printed(now)]) == said
    assert difference([shown(plain=before)], [shown(plain=now)]) == said


def test_what_is_missing_or_new_is_said_and_stderr_does_not_count() -> None:
    assert difference([printed("a")], []) == "gave 0 printed texts in place of 1"
    assert difference([], [shown(plain="1")]) == "gave 1 result in place of 0"
    assert difference([raised("ValueError", "no")], []) == "gave 0 errors in place of 1"
    assert "KeyError: 'x'" in difference([raised("ValueError", "no")], [raised("KeyError", "'x'")])
    assert difference([printed("50%", "stderr")], [printed("a warning", "stderr"), printed("99%", "stderr")]) == ""
    assert difference([printed("a\n"), printed("b\n")], [printed("a\nb\n")]) == ""


def test_html_without_text_is_compared_by_its_words() -> None:
    before = "<style>#T_abc12 {color: red}</style><table id='T_abc12'><tr><td>1</td></tr></table>"
    assert difference([shown(html=before)], [shown(html=before.replace("abc12", "fff99"))]) == ""
    assert (
        difference([shown(html=before)], [shown(html=before.replace(">1<", ">2<"))]) == "gave '2' in place of '1'"
    )


def png(wide: int, high: int, level: int) -> str:
    """A picture of one grey, of that size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes([level]) * wide for _ in range(high))
    head = struct.pack(">IIBBBBB", wide, high, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def test_pictures_are_compared_by_size() -> None:
    assert difference([shown(png=png(300, 200, 9))], [shown(png=png(301, 200, 10), plain="<Figure>")]) == ""
    other = difference([shown(png=png(300, 200, 9))], [shown(png=png(600, 200, 9))])
    assert other == "gave a picture of 600x200 in place of 300x200"
    assert difference([shown(png=png(3, 2, 9))], [shown(plain="x")]) == "gave 1 result in place of 0"
    assert difference([shown(svg="<svg id='a'/>")], [shown(svg="<svg id='b'/>")]) == ""


def figure(kind: str, values: list[int], dpi: int = 72) -> str:
    from matplotlib.figure import Figure

    made = Figure()
    getattr(made.subplots(), kind)(range(len(values)), values)
    file = io.BytesIO()
    made.savefig(file, format="png", dpi=dpi)
    return base64.b64encode(file.getvalue()).decode()


def test_pictures_are_compared_by_their_looks() -> None:
    pytest.importorskip("matplotlib")
    before = figure("plot", [1, 2, 3, 4])
    assert difference([shown(png=before)], [shown(png=figure("plot", [1, 2, 3, 4]))]) == ""
    assert difference([shown(png=before)], [shown(png=figure("plot", [4, 3, 2, 1]))]) == (
        "gave a picture that looks different"
    )
    assert difference([shown(png=before)], [shown(png=figure("bar", [1, 2, 3, 4]))]) != ""
