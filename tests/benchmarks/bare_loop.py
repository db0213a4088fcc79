"""The yardstick: the openai SDK's stream, jupyter_client, and nothing else. Arguments: base URL."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from jupyter_client.manager import start_new_kernel

TASK = "Add one to x until told to stop, then say its final value."
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "run_code",
            "description": "Run Python code in a persistent Jupyter kernel and return its output.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
    }
]


def main() -> None:
    manager, kernel = start_new_kernel(kernel_name="python3")
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
    messages: Any = [
        {"role": "system", "content": "You are a helpful assistant. Use run_code to run Python."},
        {"role": "user", "content": TASK},
    ]
    while True:
        text, name, call_id, arguments = "", "", "", ""
        for chunk in client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS, stream=True):
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for call in delta.tool_calls or ():
                call_id = call.id or call_id
                if call.function is not None:
                    name = call.function.name or name
                    arguments += call.function.arguments or ""
        if not name:
            break
        out: list[str] = []

        def hook(message: dict[str, Any], out: list[str] = out) -> None:
            if message["msg_type"] == "stream":
                out.append(message["content"]["text"])

        kernel.execute_interactive(json.loads(arguments)["code"], output_hook=hook, allow_stdin=False)
        function = {"name": name, "arguments": arguments}
        call_message = {"id": call_id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": text or None, "tool_calls": [call_message]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": "".join(out)})
    print(text)
    kernel.stop_channels()
    manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
