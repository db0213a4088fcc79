"""Every choice and limit, one sentence each, and where each value came from.

Precedence: option (magic line, command line, API) > `%config` > environment `NBAGENT_<NAME>` > the project's
file > default.
A setting has the same name everywhere: `max_steps`, `--max-steps`, `NBAGENT_MAX_STEPS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from nbagent.errors import SettingsError
from nbagent.events import Risk

ENVIRONMENT_PREFIX = "NBAGENT_"
PROJECT = "project"  #: begins the origin of what a project's file sets
OPENAI_URL = "https://api.openai.com/v1"


def _count_of_last(value: Any) -> Any:
    return value.removeprefix("last:") if isinstance(value, str) else value


def _tool_patterns(given: Any) -> Any:
    """Take patterns apart: `a,b`, or a list of such."""
    words = [given] if isinstance(given, str) else given
    patterns = tuple(pattern for word in words for pattern in str(word).replace(",", " ").split())
    for pattern in patterns:
        kind, colon, value = pattern.partition(":")
        if colon and not (kind == "tag" and value) and not (kind == "risk" and value in get_args(Risk)):
            raise ValueError(f"{pattern!r} is neither a tool's name, tag:TAG nor risk:{'|'.join(get_args(Risk))}")
    return patterns


Patterns = Annotated[tuple[str, ...], BeforeValidator(_tool_patterns)]


def _price(text: str) -> str:
    parts = text.split(",") if text.strip() else []
    try:
        good = len(parts) in (0, 2, 3) and all(float(part) >= 0 for part in parts)
    except ValueError:
        good = False
    if not good:
        raise ValueError("Write it as INPUT,OUTPUT or INPUT,CACHED,OUTPUT, in dollars for a million tokens")
    return text.replace(" ", "")


def _are_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return patterns


class Settings(BaseModel):
    """The choices and limits of a session; each run may change all but those that shape the kernel."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    model: str = Field("", description="Model name, or `local:NAME` for the embedded one.")
    base_url: str = Field("", description="Address of an OpenAI-compatible server, usually ending in /v1.")
    api_key: SecretStr = Field(
        SecretStr(""), description="Key for base_url; best given as NBAGENT_API_KEY beside NBAGENT_BASE_URL."
    )
    key_env: str = Field("", description="Name of the environment variable that holds the key for base_url.")
    dialect: Literal["auto", "tools", "json", "fenced"] = Field(
        "auto", description="How the model expresses actions; auto takes what suits the model."
    )
    temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature; empty for the server's own (embedded model: 0)."
    )
    max_reply_tokens: int | None = Field(
        None, ge=16, description="Longest reply asked of the model, in tokens; empty for the server's own limit."
    )
    context_window: int | None = Field(
        None,
        ge=2048,
        description="Tokens of the model's window; empty for what its server says (else 100000; embedded: 16384).",
    )

    kernel: Literal["fresh", "live", "branch"] = Field(
        "fresh",
        description="What runs the code: a kernel of the session's own; live, your own; or branch, a copy of yours"
        " with all its variables, which changes nothing in it (Linux).",
    )
    python: str = Field("", description="Interpreter of the kernel; empty for the one that runs nbagent.")
    folder: str = Field("", description="Where the kernel works; empty for the current folder.")
    confine: Literal["workspace", "strict", "off"] = Field(
        "workspace",
        description="What the agent's code may do: write to the workspace only; strict: also without network, and"
        " within memory and processor limits; or anything.",
    )
    max_memory: float = Field(
        0,
        ge=0,
        description="Gigabytes that a process of the agent's code may take; 0: no limit (strict: most of it).",
    )
    checkpoints: Literal["on", "off"] = Field(
        "on", description="Whether the kernel's state is kept before each step, so that undo is at once (Linux)."
    )
    checkpoints_kept: int = Field(20, ge=1, description="How many of these states are kept at most.")
    checkpoint_memory: float = Field(
        0.25, gt=0, le=1, description="Share of the free memory that these states may take together."
    )
    allow_write: tuple[str, ...] = Field((), description="Further folders that the agent's code may write to.")
    secret_patterns: Annotated[tuple[str, ...], AfterValidator(_are_patterns)] = Field(
        (), description="Regular expressions of your own secrets: masked like keys, within a line."
    )
    approve: Literal["ask", "auto", "each", "off"] = Field(
        "ask",
        description="Which actions wait for a yes: ask (overwrite, network, destructive), "
        "auto (destructive), each (all), off (none).",
    )
    approval_timeout: float = Field(
        600, gt=0, description="Seconds that a question waits for your answer; then it is a no."
    )
    toolset: Literal["auto", "small", "full"] = Field(
        "auto",
        description="How many tools the model is told of; auto: all, or few where actions are plain text or the "
        "window is small.",
    )
    allow_tools: Patterns = Field(
        (), description="The only tools it may use: names, tag:TAG or risk:GRADE (and milder); empty for all."
    )
    deny_tools: Patterns = Field(
        (), description="Tools that it may not use: names, tag:TAG or risk:GRADE (and worse)."
    )

    session: str = Field("", description="Session to go on with: its id, or the beginning of it.")
    rerun: Literal["ask", "all", "safe", "none"] = Field(
        "ask",
        description="Which cells of a resumed session run again: ask (where they have effects or take long), all, "
        "safe (those without), none.",
    )
    breaker_faults: int | None = Field(
        None,
        ge=1,
        description="Faults in a row after which a tool rests (3, or 2 with confine=strict); not errors of code.",
    )
    breaker_cooldown: float = Field(30, gt=0, description="Seconds that such a tool rests before one more try.")

    replay: Literal["auto", "only", "off"] = Field(
        "auto",
        description="Recorded cells: auto (replayed at first execution in a process), only (no model is asked), "
        "off (the model is always asked).",
    )

    max_steps: int = Field(15, ge=1, description="Steps after which a run ends unanswered.")
    max_seconds: float = Field(1800, gt=0, description="Seconds after which a run ends unanswered.")
    max_tokens: int | None = Field(
        None, ge=1, description="Tokens, in and out, after which a run ends unanswered; empty for no limit."
    )
    max_cost: float | None = Field(
        None,
        gt=0,
        description="US dollars that a run may cost before it asks whether to go on; empty for no limit.",
    )
    price: Annotated[str, AfterValidator(_price)] = Field(
        "",
        description="Dollars for a million tokens as INPUT,OUTPUT or INPUT,CACHED,OUTPUT, "
        "where the bundled table has no price for the model.",
    )
    cell_timeout: float = Field(600, gt=0, description="Seconds after which one action's code is interrupted.")
    startup_timeout: float = Field(60, gt=0, description="Seconds that a kernel may take to start.")
    first_token_timeout: float = Field(
        30, gt=0, description="Seconds to wait for a reply's first token (600 for the embedded model)."
    )
    stream_timeout: float = Field(60, gt=0, description="Seconds to wait between two tokens of a reply.")
    max_retry_seconds: float = Field(120, ge=0, description="Seconds spent waiting for one request's retries.")
    observation_characters: int = Field(
        4000, ge=200, description="Characters of one action's outputs that the model is shown."
    )
    vision: Literal["auto", "on", "off"] = Field(
        "auto", description="Whether figures are sent to the model: auto (to models known to see), on, off."
    )
    image_pixels: int = Field(
        1024, ge=64, le=8192, description="Longest side of a figure that is sent, in pixels."
    )
    output_characters: int = Field(
        200_000, ge=1000, description="Characters of one action's text outputs that are kept and shown."
    )

    plan: bool = Field(False, description="Make a checklist before the work, which you may change; it is ticked.")
    reflect: Literal["auto", "on", "off"] = Field(
        "auto",
        description="When the model is asked whether it knows enough: auto (after failures, before an answer with "
        "figures that were not observed), on (before every answer too), off.",
    )
    approach: Literal["auto", "general", "debugging", "exploring", "plotting", "modelling"] = Field(
        "auto", description="Which advice on the way of working goes with the task; auto chooses by its words."
    )
    cells: Annotated[int, BeforeValidator(_count_of_last)] = Field(
        3, ge=0, description="How many of the user's last cells the model is told of, as N or last:N."
    )
    quiet: bool = Field(False, description="Show the answer only.")


