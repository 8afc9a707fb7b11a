"""What torch knows of an op, asked in a process of its own: the judge's imports no torch.

``python -m opsmith.generate.op_facts relu.default ...`` prints one JSON object, overload to facts.
"""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from opsmith.errors import RefereeFailed

MOST_SOURCE_LINES = 80
MOST_DOC_LINES = 60
TIME_LIMIT_S = 180.0


class OpFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What torch says about an op.

    Attributes:
        documentation: of the public function of that name; None without one.
        decomposition: Python source that computes the op from others; None where torch has none.
    """

    documentation: str | None
    decomposition: str | None


def op_facts(ops: Sequence[str]) -> dict[str, OpFacts]:
    """Ask about overloads.

    Raises:
        RefereeFailed: the process that imports torch failed.
    """
    command = [sys.executable, "-m", __name__, *ops]
    ended = subprocess.run(  # noqa: S603 - this very module
        command, capture_output=True, timeout=TIME_LIMIT_S, check=False
    )
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RefereeFailed(f"torch could not be asked about the ops: {''.join(last)}")
    return msgspec.json.decode(ended.stdout, type=dict[str, OpFacts])


def _facts(ops: Iterable[str]) -> dict[str, OpFacts]:
    import torch
    from torch._decomp import decomposition_table

    from opsmith.aten.schemas import overload

    found = {}
    for op in ops:
        packet = op.rpartition(".")[0].lstrip("_")
        public = [getattr(module, packet, None) for module in (torch, torch.nn.functional, torch.special, torch.linalg)]
        documented = next((function for function in public if callable(function) and function.__doc__), None)
        found[op] = OpFacts(
            documentation=None if documented is None else _shortened(documented.__doc__ or "", MOST_DOC_LINES),
            decomposition=_source(decomposition_table.get(overload(op))),
        )
    return found


def _source(function: Any) -> str | None:
    if function is None:
        return None
    while isinstance(function, functools.partial):
        function = function.func
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return None
    body = "\n".join(line for line in textwrap.dedent(source).splitlines() if not line.startswith("@"))
    return _shortened(body, MOST_SOURCE_LINES)


def _shortened(text: str, most_lines: int) -> str:
    lines = textwrap.dedent(text).strip().splitlines()
    return "\n".join([*lines[:most_lines], "..."] if len(lines) > most_lines else lines)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_facts(sys.argv[1:])))
