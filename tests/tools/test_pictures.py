"""Figures for models that see are small; what cannot be made small is not sent."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import struct
import zlib
from typing import Any

import pytest

from nbagent.models.vision import sees
from nbagent.tools.pictures import LARGEST, MOST, pictures, png_size

PIL = pytest.importorskip("PIL.Image")


def packed(width: int, height: int, kind: str = "PNG", *, noise: bool = False, mode: str = "RGB") -> str:
    data = os.urandom(width * height * len(mode)) if noise else bytes(width * height * len(mode))
    file = io.BytesIO()
    PIL.frombytes(mode, (width, height), data).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def shown(kind: str, data: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {kind: data, "text/plain": "<Figure>"}, "metadata": {}}


def opened(image: dict[str, str]) -> Any:
    [data] = image.values()
    return PIL.open(io.BytesIO(base64.b64decode(data)))


def test_a_small_figure_is_sent_as_it_is() -> None:
    data = packed(640, 480)
    assert pictures([shown("image/png", data + "\n")], 1024) == [{"image/png": data}]
    assert png_size(base64.b64decode(data)) == (640, 480)


@pytest.mark.parametrize(
    ("width", "height", "kind", "noise", "mode"),
    [
        (3000, 2000, "PNG", False, "RGB"),
        (1500, 1500, "PNG", True, "RGB"),
        (1500, 1500, "PNG", True, "RGBA"),
        (3000, 20, "PNG", False, "L"),
        (2000, 1000, "JPEG", True, "RGB"),
        (800, 600, "GIF", False, "RGB"),
        (800, 600, "WEBP", True, "RGB"),
    ],
)
def test_a_large_figure_is_scaled_down(width: int, height: int, kind: str, noise: bool, mode: str) -> None:
    data = packed(width, height, kind, noise=noise, mode=mode)
    [image] = pictures([shown(f"image/{kind.lower()}", data)], 512)
    picture = opened(image)
    assert max(picture.size) <= 512
    assert abs(picture.width / picture.height - width / height) < width / height / 5
    assert len(base64.b64decode(next(iter(image.values())))) <= LARGEST
    assert next(iter(image)) in ("image/png", "image/jpeg")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("image/png", "!!"),
        ("image/png", base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 100).decode()),
        ("image/jpeg", base64.b64encode(b"no picture").decode()),
        ("image/png", ""),
        ("image/png", 5),
        ("image/svg+xml", "<svg/>"),
    ],
)
def test_what_is_no_picture_is_told_in_words_only(kind: str, data: Any) -> None:
    good = packed(10, 10)
    assert pictures([shown(kind, data), shown("image/png", good)], 512) == [{}, {"image/png": good}]


def test_a_picture_that_unpacks_to_far_too_much_is_not_opened() -> None:
    side = 30_000
    packer = zlib.compressobj(1)  # made by hand: Pillow takes four seconds and all of the memory
    rows = [packer.compress(bytes(side // 8 + 1) * 1000) for _ in range(side // 1000)]
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)),
        (b"IDAT", b"".join([*rows, packer.flush()])),
        (b"IEND", b""),
    )
    made = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    with pytest.raises(PIL.DecompressionBombError, match=f"{side * side} pixels"):
        PIL.open(io.BytesIO(made))
    assert pictures([shown("image/png", base64.b64encode(made).decode())], 512) == [{}]


def test_only_some_pictures_of_an_action_are_sent_and_only_pictures() -> None:
    text = {"output_type": "stream", "name": "stdout", "text": "hello"}
    assert len(pictures([text, *[shown("image/png", packed(8, 8))] * 9], 512)) == MOST


def test_without_pillow_small_figures_are_sent_and_large_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    small = packed(100, 100)
    outputs = [shown("image/png", small), shown("image/png", packed(2000, 100))]
    assert pictures(outputs, 512) == [{"image/png": small}, {}]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        *(
            (name, True)
            for name in ("gpt-4o", "gpt-4o-mini-2024-07-18", "openai/gpt-4.1", "gpt-5-nano", "o3", "o4-mini")
        ),
        *((name, True) for name in ("claude-3-5-haiku-latest", "anthropic/claude-sonnet-4.5", "claude-opus-4-1")),
        *((name, True) for name in ("gemini-2.5-flash", "google/gemma-3-27b-it", "Qwen/Qwen2.5-VL-7B-Instruct")),
        *((name, True) for name in ("qwen2.5vl:7b", "llava:13b", "pixtral-12b", "llama3.2-vision:11b", "grok-4")),
        *((name, False) for name in ("gpt-3.5-turbo", "o3-mini", "o1-mini", "gpt-4o-audio-preview", "claude-2.1")),
        *((name, False) for name in ("qwen2.5-coder-1.5b", "deepseek-chat", "llama-3.1-70b", "gemma3:1b", "")),
        *(
            (name, False)
            for name in ("mistral-7b", "codestral", "phi-4", "gpt-oss-120b", "text-embedding-3", "stub")
        ),
    ],
)
def test_models_that_see_are_known_by_name(model: str, expected: bool) -> None:
    assert sees(model) is expected
