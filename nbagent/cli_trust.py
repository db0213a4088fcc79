"""`nbagent trust`: what a project's files would set, and the user's yes to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from nbagent.errors import UsageError
from nbagent.project import ProjectFile, Trust, files_of
from nbagent.stores.files import default_home
from nbagent.view.outputs import visible


def trust_project(folder: Path, *, yes: bool, revoke: bool) -> None:
    """Ask for each file of the project that needs trust, or take the trust back.

    Raises:
        UsageError: nobody is there to ask, and `yes` is not given.
        StoreError: the answer cannot be kept.
    """
    trust = Trust(default_home(os.environ))
    files = list(files_of(folder.resolve()))
    if not files:
        click.echo(f"No file of the project in {folder.resolve()} concerns nbagent.")
    for file in files:
        if revoke:
            was_there = trust.remove(file.path)
            click.echo(f"{file.path}: {'no longer trusted' if was_there else 'was not trusted'}.")
        elif not file.asks:
            click.echo(f"{file.path}: sets nothing that needs your trust.")
        elif trust.holds(file):
            click.echo(f"{file.path}: trusted already.")
        else:
            _ask(trust, file, yes=yes)


def _ask(trust: Trust, file: ProjectFile, *, yes: bool) -> None:
    click.echo(f"{file.path} wants to:")
    for line in file.asks:
        click.echo(f"  {visible(line)}")
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody is there to ask: read the above, then `nbagent trust --yes`")
    if yes or click.confirm("Trust this content?", default=False):
        trust.add(file)
        click.echo("Trusted, until it changes.")
    else:
        click.echo("Not trusted.")
