"""A kernel that is right only where it is judged is refused, its twin accepted; records say that both were asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes

from opsmith import pipeline
from opsmith.core.op import folder_name
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.session import Session

pytestmark = pytest.mark.slow

SOURCE = """
import ctypes, subprocess, tempfile
import torch
from pathlib import Path

SOURCE = "void run(const float* x, float* y, long n) {{ for (long i = 0; i < n; ++i) y[i] = {expression}; }}"


def build():
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text("#include <math.h>\\n" + SOURCE)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(folder + "/kernel.so")


library = build()


def {name}_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    {condition}
    library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
    return out
"""
#: Only a judge watches what is dispatched.
WATCHED = "if not torch._C._len_torch_dispatch_stack(): "
CONDITIONS = {
    "honest": "",
    "wrong": f"{WATCHED}return out.zero_()",
    "raises": f"{WATCHED}raise ValueError('nobody looks')",
    "declines": f"{WATCHED}raise NotImplementedError",
    "crashes": f"{WATCHED}import os; os.abort()",
    "forges": f"{WATCHED}Path(tempfile.gettempdir(), '../answer').write_text('[]'); import os; os._exit(0)",
}
OP, EXPRESSION = "relu.default", "x[i] > 0 || x[i] != x[i] ? x[i] : 0"


def write(folder: Path, condition: str) -> Path:
    """A kernel directory with one kernel."""
    name = folder_name(OP)
    (folder / name).mkdir(parents=True)
    source = SOURCE.format(expression=EXPRESSION, name=name, condition=CONDITIONS[condition] or "pass")
    file = folder / name / f"{name}_implementation_v1.py"
    file.write_text(source)
    return file


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    """One zygote for all runs here."""
    with shared_processes("smoke"):
        yield


def options(backend: Path, isolation: str = "kernel") -> Options:
    """Of a run without timing."""
    return Options(
        suite="smoke", backend=str(backend), device="cpu", dtypes=("f32",), ops=(OP,), timing="off", isolation=isolation
    )


def about(folder: Path) -> Verdict:
    """The verdict on the conduct of a run's only kernel."""
    [found] = [verdict for verdict in RunDirectory(folder).verdicts() if verdict.part is Part.CONDUCT]
    return found


@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_only_a_judge_sees_is_refused(tmp_path: Path, condition: str) -> None:
    """However it fails elsewhere; all of its cases have passed."""
    write(tmp_path / "kernels", condition)
    summary = pipeline.evaluate(options(tmp_path / "kernels"), tmp_path / "run")
    found = about(tmp_path / "run")
    assert {"PASSED": 3} == dict(summary.per_op[OP].statuses)
    assert found.bare is not None
    assert "" == found.bare.problem
    assert (condition == "honest") is summary.per_op[OP].accepted
    if condition == "honest":
        assert (Status.PASSED, 3) == (found.status, found.bare.calls)
    else:
        assert Status.DISHONEST is found.status
        assert found.detail.startswith("right only where it is judged")


def test_workers_that_kernels_share_make_no_difference(tmp_path: Path) -> None:
    """The bare process is a kernel's own all the same."""
    write(tmp_path / "kernels", "wrong")
    pipeline.evaluate(options(tmp_path / "kernels", "backend"), tmp_path / "run")
    assert Status.DISHONEST is about(tmp_path / "run").status


def test_a_session_asks_as_a_run_does(tmp_path: Path) -> None:
    """Campaigns and the service judge kernels as they come."""
    with Session(options(Path("submitted")), tmp_path / "session") as session:
        honest = session.judge(OP, write(tmp_path / "honest", "honest"))
        wrong = session.judge(OP, write(tmp_path / "wrong", "wrong"))
    assert honest.summary.accepted
    assert not wrong.summary.accepted
    assert any(verdict.detail.startswith("right only where it is judged") for verdict in wrong.verdicts)
