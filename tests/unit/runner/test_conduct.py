"""What is held against a Triton kernel of which nothing was ever launched."""

from __future__ import annotations

import msgspec
import pytest

from opsmith.core.conduct import CallConduct
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.verdict import Status
from opsmith.runner.conduct import JobConduct
from opsmith.runner.job import Job
from opsmith.runner.protocol import PreparedCase, Returned

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
