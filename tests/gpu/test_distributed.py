"""Ranks over NCCL, and the Triton collectives of the examples, on two GPUs that reach each other's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory, Selection
from opsmith.core.verdict import Status

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("backend", "ops"),
    [
        ("aten", ()),
        (str(EXAMPLES / "distributed"), ("all_reduce.default", "all_to_all_single.default", "broadcast.default")),
        (str(EXAMPLES / "distributed_triton"), ("all_reduce.default", "fused_matmul_reduce_scatter.default")),
    ],
)
def test_collectives_are_right_on_two_gpus(tmp_path: Path, backend: str, ops: tuple[str, ...]) -> None:
    """Torch's own, those of sends and receives, and those over symmetric memory."""
    options = Options(
        suite="distributed",
        backend=backend,
        device="cuda",
        dtypes=("f32", "bf16"),
        ops=ops,
        selection=Selection(ranks=(2,)),
    )
    summary = pipeline.evaluate(options, tmp_path / "run", seed=1)
    verdicts = RunDirectory(tmp_path / "run").verdicts()
    assert [] == [f"{one.case}: {one.detail}" for one in verdicts if one.status is not Status.PASSED]
    assert summary.accepted
