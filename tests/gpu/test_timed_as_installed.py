"""On a device, shipped kernels are timed as they run once they are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from opsmith import pipeline
from opsmith.aten.schemas import aten_schemas
from opsmith.backends.shipped import Shipped
from opsmith.core.kernel import Kernel
from opsmith.core.run import Options, RunDirectory, Selection
from opsmith.core.task import Task
from opsmith.dispatch.as_installed import as_installed
from opsmith.runner.worker.loading import load_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("op", ["bernoulli_.float", "uniform_.default", "rand_like.default"])
def test_what_draws_draws_from_plans_what_it_draws_without(op: str) -> None:
    """The same numbers call by call, and the generator is moved on as far."""
    schema, backend = aten_schemas()[op], Shipped()
    record = backend.kernel_for(Task(name=op, op=schema, suite="opinfo"))
    assert isinstance(record, Kernel)
    judged = load_kernel(record, backend.path, schema)
    timed = as_installed(judged, record, schema, "cuda")
    assert timed is not judged

    def drawn(kernel: Callable[..., torch.Tensor]) -> tuple[list[torch.Tensor], int]:
        torch.cuda.manual_seed(5)
        found = [kernel(torch.empty(999, device="cuda")).clone() for _ in range(5)]
        return found, torch.cuda.default_generators[0].get_offset()

    (expected, end), (found, found_end) = drawn(judged), drawn(timed)
    assert end == found_end
    assert all(map(torch.equal, expected, found))
    assert not torch.equal(found[3], found[4])


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
