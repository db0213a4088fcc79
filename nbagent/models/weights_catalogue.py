"""The catalogue of the embedded model's weights: what there is, where it can be had, what it must hash to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Hub(BaseModel):
    """Where a file is on the Hugging Face hub."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository: str
    file: str


class Wheels(BaseModel):
    """A file cut into `count` wheels of the package index; `{n}` in the names is the part's number, from 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    package: str
    version: str
    count: int
    member: str  #: path of the part in the wheel, below the import package


class Weights(BaseModel):
    """One model's weights. `size` is in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    parameters: str  #: how people call its size, e.g. "1.5B"
    license: str
    file: str
    size: int
    sha256: str
    hub: Hub | None = None
    wheels: Wheels | None = None


class Catalogue(BaseModel):
    """The data file of sources."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: str
    weights: tuple[Weights, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pull is. `done` and `total` are bytes; `message` is a line to print, or ""."""

    done: int
    total: int
    message: str = ""


Report = Callable[[Progress], None]


def load_catalogue(text: str = "") -> Catalogue:
    """Read the catalogue: the package's own, or the one in `text`."""
    return Catalogue.model_validate_json(
        text or resources.files("nbagent.models").joinpath("weights_sources.json").read_text("utf-8")
    )


def in_units(size: int) -> str:
    """Write a number of bytes for people: "1.1 GB", "491 MB"."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def sha256(file: Path) -> str:
    """Hash a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
