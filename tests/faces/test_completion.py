"""What Tab offers after the magics, in a real IPython shell, as a front end asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import nbagent
from nbagent.events import SessionStarted
from nbagent.stores.files import FileStore


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    made = InteractiveShell()
    nbagent.load_ipython_extension(made)
    made.user_ns["sales"], made.user_ns["_hidden"] = [1], 2
    yield made
    made.history_manager.end_session()


def offered(shell: InteractiveShell, text: str) -> list[str]:
    with provisionalcompleter():
        found = shell.Completer.completions(text, len(text))
        return [text[: one.start] + one.text for one in found]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%agent st", "%agent status"),
        ("%agent export --cl", "%agent export --clean"),
        ("%agent undo 2 --re", "%agent undo 2 --rerun"),
        ("%agent bring sa", "%agent bring sales"),
        ("%agent model p", "%agent model pull"),
        ("%%agent --appr", "%%agent --approve"),
        ("%%agent --approve e", "%%agent --approve each"),
        ("%%agent --model local:qwen2.5-coder-1", "%%agent --model local:qwen2.5-coder-1.5b"),
        ("%%agent --max-steps 5 --dia", "%%agent --max-steps 5 --dialect"),
        ("%%agent --aga", "%%agent --again"),
        ("%%agent --kernel b", "%%agent --kernel branch"),
        ("%%agent --kernel live --confine s", "%%agent --kernel live --confine strict"),
        ("%agent help o", "%agent help options"),
    ],
)
def test_commands_options_values_and_names_are_offered(shell: InteractiveShell, text: str, wanted: str) -> None:
    assert wanted in offered(shell, text)


def test_an_option_that_was_given_is_not_offered_again(shell: InteractiveShell) -> None:
    assert "%%agent --max-steps 5 --max-steps" not in offered(shell, "%%agent --max-steps 5 --max")


def test_hidden_names_and_other_lines_are_left_alone(shell: InteractiveShell) -> None:
    assert not [one for one in offered(shell, "%agent bring ") if "_hidden" in one]
    assert not [one for one in offered(shell, "sal") if one.startswith("--")]


def test_sessions_are_offered_by_their_ids(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NBAGENT_HOME", str(tmp_path))
    log = FileStore(tmp_path).create()
    log.append(SessionStarted(nonce="n", versions={}, folder="/data"))
    log.close()
    for before in ("%agent resume ", "%%agent --session "):
        assert f"{before}{log.id}" in offered(shell, before + log.id[:9])
