"""The embedded model answers simple questions over small tables, end to end: kernel, prompt, loop, export."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent import Agent
from nbagent.models import weights
from tests.faces.notebook import kernel
from tests.notebook.clean_kernel import execute_clean

pytestmark = pytest.mark.local

SHOP = "name,price,sold\napple,1.25,10\npear,2.50,4\nplum,0.75,12\nmelon,7.10,1\n"
WEATHER = "day;rain\n1;0.0\n2;4.5\n3;\n4;1.5\n"
PEOPLE = "name,team\nAna,red\nBo,blue\nCy,red\nDi,red\n"

QUESTIONS = [
    ("shop.csv", SHOP, "What is the mean of the column price in shop.csv, rounded to two decimals?", "2.9"),
    ("weather.csv", WEATHER, "How many values are missing in the column rain of weather.csv?", "1"),
    ("shop.csv", SHOP, "shop.csv 里 price 列的平均值是多少？保留两位小数。", "2.9"),
    ("people.csv", PEOPLE, "How many people in people.csv are in the team red?", "3"),
]


@pytest.fixture(autouse=True)
def the_models_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    if weights.find(weights.default_name()) is None:
        pytest.fail("the weights are missing: run `nbagent model pull`")


@pytest.mark.parametrize(("file", "content", "question", "figure"), QUESTIONS, ids=lambda value: str(value)[:12])
def test_a_question_over_a_small_table_is_answered_from_the_data(
    tmp_path: Path, file: str, content: str, question: str, figure: str
) -> None:
    (tmp_path / file).write_text(content)
    with Agent(model=f"local:{weights.default_name()}", folder=str(tmp_path), approve="auto") as agent:
        result = agent.run_sync(question, data=[tmp_path / file])
        path = result.export(tmp_path / "out.ipynb")
    assert result.reason == "answered", result
    assert figure in result.answer
    printed = "\n".join(text for _, text in execute_clean(path, folder=tmp_path))
    assert figure in printed


def test_a_task_in_chinese_is_answered_in_chinese(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(SHOP)
    with Agent(model=f"local:{weights.default_name()}", folder=str(tmp_path), approve="auto") as agent:
        result = agent.run_sync(
            "shop.csv 中价格(price)最高的水果是哪一种？请用一句话回答。", data=[tmp_path / "shop.csv"]
        )
    assert result.reason == "answered", result
    assert any("\u4e00" <= letter <= "\u9fff" for letter in result.answer), result.answer


def test_weights_are_pulled_from_a_cell_too(tmp_path: Path) -> None:
    with kernel(tmp_path, {}) as cells:
        cells.run("%load_ext nbagent")
        assert "Ready:" in cells.text("%agent model pull", timeout=300)
        assert "here:" in cells.text("%agent model")
