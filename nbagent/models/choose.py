"""Which model a run talks to, and in which dialect.

Nothing is chosen silently: a key without a model name gives the server's own list and how to choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nbagent.errors import ModelError, NoModelError, SettingsError
from nbagent.events import DialectName
from nbagent.models import weights
from nbagent.models.address import normalise
from nbagent.models.embedded import EmbeddedModel
from nbagent.models.openai_chat import OpenAIChat
from nbagent.models.pricing import FREE, Price, price_of
from nbagent.models.vision import takes_figures
from nbagent.models.window import Window, asked_window
from nbagent.protocols import Model
from nbagent.settings import Settings

LOCAL_PREFIX = "local:"
#: What measures best with the embedded model: see tests/benchmarks.
EMBEDDED_DIALECT: Literal["fenced"] = "fenced"
#: A small model guesses where it should compute, and explains an error instead of mending it. Where only code
#: will do, its reply begins with this: then it cannot.
EMBEDDED_OPENING = "```python\n#"
#: A temperature at which small models find another way and still write code that runs; the same each time.
VARIED: Mapping[str, float | int] = {"temperature": 0.7, "seed": 7}
EMBEDDED_WINDOW = 16384
EMBEDDED_REPLY_TOKENS = 1024
#: It reads at some 60 tokens/s on two cores: a long conversation that is not cached takes minutes.
EMBEDDED_PATIENCE = 4.0
EMBEDDED_OBSERVATION_CHARACTERS = 2000
#: Servers that do not tell a model's window.
SILENT_HOSTS = ("https://api.openai.com",)

NOTHING_TO_TALK_TO = (
    "no model: run `nbagent model pull` for the local one (1.1 GB), or set OPENAI_API_KEY, "
    "or name a server with --base-url"
)

#: Settings that `choose_model` builds from: changing one makes the choice anew.
MODEL_SETTINGS = {
    *("model", "base_url", "api_key", "dialect", "temperature", "max_reply_tokens", "context_window"),
    *("first_token_timeout", "stream_timeout", "max_retry_seconds", "observation_characters", "price"),
}


@dataclass(frozen=True)
class Choice:
    """A model with what suits it. `note` is said to the user once."""

    model: Model
    name: str  #: as requests name it
    dialect: DialectName
    why: str
    parameters: dict[str, float | int]
    window: Window
    observation_characters: int
    image_pixels: int = field(default=0, kw_only=True)  #: longest side of figures that are sent; 0: none are
    patience: float = field(default=1.0, kw_only=True)  #: how much more time than a server's its replies take
    price: Price | None  #: None where it is not known
    key: str  #: server and model, as what is remembered of them is filed
    negotiable: bool = False  #: another dialect may be tried where this one does not work
    note: str = ""
    #: Fields of a request from the time on when the model repeats itself, if its replies leave nothing to chance.
    varied: Mapping[str, float | int] = field(default_factory=dict)
    opening: str = ""  #: begins a reply that must be an action, where the server lets a request do so

    async def close(self) -> None:
        """Let go of the model."""
        await self.window.close()
        await self.model.close()


async def choose_model(settings: Settings) -> Choice:
    """Choose by the settings alone.

    Raises:
        NoModelError: nothing to talk to, no weights, or no model named; the message lists the choices.
        SettingsError: there is a limit of money and no price to keep it by.
        ModelError: the embedded model's server did not start.
    """
    if settings.model.startswith(LOCAL_PREFIX):
        return await _embedded(settings, settings.model.removeprefix(LOCAL_PREFIX))
    if settings.base_url:
        return await _server(settings)
    if settings.model:
        raise NoModelError(
            f"model {settings.model!r} needs a server: set OPENAI_API_KEY, or --base-url, "
            "or use local:NAME (see `nbagent model list`)"
        )
    if weights.find(weights.default_name()) is None:
        raise NoModelError(NOTHING_TO_TALK_TO)
    note = f"No key and no base URL: using the local model {weights.default_name()}."
    return await _embedded(settings, weights.default_name(), note)


async def _embedded(settings: Settings, name: str, note: str = "") -> Choice:
    model = EmbeddedModel(name, context=EMBEDDED_WINDOW)
    try:
        await model.warm_up()
    except BaseException:  # stopped, too: a server that nobody talks to must not stay
        await model.close()
        raise
    dialect = EMBEDDED_DIALECT if settings.dialect == "auto" else settings.dialect
    return Choice(
        model=model,
        name=name,
        dialect=dialect,
        why="what measures best with the embedded model" if settings.dialect == "auto" else "by setting",
        parameters={
            "temperature": settings.temperature or 0.0,
            "max_tokens": settings.max_reply_tokens or EMBEDDED_REPLY_TOKENS,
        },
        window=Window(min(settings.context_window or EMBEDDED_WINDOW, EMBEDDED_WINDOW)),
        observation_characters=min(settings.observation_characters, EMBEDDED_OBSERVATION_CHARACTERS),
        patience=EMBEDDED_PATIENCE,
        price=FREE,
        key=model.name,
        note=note,
        varied=VARIED if settings.temperature is None else {},
        opening=EMBEDDED_OPENING if dialect == "fenced" else "",
    )


async def _server(settings: Settings) -> Choice:
    price = _given_price(settings.price) or price_of(settings.model, settings.base_url)
    if settings.max_cost is not None and price is None and settings.model:
        raise SettingsError(
            f"max_cost cannot be kept: no price is known for {settings.model} there; give it with "
            "--price INPUT,OUTPUT (dollars for a million tokens), or limit --max-tokens"
        )
    model = OpenAIChat(
        settings.model,
        settings.base_url,
        settings.api_key.get_secret_value(),
        first_token_timeout=settings.first_token_timeout,
        stream_timeout=settings.stream_timeout,
        max_retry_seconds=settings.max_retry_seconds,
    )
    if not settings.model:
        raise NoModelError(await _which_models(model))
    parameters: dict[str, float | int] = {}
    if settings.temperature is not None:
        parameters["temperature"] = settings.temperature
    if settings.max_reply_tokens is not None:
        parameters["max_tokens"] = settings.max_reply_tokens
    return Choice(
        model=model,
        name=settings.model,
        dialect="tools" if settings.dialect == "auto" else settings.dialect,
        why="servers are tried with tool calls first" if settings.dialect == "auto" else "by setting",
        parameters=parameters,
        window=_window(settings, model),
        observation_characters=settings.observation_characters,
        image_pixels=settings.image_pixels if takes_figures(settings.model, settings.vision) else 0,
        price=price,
        key=f"{normalise(settings.base_url)} {settings.model}",
        negotiable=settings.dialect == "auto",
    )


def _given_price(text: str) -> Price | None:
    if not text:
        return None
    figures = [float(part) for part in text.split(",")]
    return Price(figures[0], figures[-2] if len(figures) == 3 else figures[0], figures[-1])


def _window(settings: Settings, model: OpenAIChat) -> Window:
    """Begin to ask the server for the model's window, unless it is one that never says."""
    window = Window(settings.context_window)
    if model.host not in SILENT_HOSTS:
        window.ask(asked_window(settings.model, model.fetch))
    return window


async def _which_models(model: OpenAIChat) -> str:
    how = "choose one with --model NAME or NBAGENT_MODEL"
    try:
        names = await model.models()
    except ModelError as error:
        return f"no model is named; {how} ({error})"
    finally:
        await model.close()
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"no model is named; {model.host} offers {listed or 'none'}: {how}"
