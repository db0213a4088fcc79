"""What worked with a server and model is known for a week: how it takes actions, which fields it refuses.

One small JSON file beside the sessions. It is a convenience: a file that cannot be read or written is none.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nbagent.events import DialectName

DAYS = 7
FILE = "servers.json"


class Known(BaseModel):
    """What is known of one model at one server. `when` is in seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    when: float = 0.0
    dialect: DialectName | None = None  #: the one that the model acted in
    refused: tuple[str, ...] = Field(default=())  #: fields of a request that the server does not take


_adapter: TypeAdapter[dict[str, Known]] = TypeAdapter(dict[str, Known])


@dataclass(frozen=True)
class Remembered:
    """The file. `key` names server and model, as in `http://127.0.0.1:8000/v1 qwen3`."""

    path: Path
    now: Callable[[], float] = time.time

    def known(self, key: str) -> Known:
        """Give what is known; what is older than a week is forgotten."""
        return self._read().get(key, Known())

    def learn(self, key: str, **news: Any) -> None:
        """Add to what is known of a server and model."""
        everything = self._read()
        known = everything.get(key, Known()).model_copy(update={**news, "when": self.now()})
        everything[key] = known
        text = json.dumps({name: one.model_dump(mode="json") for name, one in everything.items()}, indent=1)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, written = tempfile.mkstemp(dir=self.path.parent, prefix=FILE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(written).replace(self.path)

    def _read(self) -> dict[str, Known]:
        try:
            everything = _adapter.validate_json(self.path.read_bytes())
        except (OSError, ValidationError):
            return {}
        oldest = self.now() - DAYS * 24 * 3600
        return {key: known for key, known in everything.items() if oldest < known.when <= self.now()}
