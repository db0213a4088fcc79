"""The model of a session, kept for as long as nothing that decides it changes."""

from __future__ import annotations

from nbagent.models.choose import Choice, choose_model
from nbagent.settings import Settings

#: Settings that `choose_model` builds from: changing one makes the choice anew.
MODEL_SETTINGS = {
    *("model", "base_url", "api_key", "dialect", "temperature", "max_reply_tokens", "context_window"),
    *("first_token_timeout", "stream_timeout", "max_retry_seconds", "observation_characters", "price"),
    *("vision", "image_pixels"),
}


class ModelKeeper:
    """Chooses when it is asked, and closes what it no longer keeps."""

    def __init__(self) -> None:
        self._choice: Choice | None = None
        self._chosen_by: tuple[object, ...] = ()

    async def choose(self, settings: Settings) -> Choice:
        """Give the model at hand, or choose anew. Raises what `choose_model` raises."""
        key = (*settings.model_dump(include=MODEL_SETTINGS).values(), settings.max_cost is None)
        if self._choice is None or key != self._chosen_by:
            before, self._choice = self._choice, await choose_model(settings)
            self._chosen_by = key
            if before is not None:
                await before.close()
        return self._choice

    async def close(self) -> None:
        """Close the model, if there is one."""
        if self._choice is not None:
            await self._choice.close()
