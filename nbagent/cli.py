"""`nbagent ...`: the same agent from a shell. Thin: parse, hand over, exit with the ending's code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from nbagent import __version__
from nbagent.errors import NbAgentError, VerificationFailed
from nbagent.options import options

#: What the process returns for each ending: see README.
EXIT_CODES = {"answered": 0, "interrupted": 130, "model_error": 1, "kernel_lost": 1}
ENDED_BY_GUARD = 3


class Group(click.Group):
    """Shows our errors as one line and exits with their code."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        _open_closed_streams()
        try:
            return super().invoke(context)
        except NbAgentError as error:
            click.echo(f"nbagent: {error}", err=True)
            context.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            context.exit(EXIT_CODES["interrupted"])


def _open_closed_streams() -> None:
    """Python has None for a stream that the caller closed (`nbagent run ... >&-`): nothing is read or shown."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - never closed


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add every setting as an option."""
    for option in reversed(list(options())):
        keywords: dict[str, Any] = {"help": option.help, "default": None}
        if option.is_flag:
            keywords["is_flag"] = True
        elif option.many:
            keywords["multiple"] = True
        elif option.choices:
            keywords["type"] = click.Choice(option.choices)
        command = click.option(option.flag, option.name, **keywords)(command)
    return command


def export_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what an export may be."""
    for flag, words in (
        ("--verify", "Prove it: execute it in a clean kernel and compare."),
        ("--distill", "Keep only what the answers need; with --verify, the smallest that verifies."),
        ("--clean", "Leave failed steps out."),
    ):
        command = click.option(flag, is_flag=True, help=words)(command)
    return command


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """An agent that works in a Jupyter kernel the way a careful colleague would."""


@main.command()
@click.argument("task", required=False)
@click.option("--data", multiple=True, type=click.Path(), help="A data file of the task; may be given again.")
@click.option("--export", "export_to", type=click.Path(), help="Write the session there, whatever the ending.")
@export_options
@click.option("--force", is_flag=True, help="Let --export overwrite a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line instead of the trace.")
@settings_options
def run(
    task: str | None,
    data: tuple[str, ...],
    export_to: str | None,
    clean: bool,
    distill: bool,
    verify: bool,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Work on TASK in the current folder and print the answer.

    With --session, go on with that session, where it worked; TASK is then "continue" if it is left out.
    """
    from nbagent.cli_run import run_task
    from nbagent.notebook.request import ExportRequest

    if task is None:
        if not settings.get("session"):
            raise click.UsageError("Missing argument 'TASK'.")
        task = "continue"
    request = ExportRequest(clean=clean, distill=distill, verify=verify, force=force)
    finished = run_task(task, data, given(settings), export_to=export_to, request=request, as_json=as_json)
    sys.exit(EXIT_CODES.get(finished.reason, ENDED_BY_GUARD))


@main.command()
@click.option("--csv", "csv_file", type=click.Path(), help="Another copy of the demo's table to ask about.")
@settings_options
def demo(csv_file: str | None, **settings: Any) -> None:
    """Solve a real question over a real CSV file, export it, and prove that the export runs.

    Uses the embedded model, whose weights (1.1 GB) are fetched if they are not here, unless --model
    or --base-url name another.
    """
    from nbagent.demo import run_demo

    sys.exit(run_demo(Path(csv_file) if csv_file else None, given(settings)))


@main.command()
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def lab(folder: str | None, no_browser: bool) -> None:
    """Open JupyterLab on the quickstart notebook (copied to FOLDER if it is not there)."""
    from nbagent.lab import open_lab

    sys.exit(open_lab(Path(folder) if folder else None, no_browser=no_browser))


@main.command()
@click.argument("session")
@click.argument("path", type=click.Path())
@export_options
@click.option("--force", is_flag=True, help="Overwrite the file.")
def export(session: str, path: str, **asked: bool) -> None:
    """Write SESSION (an id, or the beginning of one) as a notebook that runs."""
    from nbagent.notebook.request import ExportRequest, export_session

    exported = export_session(_store().read(session), Path(path), ExportRequest(**asked))
    click.echo("\n".join(exported.lines))
    exported.check()


