"""Which names a cell binds and needs."""

from __future__ import annotations

import pytest

from nbagent.needed_cells import Candidate, needed_failures
from nbagent.tools.cell_names import names_of


@pytest.mark.parametrize(
    ("code", "needs", "binds"),
    [
        ("x = 1", "", "x"),
        ("x = x + 1", "x", "x"),
        ("x += y", "x y", "x"),
        ("x = 1\nprint(x)", "", "x"),
        ("import pandas as pd\nimport os.path\nfrom a import b as c", "", "pd os c"),
        ("for i in rows: print(i)", "rows", ""),
        ("if flag: x = 1\nelse: x = 2", "flag", "x"),
        ("if flag: x = 1\nprint(x)", "flag x", ""),
        ("with open(path) as f: text = f.read()", "path", "f text"),
        ("def f(a, b=d):\n    c = a + g\n    return c", "d g", "f"),
        ("def f():\n    return g()\ndef g(): return 1", "", "f g"),
        ("def f():\n    global total\n    total = 1", "", "f"),
        ("[i * k for i in rows if i]", "rows k", ""),
        ("{k: v for k, v in d.items()}", "d", ""),
        ("any((hit := x) for x in rows)", "rows", "hit"),
        ("lambda a: a + b", "b", ""),
        ("try:\n    import numpy as np\nexcept ImportError:\n    np = None", "", "np"),
        ("try:\n    f()\nexcept ValueError as e:\n    print(e)", "f", ""),
        ("class A(B):\n    x = 1\n    def m(self): return C", "B C", "A"),
        ("match v:\n    case {'a': x, **rest}: print(x, rest)", "v", ""),
        ("a, (b, *c) = t", "t", "a b c"),
        ("x: int = 1\ny: int", "", "x"),
        ("df['b'] = df.a", "df", ""),
        ("del x", "x", ""),
        ("await fetch(url)", "fetch url", ""),
        ("%matplotlib inline\nm = 1", "", "m"),
        ("!echo hi", "", ""),
        ("files = !ls", "", "files"),
        ("%%time\nm = n", "n", "m"),
        ("%%bash\nm = n", "", ""),
        ("%timeit -n 10 -r3 f(x)", "f x", ""),
        ("%time -x", "x", ""),
        ("%%timeit -n1 y = k\nf(y)", "f k", "y"),
        ("%%capture shown\nprint(n)", "n", ""),
        ("!head -$n {path.name} $$HOME", "n path", ""),
        ("lines = !wc -l {path}", "path", "lines"),
        ("df.query('a > @low')", "df low", ""),
        ("print(__name__, len(x))", "x", ""),
        ("this is no python", "", ""),
        ("x = '\\d'", "", "x"),
    ],
)
def test_a_cells_needs_and_binds_are_read_from_its_source(code: str, needs: str, binds: str) -> None:
    names = names_of(code)
    assert names.needs == set(needs.split())
    assert names.binds == set(binds.split())


@pytest.mark.parametrize(
    ("code", "touches"),
    [
        ("df['b'] = 1\nfail()", "df"),
        ("df.b = 1\nfail()", "df"),
        ("rows.append(1)\nfail()", "rows"),
        ("df.drop('a', inplace=True)\nfail()", "df"),
        ("def f(): rows.append(1)\nfail()", "f rows"),
        ("def f():\n    global n\n    n = 1\nf()", "f n"),
        ("x = 1 / 0", ""),
        ("df.aa.mean()", ""),
        ("a = 1\nb = 1 / 0", "a"),
        ("for row in rows:\n    total = row / 0", "row total"),
        ("print(df.head())\nfail()", ""),
    ],
)
def test_a_failed_cell_did_all_but_its_last_statement(code: str, touches: str) -> None:
    names = names_of(code, failed=True)
    assert names.touches == set(touches.split())
    assert names.binds == set()


def ok(code: str, state_lost_before: bool = False) -> Candidate:
    return Candidate(code, ok=True, state_lost_before=state_lost_before)


def failed(code: str) -> Candidate:
    return Candidate(code, ok=False)


def test_a_failed_cell_is_kept_where_a_later_cell_needs_what_it_bound() -> None:
    assert needed_failures([failed("import pandas as pd\npd.nothing()"), ok("pd.DataFrame()")]) == {0}


def test_a_failed_cell_goes_where_its_names_are_bound_anew() -> None:
    assert needed_failures([failed("df = 1\nfail()"), ok("df = 2"), ok("print(df)")]) == set()


def test_a_failed_cell_goes_where_nothing_needs_it() -> None:
    assert needed_failures([failed("df.aa.mean()"), ok("m = df.a.mean()"), ok("print(m)")]) == set()


def test_what_a_kept_failed_cell_needs_is_kept_too() -> None:
    cells = [failed("a = 1\nfail()"), failed("b = a\nfail()"), ok("print(b)")]
    assert needed_failures(cells) == {0, 1}


def test_a_cell_after_lost_state_cannot_have_needed_what_was_before() -> None:
    assert needed_failures([failed("a = 1\nfail()"), ok("print(a)", state_lost_before=True)]) == set()


def test_a_failed_cell_is_kept_where_it_changed_an_object_under_another_name() -> None:
    cells = [ok("t = df"), failed("t['z'] = 1\nfail()"), ok("print(df.z)")]
    assert needed_failures(cells) == {1}
    cells = [ok("parts = [df]"), failed("parts[0]['z'] = 1\nfail()"), ok("t = 1"), ok("print(df.z)")]
    assert needed_failures(cells) == {1}


def test_a_failed_cell_is_kept_where_a_function_of_its_own_changed_something() -> None:
    add = "got = []\ndef add(x):\n    got.append(x)\n    fail()"
    assert needed_failures([ok(add), failed("add(3)"), ok("print(got)")]) == {1}
    assert needed_failures([ok(add), failed("add(3)"), ok("got = 1"), ok("print(got)")]) == set()
