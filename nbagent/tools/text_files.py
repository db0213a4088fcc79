"""Reads text in whatever encoding a file has, and says what a file is that holds none."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

#: Bytes that tell whether a file is text.
SAMPLE = 65_536

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: What well-known formats begin with, and what reads them.
_SIGNATURES = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet table: pd.read_parquet reads it"),
    (b"ARROW1", "an Arrow table: pd.read_feather reads it"),
    (b"\x89HDF", "an HDF5 file: h5py or pd.read_hdf reads it"),
    (b"SQLite format 3", "an SQLite database: sqlite3 reads it"),
    (b"\x93NUMPY", "a NumPy array: np.load reads it"),
    (b"\x1f\x8b", "gzip-compressed: gzip.open or pandas reads it"),
    (b"BZh", "bzip2-compressed: bz2.open or pandas reads it"),
    (b"\xfd7zXZ", "xz-compressed: lzma.open or pandas reads it"),
    (b"\xd0\xcf\x11\xe0", "an old Office file: pd.read_excel reads .xls"),
    (b"PK\x03\x04", "a zip archive, as .xlsx, .docx and .npz are: zipfile or pd.read_excel reads it"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x80\x05\x95", "a pickle"),
    (b"\x7fELF", "a program"),
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's text is written. `note` says what is odd about it, or is ""."""

    name: str
    note: str = ""


def encoding_of(sample: bytes, *, whole: bool) -> Encoding | None:
    """Tell the encoding from a file's first bytes (`whole`: from all of them); None where it is no text."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return Encoding(name, "" if name == "utf-8-sig" else f"encoding {name}")
    if b"\0" in sample:
        return None
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(sample, final=whole)
    except UnicodeDecodeError:
        control = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
        if control > len(sample) / 100:
            return None
        return Encoding("cp1252", "not UTF-8: read as Windows-1252")
    return Encoding("utf-8")


def decoded(data: bytes, encoding: Encoding) -> str:
    """Give the text; a byte that the encoding does not know becomes the replacement character."""
    return data.decode(encoding.name, "replace")


def what_it_is(sample: bytes) -> str:
    """Say what a file is that is no text."""
    return next((kind for mark, kind in _SIGNATURES if sample.startswith(mark)), "binary data")


def size_in_words(size: int) -> str:
    """Give a number of bytes as people read it, e.g. `4.5 kB`."""
    if size < 1000:
        return f"{size} bytes" if size != 1 else "1 byte"
    for unit in ("kB", "MB", "GB"):
        size_in_unit = size / 1000 ** (1 + ("kB", "MB", "GB").index(unit))
        if size_in_unit < 1000 or unit == "GB":
            return f"{size_in_unit:.1f} {unit}"
    raise AssertionError("the last unit takes all")
