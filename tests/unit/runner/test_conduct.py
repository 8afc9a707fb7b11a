"""What is held against a kernel, and when its files are read for that."""

from __future__ import annotations

import sys
import threading

import msgspec
import pytest

from opsmith.core.conduct import CallConduct
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.verdict import Status
from opsmith.evaluation.integrity.static import StaticFinding
from opsmith.runner.judge import conduct as conduct_module
from opsmith.runner.judge.conduct import SHORT_TURN_S, JobConduct
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import PreparedCase
from opsmith.runner.protocol.worker_messages import Returned

JOB = Job(
    schema=OpSchema(
        name="conj_physical_.default",
        schema="aten::conj_physical_(Tensor(a!) self) -> Tensor(a!)",
        variant=Variant.INPLACE,
        tags=(),
    ),
    kernel=Kernel(
        task="conj_physical_.default", backend="test", loader=Loader.FILE, entry="conj.py:conj_", dsl="triton"
    ),
    root=None,
    cases=(),
    counts={},
    policy="native",
)


@pytest.mark.parametrize(
    ("writes", "launches", "expected"),
    [
        ((False, False), 0, Status.PASSED),
        ((False, True), 0, Status.DISHONEST),
        ((True, True), 1, Status.PASSED),
    ],
)
def test_a_kernel_launches_where_there_is_something_to_write(
    writes: tuple[bool, ...], launches: int, expected: Status
) -> None:
    """In-place ops that leave their argument as it is have nothing to launch; one case with work is enough to tell."""
    conduct = JobConduct(JOB)
    for number, one in enumerate(writes):
        prepared = PreparedCase(None, 1, "exact", "", result_bytes=(800,), writes=one)
        reply = Returned((msgspec.Raw(b"\x00"),), (CallConduct(launches=launches if number == 0 else 0),))
        assert [] == conduct.offence(prepared, reply, (), replayed=False, passed=True)
    verdict = conduct.verdict()
    assert verdict is not None
    assert expected is verdict.status


def test_files_are_read_beside_the_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to know what they show waits for it; turns are short meanwhile and as before afterwards."""
    usual_s, reading, done = sys.getswitchinterval(), threading.Event(), threading.Event()
    turns: list[float] = []

    def examine(_job: Job) -> tuple[StaticFinding, ...]:
        turns.append(sys.getswitchinterval())
        reading.set()
        assert done.wait(10)
        raise ValueError("cannot be read")

    monkeypatch.setattr(conduct_module, "_examine", examine)
    several = [JobConduct(JOB) for _ in range(2)]
    assert reading.wait(10)
    done.set()
    for conduct in several:
        with pytest.raises(ValueError, match="cannot be read"):
            conduct.verdict()
    for thread in threading.enumerate():
        if thread.name == "examination":
            thread.join(10)
    assert [SHORT_TURN_S] * 2 == pytest.approx(turns)
    assert usual_s == pytest.approx(sys.getswitchinterval())
