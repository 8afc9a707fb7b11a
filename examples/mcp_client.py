"""A scripted agent that uses `opsmith mcp` as any client does, and prints what is said.

    pip install 'opsmith[mcp]'
    python examples/mcp_client.py

It forgets NaN, repeats the case, cheats, writes relu in C++, and submits that.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

TASK = "relu.default"
OPSMITH = (sys.executable, "-c", "from opsmith.cli.main import main; main()")
#: Lines of an answer that are printed.
MOST_LINES = 16
_FOLDERS = re.compile(r"/\S+/(?=(kernel\.py|bench/))")

CHEAT = """\
import sys

import torch

sys.modules["torch"].allclose = lambda *args, **kwargs: True


def relu__default_kernel_impl(x):
    return torch.empty_like(x)
"""
CPP = '''\
import torch
from torch.utils.cpp_extension import load_inline

CPP = """
at::Tensor relu(at::Tensor x) {
    TORCH_CHECK_NOT_IMPLEMENTED(x.scalar_type() == at::kFloat, "float32 only");
    auto source = x.is_non_overlapping_and_dense() ? x : x.clone();
    auto made = at::empty_like(source);
    const float *in = source.data_ptr<float>();
    float *out = made.data_ptr<float>();
    for (int64_t i = 0; i < source.numel(); i++) out[i] = EXPRESSION;
    return made;
}
"""
module = load_inline(name="relu_by_an_agent", cpp_sources=CPP, functions=["relu"], extra_cflags=["-O3"])


def relu__default_kernel_impl(x):
    return module.relu(x)
'''
WRONG, RIGHT = (CPP.replace("EXPRESSION", text) for text in ("in[i] > 0 ? in[i] : 0.0f", "in[i] <= 0 ? 0.0f : in[i]"))


def show(name: str, arguments: dict[str, Any], answer: Any) -> None:
    """Print a call and the beginning of its answer."""
    said = {key: value if len(value) < 90 else f"{value[:40]!r}..." for key, value in arguments.items()}
    print(f"\n--> {name} {said or ''}".rstrip())
    lines = _FOLDERS.sub("", "\n".join(part.text for part in answer.content)).splitlines()
    print("\n".join(f"<-- {line}".rstrip() for line in lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        print(f"<-- ... {len(lines) - MOST_LINES} lines more")


async def work(command: Sequence[str], *, wrong: str, cheat: str, right: str, words: Sequence[str]) -> dict[str, Any]:
    """Go through all tools.

    Args:
        command: opsmith's, without a verb.
        wrong: a kernel that is wrong.
        cheat: one that tampers.
        right: one that is right.
        words: options of ``opsmith mcp``.

    Returns:
        tool -> figures of its last answer.
    """
    figures: dict[str, Any] = {}
    server = StdioServerParameters(command=command[0], args=[*command[1:], "mcp", *words], env={**os.environ})
    async with Client(stdio_client(server)) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))

        async def call(name: str, **arguments: Any) -> Any:
            answer = await client.call_tool(name, arguments)
            show(name, arguments, answer)
            figures[name] = answer.structured_content
            return answer.structured_content

        await call("list_tasks", pattern="relu*")
        await call("task_statement", task=TASK)
        found = await call("check", task=TASK, source=wrong)
        await call("reproduce", task=TASK, source=wrong, case=found["failures"][0]["case"])
        await call("check", task=TASK, source=cheat)
        await call("check", task=TASK, source=right)
        if "off" not in words:  # What takes long.
            await call("submit", task=TASK, source=cheat)
            await call("time", task=TASK, source=right)
            await call("profile", task=TASK)
        await call("submit", task=TASK, source=right)
        await call("best_known", task=TASK)
    return figures


async def main() -> None:
    """Have relu written on this machine's CPU."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("--suite", "smoke", "--ops", "relu.default", "--device", "cpu", "-o", str(Path(folder) / "bench"))
        await work(OPSMITH, wrong=WRONG, cheat=CHEAT, right=RIGHT, words=words)


if __name__ == "__main__":
    anyio.run(main)
