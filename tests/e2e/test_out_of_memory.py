"""Kernels for which there is no memory at first, as where others on the device have it."""

from __future__ import annotations

from pathlib import Path

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Status
from opsmith.runner.judge.slot import ASKED_BY_ITSELF

#: Lacks memory in a worker that has answered something before; what is alone has a worker of its own.
FIRST = """
import torch
asked = []

def {name}_kernel_impl(*args, **kwargs):
    asked.append(None)
    if len(asked) > 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return torch.ops.aten.{op}(*args, **kwargs)
"""
ALWAYS = """
import torch

def {name}_kernel_impl(*args, **kwargs):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""


def test_a_case_is_out_of_memory_where_it_is_so_by_itself(tmp_path: Path) -> None:
    """With two jobs, and a kernel each that lacks memory at times and always; each case has one verdict."""
    for op, source in (("relu.default", FIRST), ("gelu.default", ALWAYS)):
        name = op.replace(".", "__")
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        (folder / f"{name}_implementation_v1.py").write_text(source.format(name=name, op=op))
    options = Options(
        suite="smoke",
        backend=str(tmp_path / "kernels"),
        device="cpu",
        dtypes=("f32",),
        ops=("relu.default", "gelu.default"),
        timing="off",
        isolation="backend",
        integrity="off",
    )
    pipeline.evaluate(options, tmp_path / "run", jobs=2)
    verdicts = list(RunDirectory(tmp_path / "run").verdicts())
    assert len(verdicts) == len({verdict.case for verdict in verdicts})
    assert {Status.PASSED} == {verdict.status for verdict in verdicts if verdict.op == "relu.default"}
    others = [verdict for verdict in verdicts if verdict.op == "gelu.default"]
    assert {Status.OUT_OF_MEMORY} == {verdict.status for verdict in others}
    assert all(ASKED_BY_ITSELF == verdict.evidence[-1] for verdict in others)
