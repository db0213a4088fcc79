"""The architecture as a test: imports go down only, rooms stay small."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "nbagent"

LAYERS = {
    0: (
        *("states", "event_provenance", "parcels"),
        *("event_base", "mind", "events", "errors", "settings", "protocols", "session_store"),
        *("redaction", "reply", "tool_traits", "glance", "importing", "inspection", "interrupted"),
        *(
            "last_exception",
            "secret_rules",
            "secret_shapes",
            "places",
            "programs",
            "stopping",
            "usual_imports",
            "text_columns",
            "data_files",
        ),
    ),
    1: ("models", "kernels", "tools", "stores", "host"),
    2: (
        *(
            "prompt",
            "closing",
            "provenance",
            "context",
            "guards",
            "answer_form",
            "answers",
            "loop",
            "session",
            "agent_thread",
        ),
        *(
            "turns",
            "folding",
            "aside",
            "compaction",
            "task_reading",
            "reflection",
            "figures",
            "plan",
            "checklist",
            "beside",
        ),
        *("steps", "needed_cells", "workplace", "resume", "replay_run", "record", "same_outputs", "file_history"),
        *("listening", "negotiation", "meter", "summing_up", "live_text"),
        *("repetition", "remembered"),
        *("undo", "project"),
    ),
    3: (
        "view",
        "notebook",
        *("magic", "magic_settings"),
        "spending",
        "cell",
        "cell_sessions",
        "magic_commands",
        "completion",
        "options",
        "listing",
        "cli",
        *("cli_run", "cli_trust"),
        "api",
        "demo",
        "lab",
    ),
}
ROOM_LAYER = {room: layer for layer, rooms in LAYERS.items() for room in rooms}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text())


def lines(source: Path) -> int:
    return source.read_text().count("\n")


def imported_rooms(source: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {room_of(name) for name in names if name.split(".")[0] == "nbagent"}
    return rooms - {"", "__version__"}


def test_imports_go_down_only() -> None:
    upwards = []
    for source in SOURCES:
        room = source.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        layer = ROOM_LAYER[room]
        for other in imported_rooms(source) - {room}:
            allowed = ROOM_LAYER[other] < layer or (ROOM_LAYER[other] == layer and layer in (0, 2, 3))
            if not allowed:
                upwards.append(f"{source}: {room} (layer {layer}) imports {other} (layer {ROOM_LAYER[other]})")
    assert not upwards, "\n".join(upwards)


def test_rooms_and_functions_are_small() -> None:
    large = [f"{source} is over 400 lines: it wants another room" for source in SOURCES if lines(source) > 400]
    for source in SOURCES:
        nodes = ast.walk(parsed(source))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        large += [
            f"{source}: {function.name} is over 60 lines"
            for function in functions
            if (function.end_lineno or 0) - function.lineno >= 60
        ]
    assert not large, "\n".join(large)


HEAVY = {"pydantic", "openai", "ipywidgets", "anywidget", "zmq", "httpx", "rich", "jupyter_client"}


def test_loading_the_extension_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell as Shell;"
        "before = set(sys.modules); Shell.instance().run_line_magic('load_ext', 'nbagent');"
        f"print(sorted({HEAVY!r} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, nbagent; heavy = {'pydantic', 'openai', 'ipywidgets', 'zmq', 'IPython', 'httpx', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""
