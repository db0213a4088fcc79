"""Text of a model or a user as Markdown that loads and runs nothing.

Headings, lists, emphasis and code stay readable. Raw HTML, images, links and formulas are shown as the text
they are, so that a rendered notebook neither runs a script nor asks another host for a picture. Fences are
written anew, so that what one renderer takes for code no other takes for prose.
"""

from __future__ import annotations

import html
import re

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BACKTICKS = re.compile(r"`+")
_ACTIVE = re.compile(r"[&<]|(?P<formula>\$|\\(?=[\\()\[\]]|begin\b|end\b))|\\")
#: What code in a line of prose may hold to be written between backticks: nothing that could load or run,
#: should a renderer pair the backticks in another way.
_HARMLESS = re.compile(r"[^<>&\[\]!$\\`\n]*")


def inert(text: str) -> str:
    """Give `text` as Markdown in which nothing is active."""
    parts: list[str] = []
    prose: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        opening = _FENCE.fullmatch(line)
        if opening is None:
            prose.append(line)
            continue
        code = []
        for inner in lines:
            if re.fullmatch(rf" {{0,3}}{opening['mark'][0]}{{{len(opening['mark'])},}}[ \t]*", inner):
                break
            code.append(inner)
        parts += [_inert_prose("\n".join(prose)), fenced("\n".join(code), opening["info"])]
        prose = []
    parts.append(_inert_prose("\n".join(prose)))
    return "\n\n".join(part for part in parts if part.strip())


def fenced(code: str, language: str = "") -> str:
    """Give `code` as a fenced block that nothing in it can close.

    Its lines end in line feeds alone: a carriage return would end the comment that a script makes of each line.
    Other control characters are written as escapes: TeX refuses them.
    """
    code = _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), re.sub(r"\r\n?", "\n", code))
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    word = re.match(r"[A-Za-z0-9+#-]*", language)
    return f"{fence}{word[0] if word else ''}\n{code}\n{fence}"


def _inert_prose(text: str) -> str:
    """Escape prose; code between backticks stays code, as far as that is safe."""
    parts, position = [], 0
    while opening := _BACKTICKS.search(text, position):
        closing = _closing(text, opening)
        parts.append(_escape(text[position : opening.start()]))
        if closing is None or len(opening[0]) > 2:
            parts.append("".join("&#96;" for _ in opening[0]))
            position = opening.end()
            continue
        code = text[opening.end() : closing]
        position = closing + len(opening[0])
        parts.append(text[opening.start() : position] if _HARMLESS.fullmatch(code) else _code(code))
    parts.append(_escape(text[position:]))
    return "".join(parts)


def _closing(text: str, opening: re.Match[str]) -> int | None:
    """Find where code that begins with these backticks ends: before an empty line, or nowhere."""
    limit = text.find("\n\n", opening.end())
    for run in _BACKTICKS.finditer(text, opening.end(), limit if limit >= 0 else len(text)):
        if run[0] == opening[0]:
            return run.start()
    return None


def _code(code: str) -> str:
    """Give code as HTML of our own, with every character that Markdown knows as an entity."""
    escaped = html.escape(code).replace("\n", " ")
    return "<code>" + re.sub(r"[\[\]!$\\`*_~|]", lambda found: f"&#{ord(found[0])};", escaped) + "</code>"


def _entity(found: re.Match[str]) -> str:
    """Give a character as an entity; what begins a formula in an element of its own, too.

    Formulas are looked for in the finished page, where an entity is its character again, but never across the
    bounds of an element.
    """
    entity = f"&#{ord(found[0])};" if found[0] in "$\\" else html.escape(found[0])
    return f"<span>{entity}</span>" if found["formula"] else entity


def _escape(text: str) -> str:
    """Escape prose; entities are text to every renderer, and a backslash of the text's own cannot undo them."""
    text = _ACTIVE.sub(_entity, text)
    text = re.sub(r"~{3,}", lambda found: "&#126;" * len(found[0]), text)
    return text.replace("[", "\\[")
