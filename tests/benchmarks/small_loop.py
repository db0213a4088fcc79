"""The yardsticks for accuracy: the shortest honest loops over a kernel, one an action dialect.

    python -m tests.benchmarks.small_loop json|fenced < JOB.json

The job is one JSON object: question, file, folder, base_url, key, model, max_steps. What is printed is one too:
answer, steps, tokens, reason.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import openai
from jupyter_client.manager import start_new_kernel

COMMON = """You are a data analyst. You solve the task by running Python code in a Jupyter kernel.
Variables stay between steps. Print what you need to see; the output is shown to you after each step.
When the output shows the result, give the final answer, in exactly the format that the task asks for.
"""
FENCED = COMMON + "Each reply is either ONE ```python code block to be run, or, without a block, the final answer."
JSON = COMMON + (
    'Each reply is one JSON object: {"thought": ..., "action": "run_code", "action_input": {"code": ...}} or '
    '{"thought": ..., "action": "final_answer", "action_input": {"answer": ...}}.'
)
OBJECT = {
    "type": "object",
    "properties": {
        "thought": {"type": "string"},
        "action": {"enum": ["run_code", "final_answer"]},
        "action_input": {
            "anyOf": [
                {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
                for name in ("code", "answer")
            ]
        },
    },
    "required": ["thought", "action", "action_input"],
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "step", "schema": OBJECT, "strict": True}}
DIGEST = "import pandas as pd\ndf = pd.read_csv({file!r})\nprint(df.shape)\nprint(df.dtypes)\nprint(df.head(3))"
OBSERVED = 2000


def read_fenced(reply: str) -> tuple[str, str]:
    """Give the code or the answer of a reply in prose."""
    block = re.search(r"```(?:python|py)?\n(.*?)(?:```|\Z)", reply, re.DOTALL)
    return (block[1], "") if block else ("", reply.strip())


def read_json(reply: str) -> tuple[str, str]:
    """Give the code or the answer of a reply that the schema constrains."""
    try:
        given = json.loads(reply)["action_input"]
    except ValueError:  # cut by the token limit
        return "raise ValueError('the reply was cut: send shorter code')", ""
    return given.get("code", ""), given.get("answer", "")


def solve(job: dict[str, Any], dialect: str) -> dict[str, Any]:
    """Think and act until there is an answer or the steps are used up."""
    client = openai.OpenAI(base_url=job["base_url"], api_key=job["key"], timeout=900)
    manager, kernel = start_new_kernel(kernel_name="python3", cwd=job["folder"])
    read, extra = (read_json, {"response_format": FORMAT}) if dialect == "json" else (read_fenced, {})

    def run(code: str) -> str:
        out: list[str] = []

        def hook(message: dict[str, Any]) -> None:
            content = message["content"]
            shown = content.get("text") or content.get("data", {}).get("text/plain") or content.get("evalue") or ""
            out.append(f"{content['ename']}: {shown}" if "ename" in content else shown)

        kernel.execute_interactive(code, output_hook=hook, allow_stdin=False)
        return "".join(out)[-OBSERVED:] or "(no output)"

    start = f"{job['question']}\n\nThe file begins like this:\n{run(DIGEST.format(file=job['file']))}"
    messages: Any = [{"role": "system", "content": JSON if dialect == "json" else FENCED}]
    messages.append({"role": "user", "content": start})
    answer, steps, tokens = "", 0, 0
    while steps < job["max_steps"] and not answer:
        steps += 1
        reply = client.chat.completions.create(
            model=job["model"], messages=messages, temperature=0, max_tokens=1024, **extra
        )
        tokens += reply.usage.total_tokens if reply.usage else 0
        text = reply.choices[0].message.content or ""
        code, answer = read(text)
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": f"Output:\n{run(code)}" if code else "Go on."})
    kernel.stop_channels()
    manager.shutdown_kernel(now=True)
    return {"answer": answer, "steps": steps, "tokens": tokens, "reason": "answered" if answer else "max_steps"}


if __name__ == "__main__":
    print(json.dumps(solve(json.load(sys.stdin), sys.argv[1])))
