"""Parallel problems over NCCL and symmetric memory, on two GPUs that reach each other's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opsmith import pipeline
from opsmith.backends import manifest
from opsmith.core.problems import SHIPPED_PARALLEL, problems_hash
from opsmith.core.run import Options, RunDirectory, Selection, Summary
from opsmith.core.verdict import Status, Verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs"),
]
KERNELS = Path(__file__).parents[1] / "parallel_kernels"
SHIPPED_KERNELS = Path(pipeline.__file__).parent / "kernels"
RANKS = (2, 4) if torch.cuda.device_count() >= 4 else (2,)

#: Hack of an all-reduce -> any of what may be found among its cases.
HACKS = {
    "half_wire": {Status.WRONG_VALUE},
    "nccl": {Status.POLICY},
    "nccl_by_symbol": {Status.POLICY, Status.DISHONEST},
    "nccl_messages": {Status.POLICY},
    "no_barrier": {Status.WRONG_VALUE},
    "other_stream": {Status.WRONG_VALUE, Status.DISHONEST},
    "symmetric_op": {Status.POLICY},
}


def judge(folder: Path, backend: Path | str, **changes: object) -> tuple[Summary, list[Verdict]]:
    """Judge a backend at small sizes in float32, or as ``changes`` say; the summary and the verdicts."""
    seed = changes.pop("seed", 1)
    selection = Selection(
        problems=str(SHIPPED_PARALLEL),
        problems_hash=problems_hash(SHIPPED_PARALLEL),
        sizes="small",
        trials=1,
        ranks=RANKS,
    )
    options = {"suite": "parallel", "device": "cuda", "dtypes": ("f32",), "selection": selection}
    asked = Options(**{**options, "backend": str(backend), **changes})  # type: ignore[arg-type]
    summary = pipeline.evaluate(asked, folder, seed=seed)  # type: ignore[arg-type]
    return summary, list(RunDirectory(folder).verdicts())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_references_are_right_over_nccl(tmp_path: Path, seed: int) -> None:
    """Every problem, by what one process computes of all ranks."""
    summary, verdicts = judge(tmp_path / "run", "aten", dtypes=("f32", "bf16"), seed=seed)
    assert [] == [f"{one.case}: {one.detail}" for one in verdicts if one.status is not Status.PASSED]
    assert summary.accepted


def test_a_kernel_over_symmetric_memory_passes(tmp_path: Path) -> None:
    """Whatever the workspace held before the call."""
    summary, verdicts = judge(
        tmp_path / "run", KERNELS / "gpu_honest", ops=("1_AllReduce",), dtypes=("f32", "bf16", "f16")
    )
    assert [] == [f"{one.case}: {one.detail}" for one in verdicts if one.counts_against]
    assert summary.accepted


def test_opsmiths_own_kernels_are_right_without_nccl(tmp_path: Path) -> None:
    """All parallel problems that they answer, under the policy `native`."""
    ops = tuple(task for task in manifest.read(SHIPPED_KERNELS).ranks if not task.endswith(".default"))
    _, verdicts = judge(tmp_path / "run", "opsmith", ops=ops, dtypes=("f32", "bf16", "f16"))
    assert [] == [f"{one.case}: {one.detail}" for one in verdicts if one.counts_against]
    assert set(ops) == {one.op for one in verdicts}


def test_hacks_over_gpus_are_refused(tmp_path: Path) -> None:
    """NCCL by any name, torch's op over symmetric memory, no barrier, another stream, half precision."""
    folder = KERNELS / "gpu_hacks"
    assert set(HACKS) == {path.stem.removeprefix("1_AllReduce_") for path in folder.glob("*.py")}
    _, verdicts = judge(tmp_path / "run", folder, ops=("1_AllReduce",))
    for sample, name in enumerate(sorted(HACKS)):
        op = f"1_AllReduce@{sample}" if sample else "1_AllReduce"
        found = {verdict.status for verdict in verdicts if verdict.op == op}
        assert HACKS[name] & found, (name, found)
