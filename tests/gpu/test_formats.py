"""Tasks of other tools' formats on a GPU: Triton solutions that write into what they are given, under policy native."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from opsmith import pipeline
from opsmith.cli.selection import parse_selection
from opsmith.core.run import Options, Summary

DATA = Path(__file__).parents[1] / "data" / "formats"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def rows(x, out, WIDTH, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + at, mask=at < WIDTH, other=0.0)
    tl.store(out + row, tl.sum(value.to(tl.float64)) / WIDTH)


def custom_kernel(data):
    x, means = data
    rows[(x.shape[0],)](x, means, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return means


def run(A, B, C):
    products[(A.shape[0], B.shape[0])](A, B, C, A.shape[1], B.shape[0], BLOCK=triton.next_power_of_2(A.shape[1]))


@triton.jit
def products(a, b, c, K, N, BLOCK: tl.constexpr):
    row, column, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    one = tl.load(a + row * K + at, mask=at < K, other=0.0)
    other = tl.load(b + column * K + at, mask=at < K, other=0.0)
    tl.store(c + row * N + column, tl.sum(one.to(tl.float64) * other.to(tl.float64)))
"""


def judge(problems: Path, backend: Path, out: Path, ops: tuple[str, ...]) -> Summary:
    """Judge and time under policy native."""
    options = Options(
        suite="modules",
        backend=str(backend),
        device="cuda",
        dtypes=("f32",),
        ops=ops,
        timing="quick",
        selection=parse_selection("modules", problems=str(problems)),
    )
    return pipeline.evaluate(options, out, jobs=1)


def test_a_submission_in_triton_is_accepted_and_its_benchmarks_are_timed(tmp_path: Path) -> None:
    """Its inputs are made on the GPU, and it writes into the memory for results."""
    shutil.copytree(DATA / "kernelbot", tmp_path / "tasks")
    (tmp_path / "row_means.py").write_text(KERNEL)
    summary = judge(tmp_path / "tasks", tmp_path / "row_means.py", tmp_path / "run", ("row_means",))
    assert summary.accepted, summary
    timed = (tmp_path / "run" / "timings.jsonl").read_text().splitlines()
    assert ["modules:row_means:f32:benchmark:0:0"] == [json.loads(line)["case"] for line in timed]


def test_a_solution_in_triton_writes_into_its_outputs(tmp_path: Path) -> None:
    """And each workload has its time in the trace."""
    solution = {
        "name": "gemm_triton",
        "definition": "gemm_n16_k24",
        "author": "someone",
        "spec": {"language": "triton", "target_hardware": ["cuda"], "entry_point": "gemm.py::run"},
        "sources": [{"path": "gemm.py", "content": KERNEL}],
    }
    (tmp_path / "gemm.json").write_text(json.dumps(solution))
    summary = judge(DATA / "flashinfer", tmp_path / "gemm.json", tmp_path / "run", ("gemm/gemm_n16_k24",))
    assert summary.accepted, summary
    lines = (tmp_path / "run" / "traces" / "gemm" / "gemm_n16_k24.jsonl").read_text().splitlines()
    found = [json.loads(line)["evaluation"] for line in lines]
    assert ["PASSED", "PASSED"] == [each["status"] for each in found]
    assert all(each["performance"]["latency_ms"] > 0 for each in found)
