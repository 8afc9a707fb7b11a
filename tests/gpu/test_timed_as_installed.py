"""On a device, shipped kernels are timed as they run once they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory, Selection

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_an_in_place_kernel_is_one_launch_and_its_python_is_not_timed(tmp_path: Path) -> None:
    """It was two, the kernel and a copy; without plans a call takes its caller 0.1 ms, eager 0.01 ms."""
    options = Options(
        suite="traces",
        backend="opsmith",
        device="cuda",
        dtypes=("recorded",),
        ops=("relu_.default", "add_.Tensor"),
        timing="quick",
        selection=Selection(top_inputs=2),
    )
    summary = pipeline.evaluate(options, tmp_path / "run")
    assert summary.accepted
    timings = [timing for case in RunDirectory(tmp_path / "run").timed_cases() for timing in case.timings]
    by_quantity = {quantity: [one for one in timings if one.quantity == quantity] for quantity in "KE"}
    assert len(by_quantity["K"]) == len(by_quantity["E"]) >= 3
    assert {1.0} == {one.candidate_nodes for one in by_quantity["K"]}
    assert all(one.candidate_us < 0.05e3 + 1.5 * one.reference_us for one in by_quantity["E"])
