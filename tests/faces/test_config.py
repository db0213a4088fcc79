"""`%config NbAgent`: shows, completes and sets the settings of a shell, in a real IPython."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import nbagent
from nbagent.options import options


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("NBAGENT_MAX_STEPS", "9")
    made = InteractiveShell(config=Config({"NbAgent": {"approve": "each"}}))
    nbagent.load_ipython_extension(made)
    yield made
    nbagent.unload_ipython_extension(made)
    made.history_manager.end_session()


def config(shell: InteractiveShell, line: str) -> object:
    return shell.run_line_magic("config", line)


def test_it_lists_every_setting_with_what_holds_now(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    config(shell, "NbAgent")
    shown = capsys.readouterr().out
    assert [name for name in (option.name for option in options()) if f"NbAgent.{name}=" not in shown] == []
    assert "Steps after which a run ends unanswered.\n    Current: 9\n" in shown
    assert "Current: 'each'" in shown  # from IPython's own configuration
    assert "api_key" not in shown


def test_a_setting_is_set_over_the_environment_and_taken_back(shell: InteractiveShell) -> None:
    config(shell, "NbAgent.max_steps = 7")
    assert config(shell, "NbAgent.max_steps") == 7
    config(shell, "NbAgent.max_steps = None")
    assert config(shell, "NbAgent.max_steps") == 9


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NbAgent.max_steps = 'many'", "max_steps='many' (config) does not fit"),
        ("NbAgent.max_stps = 7", "did you mean max_steps?"),
        ("NbAgent.api_key = 'sk-1'", "set NBAGENT_API_KEY instead"),
    ],
)
def test_what_does_not_fit_is_said_and_changes_nothing(
    shell: InteractiveShell, line: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    config(shell, line)
    assert said in caplog.text
    config(shell, "NbAgent.max_seconds = 5")
    assert config(shell, "NbAgent.max_seconds") == 5
    assert config(shell, "NbAgent.max_steps") == 9


def test_names_are_completed_and_gone_with_the_extension(shell: InteractiveShell) -> None:
    text = "%config NbAgent.max_st"
    with provisionalcompleter():
        found = [text[: one.start] + one.text for one in shell.Completer.completions(text, len(text))]
    assert any(one.startswith("%config NbAgent.max_steps") for one in found)
    nbagent.unload_ipython_extension(shell)
    assert not [one for one in shell.configurables if type(one).__module__.startswith("nbagent")]
