"""Installs packages into the environment of the kernel's interpreter, once the user has said yes.

The installer works in the kernel's place and is held as its code is, but that it may also write where this
environment keeps its packages: what a package runs while it is built reads no credentials and changes no other
files of the user's.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbagent.errors import KernelNotStarted
from nbagent.events import Output
from nbagent.kernels.programs import Place, run_program
from nbagent.programs import PackageChange, ProgramEnded

LOOK_SECONDS = 20.0  #: for the interpreter to say where it keeps its packages

#: Run by the interpreter that packages are for, which may be another than ours.
_LOOK = """
import importlib.util, json, os, site, sys, sysconfig
print(json.dumps({
    "paths": sysconfig.get_paths(), "prefix": sys.prefix, "own": sys.prefix != sys.base_prefix,
    "user": site.getusersitepackages() if site.ENABLE_USER_SITE else "", "base": site.getuserbase() or "",
    "pip": importlib.util.find_spec("pip") is not None,
}))
"""
_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_PROGRESS_BAR": "off"}
_DISTRIBUTION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]*)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")


@dataclass(frozen=True)
class Environment:
    """Where an interpreter keeps what is installed."""

    writable: tuple[Path, ...]  #: what an installer has to write to
    packages: tuple[Path, ...]  #: folders that modules are imported from
    has_pip: bool

    @classmethod
    def of(cls, told: dict[str, Any]) -> Environment:
        """Make it of what the interpreter says; a folder of the user's own is made where it takes that."""
        paths, prefix = told["paths"], Path(told["prefix"])
        packages = list(dict.fromkeys(Path(paths[name]) for name in ("purelib", "platlib")))
        places = [*packages, Path(paths["scripts"]), prefix / "share", prefix / "etc", Path(paths["include"])]
        if told["own"]:
            places = [prefix]
        elif told["user"] and not all(os.access(place, os.W_OK) for place in packages):
            packages.append(Path(told["user"]))
            places = [Path(told["user"]), Path(told["base"]) / "bin", Path(told["base"]) / "share" / "jupyter"]
            for place in places[:2]:
                place.mkdir(parents=True, exist_ok=True)
        real = [Path(os.path.realpath(place)) for place in places if os.access(place, os.W_OK)]
        return cls(tuple(real), tuple(packages), bool(told["pip"]))

    def versions(self) -> dict[str, str]:
        """Give the packages that are installed, each with its version."""
        found = {}
        for folder in self.packages:
            for entry in folder.iterdir() if folder.is_dir() else ():
                if named := _DISTRIBUTION.fullmatch(entry.name):
                    found[named[1].replace("_", "-")] = named[2]
        return found


async def environment_of(place: Place) -> Environment:
    """Ask the interpreter. Raises `KernelNotStarted` where it does not say."""
    asked = await asyncio.create_subprocess_exec(
        *(place.python, "-c", _LOOK),
        env={**place.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        told, _ = await asyncio.wait_for(asked.communicate(), LOOK_SECONDS)
        return await asyncio.to_thread(Environment.of, json.loads(told.splitlines()[-1]))
    except (TimeoutError, ValueError, LookupError, OSError) as error:
        raise KernelNotStarted(f"{place.python} does not say where its packages are") from error
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()


async def install(
    arguments: Sequence[str], place: Place, *, timeout: float
) -> AsyncGenerator[Output | ProgramEnded, None]:
    """Install what pip's `arguments` name; yield what it prints and one `ProgramEnded` with what changed.

    Raises:
        KernelNotStarted: the interpreter does not say where its packages are.
    """
    there = await environment_of(place)
    before = await asyncio.to_thread(there.versions)
    held = replace(place.confinement, writable=(*place.confinement.writable, *there.writable))
    place = replace(place, confinement=held, environment={**place.environment, **_QUIET})
    program = run_program(_program(place.python, there, arguments), place, timeout=timeout)
    async with aclosing(program) as items:
        async for item in items:
            yield await _with_changes(item, there, before) if isinstance(item, ProgramEnded) else item


async def _with_changes(ended: ProgramEnded, there: Environment, before: dict[str, str]) -> ProgramEnded:
    now = await asyncio.to_thread(there.versions)
    changed = [
        PackageChange(name, before.get(name, ""), now.get(name, ""))
        for name in sorted(before | now)
        if before.get(name) != now.get(name)
    ]
    return replace(ended, packages=tuple(changed), folders=there.packages)


def _program(python: str, there: Environment, arguments: Sequence[str]) -> list[str]:
    """Give the installer that there is: pip, or uv where the environment was made without it."""
    uv = shutil.which("uv")
    if there.has_pip or uv is None:
        return [python, "-m", "pip", "install", *arguments]
    return [uv, "pip", "install", "--python", python, *arguments]
