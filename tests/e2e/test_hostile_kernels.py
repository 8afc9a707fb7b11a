"""Kernels that crash, hang, lie and fill the machine cost their own verdicts and nothing else."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile_runs import DIRECTORY, install_suite, processes_with_command, processes_with_environment

from opsmith import pipeline
from opsmith.cli.outcomes import exit_status
from opsmith.core.op import folder_name
from opsmith.core.run import Options, RunDirectory, Summary
from opsmith.core.verdict import Status, Verdict
from opsmith.runner.processes import starting
from opsmith.runner.protocol.limits import Limits

S = Status

#: Op (``.default`` left out) -> the statuses of its cases in the order in which they are judged; the last one goes on.
EXPECTED = {
    "sigmoid_backward": [S.CRASHED] * 3 + [S.NOT_RUN],
    "silu_backward": [S.CRASHED] * 3 + [S.NOT_RUN],
    "tanh_backward": [S.ERROR],
    "mish_backward": [S.TIMEOUT] * 2 + [S.NOT_RUN],
    "softplus_backward": [S.OUT_OF_MEMORY] * 3 + [S.NOT_RUN],
    "logit_backward": [S.OUTPUT_LIMIT] * 3 + [S.NOT_RUN],
    "hardsigmoid_backward": [S.ERROR],
    "mse_loss": [S.WRONG_DTYPE],
    "mse_loss_backward": [S.WRONG_SHAPE],
    "pixel_shuffle": [S.WRONG_STRIDE],
    "pixel_unshuffle": [S.WRONG_STRIDE],
    "smooth_l1_loss": [S.WRONG_DEVICE],
    "soft_margin_loss_backward": [S.WRONG_STRUCTURE],
    "hardshrink_backward": [S.WRONG_STRUCTURE],
    "softshrink_backward": [S.WRONG_VALUE],
    "elu_backward": [S.MUTATED_INPUT],
    "threshold_backward": [S.ALIASED_OUTPUT],
    "reflection_pad2d": [S.LOAD_FAILED],
    "glu": [S.TIMEOUT, S.NOT_RUN],
    "replication_pad1d": [S.PASSED],
    "upsample_nearest1d": [S.PASSED],
    "hardtanh_backward": [S.CRASHED] * 3 + [S.NOT_RUN],
    "huber_loss_backward": [S.CRASHED] * 3 + [S.NOT_RUN],
    "select_scatter": [S.CRASHED] * 3 + [S.NOT_RUN],
    "_prelu_kernel_backward": [S.ERROR],  # The signal to its parent is refused.
    "upsample_nearest2d": [S.TIMEOUT] * 2 + [S.NOT_RUN],
    "trace": [S.ERROR],
    "native_dropout_backward": [S.ERROR],
    "log_sigmoid_backward": [S.ERROR],
    "linalg_matrix_exp": [S.ERROR],
    "block_diag": [S.ERROR],
    "embedding_dense_backward": [S.CRASHED] * 3 + [S.NOT_RUN],
    "rrelu_with_noise_backward": [S.OUT_OF_MEMORY] * 3 + [S.NOT_RUN],
    "hardswish": [S.PASSED],
    "gelu_backward": [S.PASSED],
}
#: Its thread crashes while the second call of its process runs.
CRASHES_LATER = "upsample_nearest3d"
OPS = (*EXPECTED, CRASHES_LATER)

MAX_RUN_S = 120

EMPTY_TENSOR = re.compile(r"T\(\[(\d+, )*0[],]")


class HostileRun:
    """The run over the whole directory that the tests here look at."""

    def __init__(self, summary: Summary, verdicts: list[Verdict], wall_s: float, marker: Path) -> None:
        self.summary = summary
        self.wall_s = wall_s
        self.marker = marker
        self.statuses: dict[str, list[Status]] = {}
        for verdict in verdicts:
            # Without elements, a wrong value or layout is right.
            if not verdict.expects_error and not EMPTY_TENSOR.search(verdict.inputs):
                self.statuses.setdefault(verdict.op.removesuffix(".default"), []).append(verdict.status)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRun]:
    """Judge the directory once, with limits that fit tests."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        install_suite(folder, patch)
        # A path that every process below carries in its environment, whatever becomes of its parents.
        (folder / "tmp").mkdir()
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setattr("tempfile.tempdir", None)
        # A machine that has to find the pages first gives out 0.5 GiB a second.
        patch.setattr(starting, "MEMORY_LIMIT_BYTES", 1 << 29)
        options = Options(
            suite="hostile",
            backend=str(DIRECTORY),
            device="cpu",
            dtypes=("f32",),
            ops=tuple(f"{op}.default" for op in OPS),
            integrity="off",  # What is right of them is torch's own answer, so as not to hide what is wrong.
        )
        started = time.monotonic()
        limits = Limits(load_s=4.0, call_s=6.0)
        summary = pipeline.evaluate(options, folder / "run", seed=1, jobs=2, limits=limits)
        verdicts = list(RunDirectory(folder / "run").verdicts())
        yield HostileRun(summary, verdicts, time.monotonic() - started, folder / "tmp")


def test_every_kernel_of_the_directory_is_judged() -> None:
    """Nothing lies in the directory that the table above does not know, and each file says what it does."""
    assert {folder_name(f"{op}.default") for op in OPS} == {folder.name for folder in DIRECTORY.iterdir()}
    sources = {path: path.read_text().splitlines()[0] for path in DIRECTORY.glob("*/*.py")}
    assert all(ast.literal_eval(line) for line in sources.values())


@pytest.mark.parametrize("op", EXPECTED)
def test_a_hostile_kernel_gets_the_status_of_what_it_does(run: HostileRun, op: str) -> None:
    """Two time-outs or three crashes are enough; the cases after them are NOT_RUN."""
    found = run.statuses[op]
    expected = EXPECTED[op] + EXPECTED[op][-1:] * len(found)
    assert expected[: len(found)] == found


def test_a_thread_that_crashes_later_costs_the_cases_that_run_then(run: HostileRun) -> None:
    """The first answer was right and stays so."""
    found = run.statuses[CRASHES_LATER]
    assert S.PASSED == found[0]
    assert S.CRASHED in found[1:]
    assert {S.PASSED, S.CRASHED, S.NOT_RUN} >= set(found)


def test_every_op_has_its_verdicts_and_the_run_has_not_passed(run: HostileRun) -> None:
    """A kernel's end never takes another's verdicts along, and exit status 1 says that something failed."""
    assert run.summary.ops["asked"] == run.summary.ops["answered"] == len(OPS)
    passed = {op.removesuffix(".default") for op, found in run.summary.per_op.items() if found.accepted}
    assert {op for op, statuses in EXPECTED.items() if statuses == [S.PASSED]} == passed
    assert 1 == exit_status(run.summary)


def test_nothing_of_the_run_survives_it(run: HostileRun) -> None:
    """No process lives on, not even a daemon in a session of its own, and no scratch folder is left."""
    assert [] == processes_with_command(b"sleep\x003600.125")
    assert [] == processes_with_environment(str(run.marker).encode())
    assert [] == list(run.marker.iterdir())


def test_the_run_ends_in_time(run: HostileRun) -> None:
    """Nothing hangs: the limits above add up to less than this."""
    assert run.wall_s < MAX_RUN_S
