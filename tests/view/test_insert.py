"""Cells for the user's notebook where there is no page to put them below another: one next input."""

from __future__ import annotations

import ast

from nbagent.view.insert import in_one, insert_cells


class Shell:
    """A shell without a page."""

    kernel = None

    def __init__(self) -> None:
        self.next_input = ""

    def set_next_input(self, text: str) -> None:
        self.next_input = text


def test_without_a_page_all_cells_are_the_next_input() -> None:
    shell = Shell()
    assert insert_cells(shell, ["a = 1", "print(a)"], "cell-1", asks=True) == "next"
    assert shell.next_input == "a = 1\n\nprint(a)"


def test_a_cell_magic_among_others_is_written_out_as_its_call() -> None:
    joined = in_one(["x = 1", "%%bash\necho 'hi'\n", "%matplotlib inline"])
    assert joined.startswith("x = 1\n\nget_ipython().run_cell_magic('bash', '', ")
    assert joined.endswith("%matplotlib inline")
    ast.parse(joined.removesuffix("%matplotlib inline"))
    assert in_one(["%%bash\necho hi"]) == "%%bash\necho hi"
