"""A script: loads the files of this folder for an interpreter that may not have nbagent and starts the keeper."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path


def load_keeper() -> types.ModuleType:
    """Import the keeper under its own name and leave no trace of ours where the user's imports look.

    The real `nbagent`, should the interpreter have it, stays importable by the code that runs here.
    """
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here]
    folders = {
        "nbagent": here.parent.parent,
        "nbagent.kernels": here.parent,
        "nbagent.kernels.zygote": here,
    }
    for name, folder in folders.items():
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(folder)]
    keeper = importlib.import_module("nbagent.kernels.zygote.keeper")
    for name in [name for name in sys.modules if name.partition(".")[0] == "nbagent"]:
        del sys.modules[name]
    return keeper


if __name__ == "__main__":
    load_keeper().main(*map(int, sys.argv[1:]))
