"""Tasks of other tools' formats through the whole pipeline, and their results written back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes

from opsmith import pipeline
from opsmith.cli.selection import parse_selection
from opsmith.core.run import Options, Summary

DATA = Path(__file__).parents[1] / "data" / "formats"
pytestmark = [pytest.mark.slow, pytest.mark.corpus]


@pytest.fixture(scope="module", autouse=True)
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with shared_processes("modules"):
            yield


def judge(problems: Path, backend: Path, out: Path) -> Summary:
    """Judge solutions that may compose ops, without timing."""
    options = Options(
        suite="modules",
        backend=str(backend),
        device="cpu",
        dtypes=("f32",),
        policy="any",
        timing="off",
        selection=parse_selection("modules", problems=str(problems)),
    )
    return pipeline.evaluate(options, out, jobs=1)


def test_flashinfer_solutions_are_judged_and_their_traces_written(tmp_path: Path) -> None:
    """Each solution has a line a workload, and one that is wrong has the distance."""
    summary = judge(DATA / "flashinfer", DATA / "flashinfer", tmp_path / "run")
    found = {name: op.accepted for name, op in summary.per_op.items()}
    assert {"gemm/gemm_n16_k24": True, "norm/rmsnorm_h64": True, "norm/rmsnorm_h64@1": False} == found
    lines = [json.loads(line) for line in (tmp_path / "run/traces/norm/rmsnorm_h64.jsonl").read_text().splitlines()]
    assert [
        ("rmsnorm_two_files", "a-4", "PASSED"),
        ("rmsnorm_two_files", "a-33", "PASSED"),
        ("rmsnorm_without_weight", "a-4", "INCORRECT_NUMERICAL"),
        ("rmsnorm_without_weight", "a-33", "INCORRECT_NUMERICAL"),
    ] == [(line["solution"], line["workload"]["uuid"], line["evaluation"]["status"]) for line in lines]
    evaluations = [line["evaluation"] for line in lines]
    assert [True, True, False, False] == [each["performance"] is not None for each in evaluations]
    assert all(each["correctness"]["max_absolute_error"] > 0.1 for each in evaluations[2:])


def test_kernelbot_submissions_are_judged(tmp_path: Path) -> None:
    """One writes into the memory for results, one makes a new tensor; what cannot be asked stays in the score."""
    summary = judge(DATA / "kernelbot", DATA / "kernelbot", tmp_path / "run")
    assert {"pair_max": False, "row_means": True, "row_means@1": False, "row_means@2": True} == {
        name: op.accepted for name, op in summary.per_op.items()
    }
    assert {"WRONG_VALUE"} == set(summary.per_op["row_means@1"].statuses)
    assert pytest.approx(1 / 3) == summary.levels[-1].pass_at["1"]  # Two of three samples of one of two tasks.


def test_backward_functions_of_robust_kbench_are_judged(tmp_path: Path) -> None:
    """Against autograd's gradients: one that takes the slope for 1 is wrong, and one of a forward task is no answer."""
    right = DATA / "robust_kbench" / "kernels" / "gated_rows_backward.py"
    folder = tmp_path / "kernels" / "gated_rows" / "backward"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text(right.read_text())
    (folder / "b.py").write_text(right.read_text().replace("grad_output * slope", "grad_output"))
    summary = judge(DATA / "robust_kbench" / "tasks", tmp_path / "kernels", tmp_path / "run")
    assert {"gated_rows": False, "gated_rows_backward": True, "gated_rows_backward@1": False} == {
        name: op.accepted for name, op in summary.per_op.items()
    }
    assert {"WRONG_VALUE"} == set(summary.per_op["gated_rows_backward@1"].statuses)


def test_replies_of_multi_kernel_bench_are_judged_and_told_in_its_words(tmp_path: Path) -> None:
    """Of each op the first sample."""
    folder = DATA / "multi_kernel_bench"
    judge(folder, folder / "output", tmp_path / "run")
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert ["softsign"] == list(told)
    assert (True, True, None, False) == tuple(
        told["softsign"][name] for name in ("compiled", "correctness", "performance", "cheating")
    )
