"""Which tools there are, where they come from, and which of them a session offers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbagent
from nbagent.errors import SettingsError, ToolDefinitionError
from nbagent.prompt import system_prompt
from nbagent.protocols import Tool
from nbagent.tools import registry as registry_module
from nbagent.tools.built_in import RESERVED, built_in
from nbagent.tools.permission import Permission
from nbagent.tools.registry import Registry, package_entries, unregister
from nbagent.tools.sharing import Sharing

ANYTHING = Permission()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(built_in(tmp_path, Sharing()))


@pytest.fixture
def own_tool() -> Iterator[Tool]:
    @nbagent.tool(risk="network", tags=["web"])
    def fetch(url: str) -> str:
        """Fetch a page."""
        return url

    yield fetch
    unregister("fetch")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with a tool, a plain function, a name that is taken, and one that does not load."""
    (tmp_path / "geo_tools.py").write_text(
        "import nbagent\n"
        "@nbagent.tool(risk='read')\n"
        "def locate(place: str) -> str:\n    'Locate a place.'\n    return place\n"
        "def plain(place: str) -> str:\n    'Say a place.'\n    return place\n"
        "def run_code(code: str) -> str:\n    'Take over.'\n    return code\n"
        "def untyped(place):\n    'Nothing known.'\n"
    )
    information = tmp_path / "geo_tools-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: geo-tools\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[nbagent.tools]\nlocate = geo_tools:locate\nplain = geo_tools:plain\nrun_code = geo_tools:run_code\n"
        "untyped = geo_tools:untyped\nbroken = not_installed:tool\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    package_entries.cache_clear()
    yield
    package_entries.cache_clear()
    sys.modules.pop("geo_tools", None)


def names(registry: Registry, dialect: str = "tools", **given: object) -> list[str]:
    chosen = {"small": False, "with_host": True, "permission": ANYTHING, **given}
    return [tool.name for tool in registry.offered(dialect, **chosen)]  # type: ignore[arg-type]


def test_a_users_tool_is_offered_and_may_be_made_anew(registry: Registry, own_tool: Tool) -> None:
    assert "fetch" in names(registry)

    @nbagent.tool
    def fetch(url: str, times: int) -> str:
        """Fetch a page again."""
        return url

    (entry,) = [entry for entry in registry.entries() if entry.name == "fetch"]
    assert (entry.origin, entry.tool) == ("session", fetch)
    assert names(registry).count("fetch") == 1


def test_a_built_in_name_is_not_to_be_had() -> None:
    with pytest.raises(ToolDefinitionError, match="run_code is the name of a built-in tool"):

        @nbagent.tool
        def run_code(code: str) -> str:
            """Take over."""
            return code


def test_every_built_in_name_is_reserved(tmp_path: Path) -> None:
    assert {tool.name for tool in built_in(tmp_path, Sharing())} <= RESERVED


def test_packages_bring_tools_by_entry_point(registry: Registry, package: None) -> None:
    entries = {(entry.name, entry.origin): entry for entry in registry.entries()}
    assert {"locate", "plain"} <= set(names(registry))
    assert names(registry).count("run_code") == 1
    assert "its name is taken (built in)" in entries["run_code", "package geo-tools"].fault
    assert "needs a type" in entries["untyped", "package geo-tools"].fault
    assert entries["broken", "package geo-tools"].fault.startswith("not loaded: ModuleNotFoundError")
    assert "locate" not in registry_module._own


def test_small_models_are_offered_few_and_fenced_code_only(registry: Registry, own_tool: Tool) -> None:
    assert names(registry, "fenced") == ["run_code"]
    assert "final_answer" in names(registry, "json", small=True)
    assert "final_answer" not in names(registry)
    assert "bring_variable" not in names(registry, with_host=False)
    assert "fetch" in names(registry, small=True)


def test_a_model_that_can_only_run_code_needs_run_code(registry: Registry) -> None:
    with pytest.raises(
        SettingsError, match=r"run_code is denied by setting \(deny_tools=run_\*\), and this model"
    ):
        names(registry, "fenced", permission=Permission(deny=("run_*",)))


@pytest.mark.parametrize(
    ("permission", "gone"),
    [
        (Permission(deny=("fetch",)), True),
        (Permission(deny=("fe*",)), True),
        (Permission(deny=("tag:web",)), True),
        (Permission(deny=("tag:data",)), False),
        (Permission(deny=("risk:network",)), True),
        (Permission(deny=("risk:write",)), True),
        (Permission(deny=("risk:destructive",)), False),
        (Permission(allow=("run_code",)), True),
        (Permission(allow=("tag:web", "run_code")), False),
        (Permission(allow=("risk:network",)), False),
        (Permission(allow=("risk:overwrite",)), True),
        (Permission(allow=("fetch",), deny=("tag:web",)), True),
    ],
)
def test_permission_is_by_name_tag_and_risk(
    registry: Registry, own_tool: Tool, permission: Permission, gone: bool
) -> None:
    assert ("fetch" not in names(registry, permission=permission)) is gone


def test_a_tool_that_is_graded_call_by_call_is_judged_by_its_grade(registry: Registry) -> None:
    (run_code,) = registry.offered("fenced", small=True, with_host=False, permission=ANYTHING)
    denied = Permission(deny=("risk:network",))
    assert denied.of_tool(run_code) == ""
    assert denied.of_call(run_code, "write") == ""
    assert denied.of_call(run_code, "destructive") == "denied by setting (deny_tools=risk:network)"


@pytest.mark.parametrize(("small", "limit"), [(False, 6000), (True, 2500)])
def test_the_fixed_part_of_the_prompt_is_small(registry: Registry, small: bool, limit: int) -> None:
    """What every request begins with, as the model reads it: the system prompt and the tools."""
    from nbagent.models.dialects import dialect_named
    from nbagent.turns import encode

    tools = registry.offered("tools", small=small, with_host=True, permission=ANYTHING)
    specs = [tool.spec for tool in tools]
    assert len(system_prompt("tools", specs)) + len(encode(dialect_named("tools").parameters(specs))) <= limit
    tools = registry.offered("json", small=small, with_host=True, permission=ANYTHING)
    assert len(system_prompt("json", [tool.spec for tool in tools])) <= limit
