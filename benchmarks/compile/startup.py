"""What compiling costs with this tree and with another one, in pairs of processes.

    git worktree add /tmp/before v0.1.0
    python -m benchmarks.compile.startup /tmp/before --pairs 5 -o startup.json

Each process compiles one model of the suite ``models`` without caches, in inference and in training. It counts
seconds of processors, those of compilers that it starts among them, which other work on the machine moves less than the
clock. The two trees take turns, and which begins changes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from benchmarks.models.zoo import build
from torch import Tensor

#: Models whose graphs fire passes: convolutions, attention of encoders and decoders, norms.
MODELS = ("resnet50", "vit_b", "bert_base", "gpt2", "whisper_tiny")
TREE = Path(__file__).parents[2]


def compile_once(name: str) -> dict[str, float]:
    """Compile a model in this process, once for results and once for gradients, and call it.

    Returns:
        Seconds of processors, of the clock, and of opsmith's passes, all without imports and building the model.
    """
    from opsmith.compile.report import collected

    work = build(name, "small")
    settings = {"force_disable_caches": True, "fallback": "raise"}
    before, started = os.times(), time.perf_counter()
    with collected() as reports:
        compiled: Any = torch.compile(work.module, backend="opsmith", options=settings)
        with torch.no_grad():
            work.outputs(compiled, work.inputs)
        results = [one for one in work.outputs(compiled, work.inputs) if one.requires_grad]
        torch.autograd.backward([_loss(one) for one in results])
    after = os.times()
    return {
        "processor_s": sum(after[:4]) - sum(before[:4]),
        "wall_s": time.perf_counter() - started,
        "passes_s": sum(one.seconds for one in reports.passes),
    }


def _loss(result: Tensor) -> Tensor:
    return result.float().square().mean()


def _measured(tree: Path, name: str) -> dict[str, float]:
    """:func:`compile_once` with the sources of a tree; the benchmark itself is this tree's."""
    # Compilers that are started by this process alone are counted.
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{TREE}", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    code = (
        "import json, sys, opsmith; from benchmarks.compile.startup import compile_once\n"
        "assert opsmith.__file__.startswith(sys.argv[1]), opsmith.__file__\n"
        "print(json.dumps(compile_once(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(tree), name]
    found = subprocess.run(command, env=environment, cwd=TREE, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this interpreter.
    measured: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return measured


def main(
    before: Annotated[Path, typer.Argument(help="A checkout to compare with.")],
    out: Annotated[Path, typer.Option("--out", "-o")],
    pairs: Annotated[int, typer.Option(min=1)] = 5,
    models: Annotated[str, typer.Option(help="Names with commas.")] = ",".join(MODELS),
) -> None:
    """Compare this tree with another one, and write a record."""
    rows: dict[str, Any] = {}
    for name in models.split(","):
        found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
        for pair in range(pairs):
            trees = [("before", before.resolve()), ("after", TREE)]
            for side, tree in trees if pair % 2 == 0 else reversed(trees):
                found[side].append(_measured(tree, name))
        ratios = [new["processor_s"] / old["processor_s"] for old, new in zip(*found.values(), strict=True)]
        rows[name] = {"ratio": statistics.median(ratios), "ratios": ratios, **found}
        passes = [statistics.median(one["passes_s"] for one in side) for side in found.values()]
        print(f"{name}: {rows[name]['ratio']:.3f} of before; passes {passes[0]:.2f} s before, {passes[1]:.2f} s now")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"
    environment = {"torch": torch.__version__, "device": device, "command": " ".join(["python -m", *sys.argv])}
    out.write_text(json.dumps({"environment": environment, "models": rows}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
