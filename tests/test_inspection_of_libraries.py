"""A look at values of the libraries of the trade: each told by what it is, nothing computed, nothing changed."""

from __future__ import annotations

import datetime

import pytest

from nbagent.glance import describe
from nbagent.inspection import look

pytestmark = pytest.mark.long


def test_polars_tables_and_columns_are_told_and_a_lazy_one_stays_lazy() -> None:
    import polars as pl

    table = pl.DataFrame({"a": [1, None, 3], "b": ["x", "y", "z"]})
    text = look("t", table)
    assert text.startswith("t: DataFrame (3, 2)\n3 rows x 2 columns, ")
    assert "- a: Int64 1 to 3, 1 missing\n- b: String\n" in text
    assert "first rows:\n  1 | 'x'\n  None | 'y'" in text
    assert "first values: 1, None, 3" in look("s", table["a"])
    odd = pl.DataFrame({"d": [datetime.date(2024, 1, 2), None], "f": [1.5, float("nan")]})
    text = look("odd", odd)
    assert "- d: Date 2024-01-02 to 2024-01-02, 1 missing\n- f: Float64 1.5 to 1.5, 1 NaN\n" in text
    lazy = pl.scan_csv("/there/is/no/such/file.csv")
    assert "nothing of it is computed" in look("lazy", lazy)


def test_torch_tensors_and_networks_are_told() -> None:
    import torch

    text = look("x", torch.arange(6.0).reshape(2, 3).requires_grad_())
    assert "shape (2, 3), torch.float32, on cpu, requires_grad=True\n0 to 5\nfirst values: 0, 1, 2" in text
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    text = look("net", network)
    assert "16 parameters\n- layer 0: Linear\n- layer 1: ReLU" in text
    assert describe(torch.zeros(2)) == ("Tensor", "(2,) torch.float32")
    assert "shape (2, 2)" in look("sparse", torch.eye(2).to_sparse())
    assert "\n1 to 1, 1 NaN\n" in look("nan", torch.tensor([1, float("nan")]))
    assert "\n1 to 1\n" in look("small", torch.ones(2).to(torch.float8_e4m3fn))
    assert "on meta" in look("meta", torch.zeros(3, device="meta"))


def test_scikit_learns_estimators_are_told_by_their_settings_and_what_they_learnt() -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    text = look("m", LinearRegression().fit([[1], [2]], [1, 2]))
    assert "- fit_intercept: bool True" in text
    assert "- coef_: ndarray (1,) float64" in text
    assert "- steps: list 2 items" in look("p", make_pipeline(StandardScaler(), LinearRegression()))


def test_arrow_tables_and_duckdb_relations_are_told_without_running_them() -> None:
    import duckdb
    import pyarrow as pa

    assert "- a: int64, 1 missing" in look("t", pa.table({"a": [1, None]}))
    relation = duckdb.sql("select 1/0 as x from range(1000000000)")
    assert look("r", relation).startswith("r: DuckDBPyRelation\nof class ")


def test_seaborn_and_matplotlib_figures_are_told_by_their_parts() -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    assert "of class matplotlib.figure.Figure" in look("figure", figure)
    assert "of class matplotlib.axes" in look("axes", axes)
    plt.close(figure)
