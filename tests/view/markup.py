"""Reads HTML of ours back, and says whether it is only what it may be."""

from __future__ import annotations

import re
from html.parser import HTMLParser

TAGS = {
    *("div", "b", "span", "details", "summary", "pre", "code", "img", "br", "style"),
    *("ul", "ol", "li", "table", "tr", "th", "td"),
}
ATTRIBUTES = {"style", "class", "open", "src", "alt", "start"}
_ALONE = {"img", "br"}
#: The one style sheet: for the trace's own class, and for paper alone.
_SHEET = re.compile(
    r"@media print \{ \.[\w-]+ ::details-content \{ content-visibility: visible; \}"
    r" \.[\w-]+ pre \{ max-height: none !important; \} \.[\w-]+ \.wide \{ font-size: 6px; \} \}"
)


class Markup(HTMLParser):
    """Collects the tags of a fragment, their attributes and the text, a line break as one."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.sheets: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _ALONE:
            self.open.append(tag)
        elif tag == "br":
            self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.sheets.append(data)
        else:
            self.text += data

    def names(self) -> list[str]:
        """Give the tags, without their attributes."""
        return [tag for tag, _ in self.tags]

    def assert_harmless(self) -> None:
        assert self.open == []
        assert all(_SHEET.fullmatch(sheet) for sheet in self.sheets)
        for tag, attributes in self.tags:
            assert tag in TAGS
            assert set(attributes) <= ATTRIBUTES
            assert "url(" not in (attributes.get("style") or "")
            if tag == "img":
                assert (attributes["src"] or "").startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
