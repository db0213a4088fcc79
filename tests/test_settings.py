"""Where each setting's value comes from, and which key goes to which host."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.errors import SettingsError
from nbagent.settings import KERNEL_SETTINGS, OPENAI_URL, Settings, resolve

STUB = "http://127.0.0.1:8080/v1"
REAL = {"OPENAI_API_KEY": "sk-test-real"}


def key_of(options: dict[str, Any], environment: dict[str, str], config: dict[str, Any] | None = None) -> str:
    return resolve(options, environment, config).settings.api_key.get_secret_value()


# -- precedence -----------------------------------------------------------------------------------------


def test_option_goes_before_config_before_environment_before_default() -> None:
    environment, config, option = {"NBAGENT_MAX_STEPS": "3"}, {"max_steps": 4}, {"max_steps": 5}
    found = [
        resolve({}, {}),
        resolve({}, environment),
        resolve({}, environment, config),
        resolve(option, environment, config),
    ]
    assert [resolved.settings.max_steps for resolved in found] == [15, 3, 4, 5]
    origins = [resolved.origins["max_steps"] for resolved in found]
    assert origins == ["default", "environment NBAGENT_MAX_STEPS", "config", "option"]


def test_none_and_empty_variables_mean_not_given() -> None:
    resolved = resolve({"max_steps": None}, {"NBAGENT_MAX_STEPS": " "}, {"max_steps": None})
    assert (resolved.settings.max_steps, resolved.origins["max_steps"]) == (15, "default")


def test_values_that_mean_something_but_are_false_are_given() -> None:
    assert resolve({"cells": 0}, {"NBAGENT_CELLS": "5"}).settings.cells == 0


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_an_environment_variable_and_a_sentence(name: str) -> None:
    description = Settings.model_fields[name].description
    assert description
    assert description.endswith((".", ")"))
    assert description[0].isupper()
    fitting = {
        "dialect": "tools",
        "kernel": "fresh",
        "confine": "off",
        "checkpoints": "on",
        "checkpoint_memory": "0.5",
        "approve": "each",
        "quiet": "true",
        "rerun": "all",
        "replay": "only",
        "toolset": "full",
        "vision": "on",
        "image_pixels": "800",
        "approach": "plotting",
        "reflect": "off",
        "plan": "true",
    }
    number = {"price": "1,2", "temperature": "1.5", "context_window": "4096", "observation_characters": "500"}
    value = {**fitting, **number, "output_characters": "5000", "key_env": "MINE"}.get(name, "20")
    variable = f"NBAGENT_{name.upper()}"
    assert resolve({}, {variable: value, "MINE": "k"}).origins[name] == f"environment {variable}"


def test_a_list_of_folders_is_separated_by_colons() -> None:
    assert resolve({}, {"NBAGENT_ALLOW_WRITE": "/a:/b:"}).settings.allow_write == ("/a", "/b")


def test_what_shapes_the_kernel_are_settings() -> None:
    assert set(KERNEL_SETTINGS) <= set(Settings.model_fields)


# -- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ({"max_steps": 0}, {}, "max_steps=0 (option) does not fit: input should be greater than or equal to 1"),
        ({}, {"NBAGENT_MAX_STEPS": "many"}, "max_steps='many' (environment NBAGENT_MAX_STEPS) does not fit"),
        ({"approve": "yes"}, {}, "approve='yes' (option) does not fit: input should be 'ask', 'auto'"),
        ({"cell_timeout": "soon"}, {}, "cell_timeout='soon' (option) does not fit"),
        ({"key_env": "NOPE"}, {}, "key_env names NOPE, which is not set in the environment"),
    ],
)
def test_a_value_that_does_not_fit_is_one_line_with_its_origin(
    options: dict[str, Any], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(options, environment)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_of_the_config_that_does_not_fit_names_the_config() -> None:
    with pytest.raises(SettingsError, match=r"max_seconds=-1 \(config\)"):
        resolve({}, {}, {"max_seconds": -1})


def test_a_setting_that_does_not_exist_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"there is no setting 'max_step': did you mean max_steps\?"):
        resolve({"max_step": 3}, {})
    with pytest.raises(SettingsError, match="there is no setting 'zzz'; see `%agent help`"):
        resolve({}, {}, {"zzz": None})


# -- keys (CFG-01) --------------------------------------------------------------------------------------


def test_without_anything_there_is_no_key_and_no_address() -> None:
    settings = resolve({}, {}).settings
    assert (settings.base_url, settings.api_key.get_secret_value()) == ("", "")


def test_a_local_server_needs_no_key() -> None:
    settings = resolve({"base_url": STUB, "model": "m"}, {}).settings
    assert (settings.base_url, settings.api_key.get_secret_value()) == (STUB, "")


def test_openais_key_goes_to_openai() -> None:
    resolved = resolve({}, REAL)
    assert resolved.settings.base_url == OPENAI_URL
    assert resolved.settings.api_key.get_secret_value() == "sk-test-real"
    assert resolved.origins["api_key"] == "environment OPENAI_API_KEY"


def test_openais_key_goes_to_openais_own_variable_of_the_address() -> None:
    resolved = resolve({}, {**REAL, "OPENAI_BASE_URL": STUB})
    assert (resolved.settings.base_url, resolved.settings.api_key.get_secret_value()) == (STUB, "sk-test-real")
    assert resolved.origins["base_url"] == "environment OPENAI_BASE_URL"


@pytest.mark.parametrize(
    ("options", "environment", "config"),
    [
        ({"base_url": STUB}, REAL, None),
        ({}, REAL, {"base_url": STUB}),
        ({}, {**REAL, "NBAGENT_BASE_URL": STUB}, None),
        ({"base_url": STUB}, {"NBAGENT_API_KEY": "sk-other", "NBAGENT_BASE_URL": "http://other/v1"}, None),
        ({"base_url": STUB}, {}, {"api_key": "sk-other", "base_url": "http://other/v1"}),
        ({"model": "local:small"}, {**REAL, "NBAGENT_API_KEY": "sk-other"}, None),
    ],
)
def test_a_key_never_goes_to_the_address_of_another_source(
    options: dict[str, Any], environment: dict[str, str], config: dict[str, Any] | None
) -> None:
    assert key_of(options, environment, config) == ""
    assert resolve(options, environment, config).origins["api_key"] == "default"


@pytest.mark.parametrize(
    ("options", "environment", "config", "key"),
    [
        ({"base_url": STUB, "api_key": "sk-o"}, REAL, None, "sk-o"),
        ({}, {"NBAGENT_BASE_URL": STUB, "NBAGENT_API_KEY": "sk-e", **REAL}, None, "sk-e"),
        ({}, REAL, {"base_url": STUB, "api_key": "sk-c"}, "sk-c"),
        ({"base_url": STUB, "key_env": "MINE"}, {"MINE": "sk-m", **REAL}, None, "sk-m"),
        ({"base_url": STUB, "key_env": "OPENAI_API_KEY"}, REAL, None, "sk-test-real"),
    ],
)
def test_a_key_goes_to_the_address_that_its_own_source_gave(
    options: dict[str, Any], environment: dict[str, str], config: dict[str, Any] | None, key: str
) -> None:
    resolved = resolve(options, environment, config)
    assert resolved.settings.base_url == STUB
    assert resolved.settings.api_key.get_secret_value() == key


def test_the_address_of_the_config_wins_over_openais_variable_and_says_so() -> None:
    resolved = resolve({}, {"OPENAI_BASE_URL": "http://other/v1", **REAL}, {"base_url": STUB})
    assert (resolved.settings.base_url, resolved.origins["base_url"]) == (STUB, "config")


@pytest.mark.parametrize("environment", [{"OPENAI_API_KEY": " sk-x \n"}, {"NBAGENT_API_KEY": "sk-x\n"}])
def test_spaces_around_a_key_are_trimmed(environment: dict[str, str]) -> None:
    assert key_of({}, environment) == "sk-x"
    assert key_of({"base_url": STUB, "api_key": "sk-x\n"}, {}) == "sk-x"


def test_a_key_is_not_in_the_settings_text() -> None:
    resolved = resolve({}, REAL)
    for text in (repr(resolved), str(resolved.settings), resolved.settings.model_dump_json()):
        assert "sk-test-real" not in text


def test_an_embedded_model_has_no_address() -> None:
    resolved = resolve({"model": "local:small"}, {"NBAGENT_BASE_URL": STUB})
    assert (resolved.settings.base_url, resolved.origins["base_url"]) == ("", "default")


@pytest.mark.parametrize("given", ["run_shell, tag:web risk:network", ["run_shell", "tag:web,risk:network"]])
def test_patterns_of_tools_are_separated_by_commas_or_spaces(given: Any) -> None:
    patterns = ("run_shell", "tag:web", "risk:network")
    assert resolve({"deny_tools": given}, {}).settings.deny_tools == patterns


@pytest.mark.parametrize("pattern", ["risk:high", "tag:", "kind:web"])
def test_a_pattern_of_no_known_kind_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError, match=f"deny_tools.*{pattern}"):
        resolve({}, {"NBAGENT_DENY_TOOLS": pattern})


@pytest.mark.parametrize("price", ["20", "a,b", "1,2,3,4", "-1,2"])
def test_a_price_that_is_none_says_how_to_write_it(price: str) -> None:
    with pytest.raises(SettingsError, match="does not fit: write it as INPUT,OUTPUT"):
        resolve({"price": price}, {})