#: Settings that the context of a kernel is built from: changing one needs `%agent reset`.
KERNEL_SETTINGS = (
    "kernel",
    "python",
    "folder",
    "confine",
    "max_memory",
    "allow_write",
    "startup_timeout",
    "checkpoints",
)


@dataclass(frozen=True)
class Resolved:
    """Settings with the origin of each value: `option`, `config`, `environment NAME`, `project PATH`, `default`.

    `notes` are for the user: what was left out, and why.
    """

    settings: Settings
    origins: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def resolve(
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    config: Mapping[str, Any] | None = None,
    *,
    project: Mapping[str, Any] | None = None,
    project_origin: str = PROJECT,
    notes: tuple[str, ...] = (),
) -> Resolved:
    """Merge the sources by precedence. `None` and absent both mean "not given".

    A key belongs to the source that gave its base URL and goes nowhere else:

    * `base_url` by option: `api_key` by option, or the variable that `key_env` names;
    * `NBAGENT_BASE_URL`: `NBAGENT_API_KEY` (or `key_env`);
    * otherwise `OPENAI_BASE_URL` (or OpenAI's own address): `OPENAI_API_KEY`.

    What a project's file sets (`project`) counts least; its key goes to its own base URL alone.

    Raises:
        SettingsError: a setting does not exist, or a value does not fit; the message names it and its origin.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    sources: list[tuple[str, Mapping[str, Any]]] = [("config", config or {}), ("option", options)]
    project = project or {}
    for given, where in ((config or {}, ""), (options, ""), (project, f" ({project_origin})")):
        _refuse_unknown(given, where)
    for name in Settings.model_fields:
        if project.get(name) is not None:
            values[name], origins[name] = project[name], project_origin
        variable = ENVIRONMENT_PREFIX + name.upper()
        if environment.get(variable, "").strip():
            values[name] = _from_text(name, environment[variable].strip())
            origins[name] = f"environment {variable}"
        for origin, given in sources:
            if given.get(name) is not None:
                values[name] = given[name]
                origins[name] = origin
    _settle_key(values, origins, environment, project)
    try:
        return Resolved(Settings.model_validate(values), origins, notes)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        said = str(first.get("ctx", {}).get("error") or first["msg"])  # a validator's own words, or pydantic's
        reason = said[0].lower() + said[1:]
        given_by = origins.get(name, "option")
        raise SettingsError(f"{name}={first['input']!r} ({given_by}) does not fit: {reason}") from None


def _refuse_unknown(given: Mapping[str, Any], where: str) -> None:
    for name in given:
        if name not in Settings.model_fields:
            nearest = get_close_matches(name, Settings.model_fields, n=1)
            hint = f": did you mean {nearest[0]}?" if nearest else "; see `%agent help`"
            raise SettingsError(f"there is no setting {name!r}{where}{hint}")


def _from_text(name: str, text: str) -> Any:
    if name == "allow_write":
        return tuple(part for part in text.split(":") if part)
    if name == "secret_patterns":  # a colon may stand in a pattern
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    return text


def _settle_key(
    values: dict[str, Any], origins: dict[str, str], environment: Mapping[str, str], project: Mapping[str, Any]
) -> None:
    """Pair the key with the base URL of the same source; drop a key that belongs to another."""
    url_origin, key_origin = origins["base_url"], origins["api_key"]
    local = str(values.get("model", "")).startswith("local:")
    if local:
        for name in ("base_url", "api_key"):
            values.pop(name, None)
            origins[name] = "default"
        return
    for name in ("api_key", "key_env"):
        # A project's key is for its own server; to that go no keys but its own and those of this very line.
        origin, to_project = origins[name], url_origin.startswith(PROJECT)
        if origin != url_origin and (origin.startswith(PROJECT) or (to_project and origin != "option")):
            values[name], origins[name] = (project.get(name), url_origin) if to_project else (None, "default")
            if values[name] is None:
                del values[name]
    key_origin = origins["api_key"]
    if values.get("key_env"):
        variable = str(values["key_env"])
        key = environment.get(variable, "").strip()
        if not key:
            raise SettingsError(f"key_env names {variable}, which is not set in the environment")
        values["api_key"], origins["api_key"] = SecretStr(key), f"environment {variable}"
    elif url_origin != "default" and not url_origin.startswith("environment"):
        if key_origin != url_origin:
            values.pop("api_key", None)
            origins["api_key"] = "default"
    elif url_origin == "default" and key_origin == "default":
        _take_openai(values, origins, environment)
    if values.get("api_key") and not values.get("base_url"):
        values["base_url"] = OPENAI_URL
    given = values.get("api_key")
    if given is not None:
        text = given.get_secret_value() if isinstance(given, SecretStr) else str(given)
        values["api_key"] = SecretStr(text.strip())


def _take_openai(values: dict[str, Any], origins: dict[str, str], environment: Mapping[str, str]) -> None:
    url = environment.get("OPENAI_BASE_URL", "").strip()
    key = environment.get("OPENAI_API_KEY", "").strip()
    if url:
        values["base_url"], origins["base_url"] = url, "environment OPENAI_BASE_URL"
    if key:
        values["api_key"], origins["api_key"] = SecretStr(key), "environment OPENAI_API_KEY"
