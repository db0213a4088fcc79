"""What is too long to be shown is kept whole and can be paged and searched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Approval, ToolResult
from nbagent.redaction import Redactor
from nbagent.reply import Action
from nbagent.tools.failing_tests import failing_tests
from nbagent.tools.gateway import Gateway
from nbagent.tools.observe import observation
from nbagent.tools.read_output import read_output
from tests.tools.conftest import Context, User

LINES = [f"line {n}" + (" error: odd" if n % 100 == 0 else "") for n in range(1, 1001)]


@pytest.fixture
def context(tmp_path: Path, workspace: Path) -> Context:
    return Context(ProcessKernel(folder=workspace, scratch=tmp_path), tmp_path, workspace)


async def read(context: Context, **arguments: object) -> tuple[ToolResult, str]:
    gateway = Gateway([read_output], approve="ask")
    action = Action("c1", "read_output", json.dumps(arguments))
    return await gateway.call(action, context, User(Approval(False, "nobody")))


def told(context: Context, text: str, changes: str = "", *, pages: bool = True) -> str:
    return observation(ToolResult("ok", text, changes=changes), context, pages=pages)


async def test_a_cut_output_names_a_handle_that_gives_the_rest(context: Context) -> None:
    text = told(context, "\n".join(LINES), "Variables: x int 5")
    assert 'lines left out; read_output(handle="o1") shows it …]' in text
    assert text.endswith("\nVariables: x int 5\n</output 3fa9c1>")
    assert len(text) < context.observation_characters + 60
    _, page = await read(context, handle="o1", start=500, lines=2)
    assert page == (
        "Output o1, lines 500-501 of 1,000. Go on with start=502.\n"
        "<output 3fa9c1>\nline 500 error: odd\nline 501\n</output 3fa9c1>"
    )
    _, page = await read(context, handle='"O1"', start=-1)
    assert "lines 1000-1000" in page
    _, page = await read(context, handle="o1", pattern="err.r")
    assert page.startswith("Output o1: 10 lines match.\n<output 3fa9c1>\n100: line 100 error: odd\n")
    _, page = await read(context, handle="o1", pattern="error", start=-1)
    assert page.startswith("Output o1: 10 lines match, 1 of them here.")
    _, page = await read(context, handle="o1", lines=5000)
    assert "left out" not in page
    assert "Go on with start=" in page
    assert 'handle="o2"' in told(context, "x\n" * 9000)


async def test_nothing_is_kept_where_nothing_is_cut_or_nobody_could_ask(context: Context) -> None:
    told(context, "short")
    text = told(context, "\n".join(LINES), pages=False)
    assert "read_output" not in text
    result, page = await read(context, handle="o1")
    assert result.status == "invalid"
    assert page == "There is no output 'o1'. No output was cut so far."


@pytest.mark.parametrize("handle", ["o9", "../o1", "o1.txt", "", "o", "/etc/passwd", "o1\0", "x" * 9999])
async def test_a_handle_that_is_none_is_told_with_those_there_are(context: Context, handle: str) -> None:
    told(context, "\n".join(LINES))
    result, page = await read(context, handle=handle)
    assert result.status == "invalid"
    assert page.endswith("The last ones are: o1.")
    assert len(page) < 200


async def test_odd_requests_for_lines_are_answered(context: Context) -> None:
    told(context, "\n".join(LINES))
    assert "there is no line 5000" in (await read(context, handle="o1", start=5000))[1]
    assert "no regular expression" in (await read(context, handle="o1", pattern="("))[1]
    assert (await read(context, handle="o1", pattern="nowhere"))[1] == "Output o1: no line match."
    assert "lines 1-1 of" in (await read(context, handle="o1", start=0, lines=0))[1]
    assert "lines 1-" in (await read(context, handle="o1", start=-99999))[1]


async def test_secrets_are_masked_before_an_output_is_kept(context: Context) -> None:
    secret = "wJalrTESTKEY/EXAMPLE+abcdefghijklmnop"
    context.redactor = Redactor({"AWS_SECRET_ACCESS_KEY": secret})
    told(context, "\n".join([*LINES, secret, *LINES]))
    kept = "".join(file.read_text() for file in context.session_folder.rglob("o*.txt"))
    assert secret not in kept
    assert "[masked AWS_SECRET_ACCESS_KEY]" in kept


# -- failing tests -----------------------------------------------------------------------------------------

TESTS = """
import unittest

def test_plain():
    assert 1 == 2, "numbers"

class TestGroup:
    def test_inner(self):
        assert "a" == "b"

class Old(unittest.TestCase):
    def test_old(self):
        self.assertEqual(1, 2)
"""


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (
            "FAILED tests/test_a.py::test_plain - assert 1 == 2",
            ["def test_plain():", '    assert 1 == 2, "numbers"'],
        ),
        ("FAILED tests/test_a.py::TestGroup::test_inner[x-1]", ["    def test_inner(self):"]),
        (
            "FAIL: test_old (test_a.Old.test_old)\n---\nTraceback:\n"
            '  File "tests/test_a.py", line 13, in test_old\n    self.assertEqual(1, 2)\nAssertionError',
            ["    def test_old(self):"],
        ),
        ("FAILED tests/test_a.py::test_plain\n    def test_plain():\n>  assert", []),
        ("FAILED tests/test_a.py::test_nowhere", []),
        ("FAILED ../../etc/x.py::test_plain\nFAILED tests/none.py::test_plain", []),
        ("all is well", []),
    ],
)
def test_a_failing_test_run_carries_the_tests_source(workspace: Path, printed: str, shown: list[str]) -> None:
    (workspace / "tests").mkdir()
    (workspace / "tests" / "test_a.py").write_text(TESTS)
    source = failing_tests(printed, workspace)
    assert bool(source) is bool(shown)
    for line in shown:
        assert line in source.split("\n")


def test_only_some_failing_tests_and_lines_are_shown(workspace: Path) -> None:
    body = "".join(f"def test_{n}():\n" + "    pass\n" * 100 for n in range(9))
    (workspace / "test_b.py").write_text(body)
    source = failing_tests("\n".join(f"FAILED test_b.py::test_{n}" for n in range(9)), workspace)
    assert source.count("[source of") == 3
    assert source.count("\n") < 110
