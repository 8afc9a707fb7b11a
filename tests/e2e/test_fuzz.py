"""Suite fuzz from the command line's point of view: eager passes, and a wrong kernel does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Status

OPS = ("add.Tensor", "relu.default", "mm.default", "sum.dim_IntList", "gather.default", "native_layer_norm.default")

#: Right for sizes that a block of 16 covers, and wrong for the tail of all others.
_WITHOUT_TAIL = """
import torch


def relu__default_kernel_impl(self):
    out = self.clone(memory_format=torch.contiguous_format)
    flat = out.view(-1)
    for i in range(min(flat.numel(), 16)):
        if flat[i].item() < 0:
            flat[i] = 0.0
    return out
"""


@pytest.fixture(scope="module", autouse=True)
def _shared() -> Iterator[None]:
    with shared_processes("fuzz"):
        yield


@pytest.mark.slow
def test_eager_passes_what_is_drawn(tmp_path: Path) -> None:
    """The suite is about kernels: nothing that it asks is unanswerable."""
    options = Options(suite="fuzz", backend="aten", device="cpu", dtypes=("f32",), ops=OPS)
    summary = pipeline.evaluate(options, tmp_path / "run", seed=1)
    assert (len(OPS), len(OPS)) == (summary.ops["asked"], summary.ops["correct"])
    assert summary.cases["passed"] == summary.cases["asked"] > 40


@pytest.mark.slow
def test_a_kernel_without_a_tail_is_wrong(tmp_path: Path) -> None:
    """Drawn sizes go beyond a block."""
    folder = tmp_path / "kernels" / "relu__default"
    folder.mkdir(parents=True)
    (folder / "relu__default_implementation_v1.py").write_text(_WITHOUT_TAIL)
    options = Options(
        suite="fuzz", backend=str(folder.parent), device="cpu", dtypes=("f32",), ops=("relu.default",), policy="any"
    )
    summary = pipeline.evaluate(options, tmp_path / "run", seed=1)
    assert 0 == summary.ops["correct"]
    verdicts = list(RunDirectory(tmp_path / "run").verdicts())
    assert Status.WRONG_VALUE in {verdict.status for verdict in verdicts}
