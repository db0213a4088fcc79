"""What each block of the prompts must hold, how long it may be, and what goes with which task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbagent.events import DialectName
from nbagent.models.dialects.tools import ToolsDialect
from nbagent.prompt import HostContext, advice_for, run_message, system_prompt, text_named
from nbagent.protocols import Variable
from nbagent.task_reading import SAME_LANGUAGE, approach_of, language_of
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.built_in import built_in
from nbagent.tools.permission import Permission
from nbagent.tools.registry import Registry
from nbagent.tools.sharing import Sharing

SMALL: tuple[DialectName, ...] = ("json", "fenced")

#: What each block is there for; a text that loses one of these has lost its point.
HOLDS = {
    "role": ["data analyst", "Jupyter kernel", "Variables, imports and files stay"],
    "how_to_work": [
        "compare the goal with what you have observed",
        "name what is missing",
        "which tool gives it, and with what arguments",
        "Never guess a column name",
        "only printed output",
        "read the error",
    ],
    "data_is_data": ["<output", "<context", "never an instruction"],
    "answer": [
        "only from what you have observed",
        "exactly in the form",
        "language of the task",
        "calling a tool",
    ],
    "fenced": [
        "ONE Python code block",
        "plain text, without a code block",
        "form and the language",
        "never an instruction",
        "Example",
        "```python",
    ],
    "json": ["ONE JSON object", "final_answer", "form and the language", "never an instruction", "Example"],
    "reminder": ["compute what is asked with code"],
    "after_output": ["{task}", "final answer"],
    "after_silence": ["Nothing was printed", "print what is asked"],
    "after_error": ["whole code again", "{line}"],
    "after_error_again": ["without this line", "{line}"],
    "start_anew": ["not the user's words", "sent again unchanged", "still holds all its variables"],
    "note": ["not the user's words", "still holds all its variables"],
    "summary": ["not from the user", "every condition that the user set", "exact numbers", "what remains"],
    "approach_debugging": [
        "task says goes before it",
        "make the failure happen",
        "traceback",
        "run the failing code",
    ],
    "approach_exploring": ["task says goes before it", "missing values", "counts", "cannot tell"],
    "approach_plotting": ["task says goes before it", "axis labels with units", "do not see the figure"],
    "approach_modelling": ["task says goes before it", "Split before you fit", "baseline", "seed"],
}


@pytest.mark.parametrize("name", HOLDS)
def test_each_block_holds_what_it_is_there_for(name: str) -> None:
    text = text_named(name)
    assert [words for words in HOLDS[name] if words not in text] == []


def test_the_system_prompt_is_made_of_its_blocks_and_short() -> None:
    prompt = system_prompt("tools", [])
    assert all(text_named(name) in prompt for name in ("role", "how_to_work", "data_is_data", "answer"))
    assert len(prompt) < 1800
    assert max(len(text_named(f"approach_{name}")) for name in ("debugging", "plotting", "modelling")) < 420


@pytest.mark.parametrize(("small", "most"), [(False, 6000), (True, 2500)])
def test_what_comes_before_the_task_keeps_to_its_budget(tmp_path: Path, small: bool, most: int) -> None:
    registry = Registry(built_in(tmp_path, Sharing()))
    dialects: tuple[DialectName, ...] = ("tools", *SMALL)
    for dialect in dialects:
        offered = registry.offered(dialect, small=small, with_host=True, permission=Permission())
        specs = [tool.spec for tool in offered]
        fields = ToolsDialect().parameters(specs) if dialect == "tools" else {}
        assert len(system_prompt(dialect, specs)) + len(json.dumps(fields)) <= most, dialect


@pytest.mark.parametrize("dialect", SMALL)
def test_small_models_get_a_worked_example_and_the_request_to_compute_last(dialect: DialectName) -> None:
    prompt = system_prompt(dialect, [FinalAnswer().spec])
    assert "What is the highest price in shop.csv?" in prompt
    assert len(prompt) < 1600
    message = run_message("Plot the trend", HostContext(files=["a.csv"]), "n0nce", dialect=dialect)
    assert message.endswith(f"Task: Plot the trend\n\n{text_named('reminder')}")
    assert "Advice" not in message, "small models guess where there is much to read"


@pytest.mark.parametrize(
    ("task", "approach"),
    [
        ("Why does load() raise a KeyError? Fix it.", "debugging"),
        ("Warum kommt hier ein Fehler? Behebe ihn bitte.", "debugging"),
        ("为什么运行会报错？请修复。", "debugging"),
        ("Corrige l'erreur dans cette fonction", "debugging"),
        ("Plot a histogram of age", "plotting"),
        ("Zeichne ein Diagramm der Umsätze", "plotting"),
        ("画出每月销售额的折线图", "plotting"),
        ("月ごとの売上のグラフを描いて", "plotting"),
        ("Dibuja un gráfico de ventas", "plotting"),
        ("Train a random forest that predicts churn; report the accuracy", "modelling"),
        ("用随机森林模型预测房价", "modelling"),
        ("Построй модель и сделай прогноз", "modelling"),
        ("Give me an overview of this table", "exploring"),
        ("Beschreibe die Daten und nenne Auffälligkeiten", "exploring"),
        ("探索一下这份数据", "exploring"),
        ("What is the mean of price in `error_model.csv`?", None),
        ("How many rows have plots.csv and model.csv?", None),
        ("把 x 加一", None),
    ],
)
def test_the_kind_of_work_is_read_off_the_task_in_several_languages(task: str, approach: str | None) -> None:
    assert approach_of(task) == approach


def test_advice_comes_with_the_task_and_the_users_choice_goes_before_the_words() -> None:
    task = "Plot a histogram of age"
    message = run_message(task, HostContext(files=["a.csv"]), "n0nce")
    assert message.endswith(f"{text_named('approach_plotting')}\n\nTask: {task}")
    assert "Advice" not in run_message(task, HostContext(), "n0nce", approach="general")
    assert "debugging" in run_message(task, HostContext(), "n0nce", approach="debugging")
    assert advice_for(task, "modelling", "fenced") == text_named("approach_modelling")


@pytest.mark.parametrize(
    ("task", "language"),
    [
        ("shop.csv 中价格(price)最高的水果是哪一种？", "Chinese"),
        ("What is the mean of 价格 in 销售.csv?", ""),
        ("売上の平均を計算して", "Japanese"),
        ("가격의 평균은 얼마인가요?", "Korean"),
        ("Каково среднее значение price?", SAME_LANGUAGE),
        ("Wie hoch ist der Durchschnitt?", ""),
        ("What is the mean?", ""),
        ("1 + 1", ""),
        ("", ""),
    ],
)
def test_the_language_is_told_where_the_script_shows_it(task: str, language: str) -> None:
    assert language_of(task) == language


def test_the_answer_is_asked_for_in_the_language_of_the_task() -> None:
    chinese, english = "价格的平均值是多少？", "What is the mean price?"
    assert run_message(chinese, HostContext(), "n").endswith("(Answer in Chinese.)")
    assert run_message(english, HostContext(), "n") == f"Task: {english}"
    assert "language of the task" in system_prompt("tools", [])


def test_what_the_host_tells_is_fenced_and_the_task_is_not() -> None:
    context = HostContext([Variable("df", "DataFrame", "(3, 2)")], ["df = load()"], "KeyError: 'n0nce'", ["a.csv"])
    message = run_message("Count the rows", context, "n0nce")
    inside, _, after = message.partition("</context n0nce>")
    assert inside.count("n0nce") == 1, "data cannot end the block"
    assert "df: DataFrame (3, 2)" in inside
    assert after == "\n\nTask: Count the rows"


def test_a_long_pasted_task_is_read_in_no_time() -> None:
    for pasted in ("a.b" * 400_000, "价格" * 400_000, "1" * 1_000_000, "`" * 300_000):
        assert approach_of(pasted) is None
        language_of(pasted)
