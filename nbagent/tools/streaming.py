"""Hands a program's outputs on as they come, masked across the borders of their pieces."""

from __future__ import annotations

from nbagent.events import Output, OutputAdded
from nbagent.protocols import ToolContext
from nbagent.redaction import StreamRedactor


class Streaming:
    """The outputs of one action: each is emitted as soon as it is sure that it holds no half secret."""

    def __init__(self, context: ToolContext):
        self.outputs: list[Output] = []
        self._context = context
        self._streams: dict[str, StreamRedactor] = {}

    def add(self, output: Output) -> None:
        """Take in the next output."""
        if output.get("output_type") != "stream":
            self.flush()
            self._emit(self._context.redactor.value(output))
            return
        stream = self._streams.setdefault(output["name"], self._context.redactor.stream())
        if text := stream.feed(output["text"]):
            self._emit({**output, "text": text})

    def flush(self) -> None:
        """Hand on what was held back."""
        for name, stream in self._streams.items():
            if rest := stream.flush():
                self._emit({"output_type": "stream", "name": name, "text": rest})

    def _emit(self, output: Output) -> None:
        self.outputs.append(output)
        self._context.emit(OutputAdded(output=output))