@main.command()
@click.argument("notebook", type=click.Path())
@click.option("--folder", type=click.Path(), help="Where it works (default: its own folder).")
@click.option("--in-place", is_flag=True, help="Work in the folder itself, not in a copy of it.")
@click.option("--timeout", type=float, default=600, show_default=True, help="Seconds for all cells together.")
@click.option(
    "--confine", type=click.Choice(["workspace", "strict", "off"]), default="workspace", show_default=True
)
def verify(notebook: str, **asked: Any) -> None:
    """Execute NOTEBOOK in a clean kernel, compare cell by cell, and write the verdict into it.

    Times, addresses, the order of sets, widths and the last digits of floats may differ.
    """
    from nbagent.notebook.request import verify_notebook_file

    verdict = verify_notebook_file(Path(notebook), **asked)
    click.echo(verdict.line)
    sys.exit(0 if verdict.ok else VerificationFailed.exit_code)


@main.command()
@click.argument("session")
@click.argument("count", type=click.IntRange(min=1), default=1)
@click.option("--keep-files", is_flag=True, help="Leave the files as the undone steps left them.")
def undo(session: str, count: int, keep_files: bool) -> None:
    """Undo the last COUNT steps of SESSION that ran code: it goes on without them (run --session)."""
    from nbagent.cli_run import undo_steps

    click.echo(undo_steps(session, count, files=not keep_files))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
def sessions(as_json: bool) -> None:
    """List the sessions, newest first."""
    from nbagent.listing import sessions_table

    summaries = _store().summaries()
    if as_json:
        for summary in summaries:
            click.echo(json.dumps(asdict(summary), ensure_ascii=False))
    else:
        click.echo(sessions_table(summaries))


@main.command()
def tools() -> None:
    """List the agent's tools: where each is from, its risk, whether the settings allow it."""
    from nbagent.listing import tools_table
    from nbagent.project import resolve_here
    from nbagent.tools.built_in import built_in
    from nbagent.tools.registry import Registry
    from nbagent.tools.sharing import Sharing

    registry = Registry(built_in(Path.cwd(), Sharing()))
    click.echo(tools_table(registry, resolve_here({}, os.environ).settings, {}))


@main.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--yes", is_flag=True, help="Trust without a question.")
@click.option("--revoke", is_flag=True, help="Trust the project's files no longer.")
def trust(folder: str | None, yes: bool, revoke: bool) -> None:
    """Let the files of the project in FOLDER (default: here) set what needs your trust.

    Shows what pyproject.toml [tool.nbagent] and .mcp.json would set or start, and asks. A later change of that
    content is asked about anew.
    """
    from nbagent.cli_trust import trust_project

    trust_project(Path(folder or "."), yes=yes, revoke=revoke)


@main.group(cls=Group)
def model() -> None:
    """The embedded models: list, pull, check."""


@model.command("list")
def model_list() -> None:
    """List the embedded models and whether their weights are here."""
    from nbagent.listing import weights_table

    click.echo(weights_table())


@model.command("pull")
@click.argument("name", required=False)
def model_pull(name: str | None) -> None:
    """Download and check the weights of NAME (default: the 1.5B model, 1.1 GB)."""
    from nbagent.listing import pull_weights

    pull_weights(name, click.echo)


@model.command("check")
@click.argument("name", required=False)
def model_check(name: str | None) -> None:
    """Hash the weights of NAME anew and say whether they are what they should be."""
    from nbagent.models import weights

    path = weights.check(name or weights.default_name())
    click.echo(f"Good: {path}")


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not given on the line."""
    return {name: value for name, value in settings.items() if value not in (None, ())}


def _store() -> Any:
    from nbagent.stores.files import FileStore, default_home

    return FileStore(default_home(os.environ))
