"""Makes pictures small enough for a model that sees. Pillow does it, where it is installed."""

from __future__ import annotations

import base64
import binascii
import importlib.util
import io
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from nbagent.events import Output

LARGEST = 400_000  #: bytes of a picture that is sent
LARGEST_READ = 20_000_000  #: bytes of a picture that is looked at
MOST_PIXELS = 60_000_000  #: of a picture that is opened
MOST = 4  #: pictures of one action
KINDS = ("image/png", "image/jpeg", "image/webp", "image/gif")


def pictures(outputs: Sequence[Output], pixels: int) -> list[dict[str, str]]:
    """Give the first pictures among outputs as `{kind: base64}`, no side longer than `pixels`.

    One that cannot be made to fit is `{}`: the model is told of it in words only. It takes time: use a thread.
    """
    bundles = [output.get("data") or {} for output in outputs]
    shown = [data for data in bundles if any(kind in data for kind in (*KINDS, "image/svg+xml"))]
    return [_fitting(data, pixels) for data in shown[:MOST]]


def _fitting(data: Mapping[str, Any], pixels: int) -> dict[str, str]:
    kind = next((kind for kind in KINDS if kind in data), None)
    if kind is None:
        return {}
    encoded = "".join(data[kind]) if isinstance(data[kind], list) else str(data[kind])
    try:
        raw = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return {}
    if kind == "image/png" and len(raw) <= LARGEST and max(png_size(raw) or (pixels + 1,)) <= pixels:
        return {kind: base64.b64encode(raw).decode()}
    if len(raw) > LARGEST_READ or importlib.util.find_spec("PIL") is None:
        return {}
    kind, raw = _scaled(raw, pixels)
    return {kind: base64.b64encode(raw).decode()} if raw else {}


def png_size(raw: bytes) -> tuple[int, int] | None:
    """Read width and height from a PNG's header; None where it is none."""
    if raw[:8] != b"\x89PNG\r\n\x1a\n" or len(raw) < 24:
        return None
    width, height = struct.unpack(">II", raw[16:24])
    return width, height


def _scaled(raw: bytes, pixels: int) -> tuple[str, bytes]:
    """Scale a picture down and pack it as PNG, or as JPEG where that is too large; "" where it is no picture."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(raw)) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    return "", b""
                picture = opened.convert("RGBA" if opened.mode in ("RGBA", "LA", "PA", "P") else "RGB")
        picture.thumbnail((pixels, pixels))
        for kind, form, quality in (
            ("image/png", "PNG", 0),
            ("image/jpeg", "JPEG", 85),
            ("image/jpeg", "JPEG", 40),
        ):
            packed = io.BytesIO()
            if form == "JPEG":
                _on_white(picture).save(packed, form, quality=quality)
            else:
                picture.save(packed, form, optimize=True)
            if packed.tell() <= LARGEST:
                return kind, packed.getvalue()
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError, MemoryError):
        pass  # whatever is wrong with it: it is told in words
    return "", b""


def _on_white(picture: Any) -> Any:
    from PIL import Image

    if picture.mode != "RGBA":
        return picture
    ground = Image.new("RGB", picture.size, "white")
    ground.paste(picture, mask=picture.getchannel("A"))
    return ground
