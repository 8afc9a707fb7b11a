"""What ``opsmith.enable()`` changes of a decoder's token, which the host bounds, and which calls still reach Python.

    python -m benchmarks.dispatch.decoding --models llama_1b_decode,qwen3_decode -o FILE

A model of the suite ``models`` decodes in eager mode, then with kernels enabled for the classes of calls in which they
are faster, once trials decide nothing more. Turns of a few tokens alternate with turns in ``opsmith.disabled()``.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.compile.models import State, settled
from benchmarks.compile.real_models import MODELS, Place

import opsmith
from opsmith.core.run import write_atomically
from opsmith.dispatch import entry

TURNS, TOKENS, WARM_UP = 7, 4, 12
#: Seconds that trials may take.
SETTLE_S = 25.0

Step = Callable[[], None]


def step_of(model: str, device: str, *, small: bool) -> Step:
    """Makes one token and waits for it."""
    torch.manual_seed(0)
    called = MODELS[model](Place(device, torch.bfloat16, small))
    state = State()

    def step() -> None:
        with torch.no_grad():
            called.call(called.module, state)
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def ms_of(step: Step) -> float:
    """Milliseconds of a token, over a turn."""
    began = time.perf_counter()
    for _ in range(TOKENS):
        step()
    return (time.perf_counter() - began) / TOKENS * 1e3


def in_python(step: Step) -> dict[str, int]:
    """Overload -> calls that reached Python in a turn."""
    seen: collections.Counter[str] = collections.Counter()
    read = entry.signature_of

    def noted(*arguments: Any) -> Any:
        seen[sys._getframe(1).f_locals["override"].schema.name] += 1
        return read(*arguments)

    entry.signature_of = noted
    try:
        ms_of(step)
    finally:
        entry.signature_of = read
    return dict(seen)


def measure(model: str, device: str, *, small: bool) -> dict[str, Any]:
    """One model, as it stands in the record."""
    step = step_of(model, device, small=small)
    for _ in range(TOKENS):
        step()
    before = [ms_of(step), ms_of(step)]
    served, _ = settled(step, SETTLE_S)
    for _ in range(WARM_UP):  # Long enough for what C++ learns.
        step()
    pairs = []
    for _ in range(TURNS):
        enabled = ms_of(step)
        with opsmith.disabled():
            pairs.append((enabled, ms_of(step)))
    reached = in_python(step)
    opsmith.disable()
    return {
        "eager_before_ms": [round(ms, 3) for ms in before],
        "pairs_ms": [[round(ms, 3) for ms in pair] for pair in pairs],
        "median_gain": round(statistics.median(disabled / enabled for enabled, disabled in pairs), 3),
        "python_calls_in_a_turn": reached,
        "served": served,
    }


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama_1b_decode,qwen3_decode")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--sizes", choices=("small", "full"), default="full")
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    found = {name: measure(name, asked.device, small=asked.sizes == "small") for name in asked.models.split(",")}
    for name, one in found.items():
        print(f"{name:<20} {one['median_gain']:.3f}x  {one['pairs_ms']}  in Python: {one['python_calls_in_a_turn']}")
    write_atomically(asked.out, json.dumps(found, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
