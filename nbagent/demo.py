"""`nbagent demo`: a real question over a real table, solved, exported, and the export proven to run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click

from nbagent.agent_thread import MainThreadQueue
from nbagent.api import Agent
from nbagent.cli_run import terminal_view
from nbagent.errors import UsageError
from nbagent.listing import pull_weights
from nbagent.models import weights
from nbagent.notebook.atomic import free_path
from nbagent.notebook.request import verify_notebook_file

TABLE = "gapminder_gdp_asia.csv"
QUESTION = f"What is the mean of the column gdpPercap_2007 over all countries in {TABLE}, rounded to two decimals?"
ANSWERED_AND_PROVEN, NOT_ANSWERED, NOT_PROVEN = 0, 3, 4


def run_demo(table: Path | None, settings: Mapping[str, Any]) -> int:
    """Run the demo in the current folder; give the exit code.

    Raises:
        NbAgentError: the weights cannot be had, or the export does not run.
    """
    folder = _prepare(table)
    settings = {"folder": str(folder), "approve": "auto", **settings}
    if not settings.get("model") and not settings.get("base_url"):
        settings["model"] = f"local:{weights.default_name()}"
    if str(settings.get("model", "")).startswith("local:"):
        name = str(settings["model"]).removeprefix("local:")
        if weights.find(name) is None:
            pull_weights(name, click.echo)
    main = MainThreadQueue()
    view = terminal_view(settings, main)
    with Agent(**settings) as agent:
        try:
            result = agent.run_sync(QUESTION, data=[folder / TABLE], view=view, main=main)
        finally:
            view.close()
        path = result.export(free_path(Path("nbagent-demo.ipynb")))
    click.echo(f"\nExported to {path}. Executing it in a clean kernel ...")
    verdict = verify_notebook_file(path, folder=str(folder))
    click.echo(verdict.line)
    if not result.success:
        click.echo(f"The export runs; the model did not answer ({result.reason}).")
        return NOT_ANSWERED
    return _compare(result.answer, "\n".join(verdict.printed)) if verdict.ok else NOT_PROVEN


def _prepare(table: Path | None) -> Path:
    """Lay the table into a folder of its own below the current one."""
    if table is not None and not table.is_file():
        raise UsageError(f"{table} is not there")
    folder = Path("nbagent-demo").resolve()
    try:
        folder.mkdir(exist_ok=True)
        with as_file(files("nbagent").joinpath("demo_data", TABLE)) as bundled:
            shutil.copyfile(table or bundled, folder / TABLE)
    except OSError as error:
        raise UsageError(f"cannot write to {folder} ({error.strerror}): run the demo in another folder") from error
    return folder


def _compare(answer: str, printed: str) -> int:
    """Compare the figures in the answer with those that the clean kernel printed, as they are rounded."""
    figures = [figure for figure in _figures(answer) if "." in figure]
    proven = [figure for figure in figures if any(_rounds_to(other, figure) for other in _figures(printed))]
    if proven:
        click.echo(f"Proven: the clean kernel gave {', '.join(dict.fromkeys(proven))}, as in the answer.")
        return ANSWERED_AND_PROVEN
    click.echo("Not proven: the clean kernel did not print the figure in the answer.")
    return NOT_PROVEN


def _figures(text: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def _rounds_to(exact: str, rounded: str) -> bool:
    decimals = len(rounded.partition(".")[2])
    return round(float(exact), decimals) == float(rounded)
