"""A scripted model for timing: N code actions, then an answer, as native tool calls over a real HTTP stream.

Run as a process of its own, so that only the harness under test remains in the harness's process. It writes
one JSON line a request: arrival time, prompt characters, and how many of them begin like the request before.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any

CODE = "x = x + 1; print(x)"
FIRST_CODE = "x = 1; print(x)"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def sse(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return b"%x\r\n" % len(data) + data + b"\r\n"


def reply(step: int, steps: int, last: str) -> bytes:
    """The whole stream for one step, a word a chunk."""
    parts = [sse({"role": "assistant", "content": None if step < steps else ""})]
    if step < steps:
        arguments = json.dumps({"code": CODE if step else FIRST_CODE})
        call = {"index": 0, "id": f"call_{step}", "type": "function"}
        parts.append(sse({"tool_calls": [{**call, "function": {"name": "run_code", "arguments": ""}}]}))
        words = re.findall(r" ?\w+|\s+|[^\w\s]+", arguments)
        parts += [sse({"tool_calls": [{"index": 0, "function": {"arguments": word}}]}) for word in words]
        parts.append(sse({}, "tool_calls"))
    else:
        value = (re.findall(r"\d+", last) or ["none"])[-1]
        parts += [sse({"content": word}) for word in re.findall(r" ?\S+", f"The final value is {value} .")]
        parts.append(sse({}, "stop"))
    return b"".join([*parts, END])


def shared_prefix(one: str, other: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


class Server:
    def __init__(self, steps: int, log: str, first_token_ms: float) -> None:
        self.steps = steps
        self.log = log
        self.first_token = first_token_ms / 1000
        self.rows: list[tuple[float, bytes]] = []
        self.step = 0  #: counted here: a compacted history no longer tells it

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").lower()
                length = re.search(r"content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                await self.answer(body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        arrived = time.time()
        if not body:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n" + b'{"data":[]}')
            return
        request = json.loads(body)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        if request.get("tool_choice") == "none":  # a question aside: sum up what is to be forgotten
            writer.write(head + sse({"content": "x is counted up, one a step."}) + sse({}, "stop") + END)
            return
        self.rows.append((arrived, body))
        messages, step = request["messages"], self.step
        self.step += 1
        if self.first_token:
            await asyncio.sleep(self.first_token)
        # The variables line that nbagent adds is not the value: the first line of the output is.
        content = str(messages[-1].get("content") or "")
        output = re.search(r"^\s*(\d+)\s*$", content, re.MULTILINE)
        writer.write(head + reply(step, self.steps, output[1] if output else content))
        await writer.drain()

    def write_log(self) -> None:
        before = ""
        with open(self.log, "w") as out:  # noqa: PTH123 - a benchmark's own scratch file
            for when, body in self.rows:
                if not body:
                    continue
                request = json.loads(body)
                text = json.dumps(request.get("tools")) + "".join(map(json.dumps, request["messages"]))
                shared = shared_prefix(before, text)
                row = {"time": when, "characters": len(text), "shared": shared, "before": len(before)}
                out.write(json.dumps(row) + "\n")
                before = text


async def main() -> None:
    steps, log, first_token_ms = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    server = Server(steps, log, first_token_ms)
    listener = await asyncio.start_server(server.client, "127.0.0.1", 0, limit=1 << 26)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent lets go
    server.write_log()


if __name__ == "__main__":
    asyncio.run(main())
