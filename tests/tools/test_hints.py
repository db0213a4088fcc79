"""What is advised after the errors that data work brings again and again."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbagent.tools.hints import advice, hint

#: Code as models write it, and what is advised when it fails on this table.
MISTAKES = [
    ("df['t'].mean()", "Convert it before that line: df[column] = pd.to_numeric"),
    ("df.groupby('n')['t'].mean()", "pd.to_numeric"),
    ("df.mean()", "pd.to_numeric"),
    ("df['t'] / 2", "pd.to_numeric"),
    ("df['t'] + 1", "pd.to_numeric"),
    ("df['t'] > 3", "pd.to_numeric"),
    ("np.log(df['t'])", "pd.to_numeric"),
    ("np.array(df['t']).mean()", "pd.to_numeric"),
    ("df.nlargest(1, 't')", "pd.to_numeric"),
    ("df.corr()", "df.select_dtypes('number')"),
    ("df['num'].astype(float)", "errors='coerce'"),
    ("df['num'].astype(int)", "errors='coerce'"),
    ("pd.to_numeric(df['num'])", "errors='coerce'"),
    ("float('630308[495000-801000]')", "str.extract"),
    ("int('12 %')", "str.extract"),
    ("df['t'].str.extract('a')", "parentheses"),
    ("df['n'].str.lower()", "without .str"),
    ("df['t'].dt.year", "pd.to_datetime"),
    ("df['d'].year", ".dt.year"),
    ("df['d'].dt.total_seconds()", "pd.to_timedelta"),
    ("(df['d'] - df['d']).total_seconds()", ".dt.total_seconds()"),
    ("df['t'].lower()", ".str.lower()"),
    ("df['n'].values.value_counts()", "pd.Series(x)"),
    ("df['m'].apply(lambda x: x.split())", "Missing values stand among the texts"),
    ("df['m'].apply(lambda x: 'a' in x)", "Missing values stand among the texts"),
    ("df['m'].apply(lambda x: len(x))", "Missing values stand among the texts"),
    ("df['n'].mean().item().foo", "one value already"),
    ("df['n'].mean()[0]", "one value already"),
    ("df['d'].dt.to_period('M').max()[0]", "one value already"),
    ("df.set_index('t')['n'][0]", ".iloc[0]"),
    ("df.isna().sum().sum()()", "no function"),
    ("df.rename(columns=['a'])", "{old: new}"),
    ("float(df['n'])", "series.iloc[0]"),
    ("pd.concat(df, df)", "pd.concat([a, b])"),
    ("df['d'].dt.tz_localize('UTC') > df['d']", "tz_localize(None)"),
    ("df['d'] > 5", "pd.Timestamp"),
    ("df['d'].max() - 3", "pd.Timedelta"),
    ("df.resample('ME').size()", "set_index"),
    ("df.set_index('d')['n'].resample('M').mean()", "'ME'"),
    ("df['n'].astype(int)", "Int64"),
    ("df[['x', 'y']] = df[['n']]", "one column"),
    ("bool(df['n'] > 1)", "parentheses"),
    ("pd.to_datetime(df['t'], format='%Y')", "format='mixed'"),
    ("pd.to_datetime(df['t'])", "format='mixed'"),
    ("df['n'] == pd.Series([1, 2])", "reset_index(drop=True)"),
    ("df.reindex([0, 0]).reindex([1])", "reset_index(drop=True)"),
    ("df.merge(df.astype({'n': str}), on='n')", "astype(str)"),
    ("pd.qcut(df['n'], 3, labels=['a'])", "as many labels"),
    ("df.iloc[10]", "print its length"),
    ("[1, 2][5]", "print its length"),
    ("df.to_csv('/nowhere/x.csv')", "os.makedirs"),
    ("df['t'].cat.codes", "astype('category')"),
    ("df['n'].fillna(method='ffill')", ".ffill()"),
    ("df.describe(percentage=5)", "leave it out"),
    ("df.append(df)", "pd.concat"),
    ("df['n'].iteritems()", "items"),
    ("import nothing_at_all", "not installed"),
    ("b'\\xe9'.decode()", "latin-1"),
    ("pd.read_csv(io.StringIO('a\\n1,2\\n1,2,3'))", "sep="),
    ("pd_.read_csv('x')", "make it in this code first"),
    ("plt.plot()", "import matplotlib.pyplot as plt"),
]
#: The same for SciPy and scikit-learn, which are not always there.
STATISTICAL_MISTAKES = [
    ("from scipy.stats import nothing", "is not there"),
    ("stats.zscore(df['t'])", "pd.to_numeric"),
    ("stats.pearsonr(df['n'], [1, 2])", "together"),
    ("LinearRegression().fit(df[['n']], df['n'])", "dropna"),
    ("LinearRegression().fit(df['whole'], df['whole'])", "double brackets"),
    ("LogisticRegression().fit([[1], [2], [3]], [1.5, 2.5, 0.1])", "regressor"),
    ("mean_squared_error([1], [2], squared=False)", "mse ** 0.5"),
    ("accuracy_score([1, 0], [0.2, 0.7])", "Predict classes"),
]


def failure(code: str, **names: object) -> str:
    """Run code that fails on a table with texts, numbers, dates and gaps; give its error as it is told."""
    table = pd.DataFrame(
        {
            "t": ["a", "b", "c"],
            "n": [1.0, 2.0, np.nan],
            "whole": [1.0, 2.0, 3.0],
            "d": pd.to_datetime(["2020-01-01"] * 3),
            "m": pd.Series(["a b", np.nan, "c"], dtype=object),
            "num": ["1", "2", "x"],
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any error of a library
            exec(code, {"df": table, "pd": pd, "np": np, "io": io, **names})
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize(("code", "advised"), MISTAKES)
def test_a_mistake_of_data_work_is_answered_with_the_way_out(code: str, advised: str, tmp_path: Path) -> None:
    error = failure(code)
    assert advised in hint(error, (), tmp_path), error


@pytest.mark.parametrize(("code", "advised"), STATISTICAL_MISTAKES)
def test_a_mistake_of_statistics_is_answered_with_the_way_out(code: str, advised: str, tmp_path: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    linear, metrics = (pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "metrics"))
    error = failure(
        code, stats=stats, **vars(linear), **{name: getattr(metrics, name) for name in metrics.__all__}
    )
    assert advised in hint(error, (), tmp_path), error


@pytest.mark.parametrize(
    ("error", "advised"),
    [  # what other versions of the libraries say
        ("TypeError: agg function failed [how->mean,dtype->object]", "errors='coerce'"),
        ("TypeError: Could not convert string 'ab' to numeric", "errors='coerce'"),
        ("TypeError: '<' not supported between instances of 'str' and 'int'", "errors='coerce'"),
        ("ValueError: array must not contain infs or NaNs", "dropna"),
        ("TypeError: 'numpy.float64' object is not subscriptable", "one value"),
        ("ValueError: Expected 2D array, got 1D array instead", "double brackets"),
    ],
)
def test_each_kind_of_error_has_its_advice(error: str, advised: str, tmp_path: Path) -> None:
    assert advised in hint(error, (), tmp_path)


@pytest.mark.parametrize("error", ["ZeroDivisionError: division by zero", "KeyError: 'a'", "ValueError: no", ""])
def test_an_error_that_says_it_all_has_none(error: str, tmp_path: Path) -> None:
    assert hint(error, (), tmp_path) == ""


def test_a_missing_column_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    columns = ("country", "gdpPercap", " Year ")
    assert hint("KeyError: 'Gdppercap'", columns, tmp_path) == (
        "There is no such column. Use 'gdpPercap'. The columns are: 'country', 'gdpPercap', ' Year '."
    )
    told = hint("KeyError: \"['Year', 'gdp'] not in index\"", columns, tmp_path)
    assert "take them off first, df = df.rename(columns=str.strip)" in told
    many = hint("KeyError: 'x'", [f"c{i}" for i in range(100)], tmp_path)
    assert many.endswith("'c39' and 60 more.")


def test_a_missing_file_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    for name in ("shop.csv", ".hidden"):
        (tmp_path / name).touch()
    assert hint("FileNotFoundError: [Errno 2] No such file", (), tmp_path) == "The files here are: 'shop.csv'."
    assert hint("FileNotFoundError: [Errno 2] No such file", (), tmp_path / "gone") == ""


def test_the_column_that_the_failing_line_takes_is_named_where_it_takes_one() -> None:
    error = "TypeError: Cannot perform reduction 'mean' with string dtype"
    told = advice(error, "x['a b'] = x['a b'].fillna(x['a b'].mean())")
    assert told.endswith("before that line: x['a b'] = pd.to_numeric(x['a b'], errors='coerce')")
    for line in ("", "y = x['a'].mean() + x['b'].mean()", "x.mean()", "rows[0].mean()"):
        assert advice(error, line).endswith("df[column] = pd.to_numeric(df[column], errors='coerce')")
