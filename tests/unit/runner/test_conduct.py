"""What is held against a kernel, and when its files are read for that."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import msgspec
import pytest

from opsmith.core.conduct import CallConduct
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.verdict import Status, Verdict
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
    policy="any",
)

IMPORTED = "try:\n    import triton\nexcept ImportError:\n    triton = None\n"
DECLARED = IMPORTED + "@triton.jit\ndef relu(p):\n    pass\n"


@pytest.mark.parametrize(
    ("writes", "launches", "expected"),
    [
        ((False, False), 0, Status.PASSED),
        ((False, True), 0, Status.DISHONEST),
        ((True, True), 1, Status.PASSED),
    ],
)
def test_a_kernel_launches_where_there_is_something_to_write(
    writes: tuple[bool, ...], launches: int, expected: Status, tmp_path: Path
) -> None:
    """In-place ops that leave their argument as it is have nothing to launch; one case with work is enough to tell."""
    verdict = judged(tmp_path, DECLARED + "def conj_(x): relu[(1,)](x)\n", writes=writes, launches=launches)
    assert expected is verdict.status


@pytest.mark.parametrize(
    ("source", "device", "accused"),
    [
        (IMPORTED + "def conj_(x): return x\n", "cuda", False),
        (IMPORTED + "# @triton.jit\ndef conj_(x): return x.view(triton.cdiv(4, 2), 2)\n", "cuda", False),
        (IMPORTED + "def conj_(x): raise ValueError('where is triton.jit?')\n", "cuda", False),
        (DECLARED + "def conj_(x): return x\n", "cpu", True),
        (DECLARED + "def unused(x): relu[(1,)](x)\ndef conj_(x): return x\n", "cpu", True),
        (IMPORTED + "SOURCE = '\\n@triton.jit\\ndef relu(p): pass'\ndef conj_(x): return x\n", "cuda", True),
        (IMPORTED + "def body(p): pass\nrelu = triton.jit(body)\ndef conj_(x): return x\n", "cuda", True),
        # Of another op in the same file.
        (DECLARED + "def a__b_kernel_impl(x): relu[(1,)](x)\ndef conj_(x): return x\n", "cuda", False),
        # For GPUs alone, as it says.
        (DECLARED + "def conj_(x):\n    if x.is_cuda: relu[(1,)](x)\n    return x\n", "cpu", False),
        (DECLARED + "def conj_(x):\n    if x.is_cuda: relu[(1,)](x)\n    return x\n", "cuda", True),
        (DECLARED + "def conj_(x):\n    if x.numel() < 0: relu[(1,)](x)\n    return x\n", "cpu", True),
    ],
)
def test_a_decoy_is_what_a_file_declares_and_not_what_it_imports(
    source: str, device: str, *, accused: bool, tmp_path: Path
) -> None:
    """A file that can do without Triton has launched nothing of its own."""
    verdict = judged(tmp_path, source, device=device)
    assert accused is (verdict.status is Status.DISHONEST)
    assert accused is ("no Triton kernel of its files was launched" in verdict.detail)


@pytest.mark.parametrize(("kind", "expected"), [(TaskKind.COLLECTIVE, Status.PASSED), (TaskKind.OP, Status.DISHONEST)])
def test_arithmetic_is_held_against_a_kernel_only_where_its_task_is_to_compute(
    kind: TaskKind, expected: Status, tmp_path: Path
) -> None:
    """Policy native leaves it to a collective, whose task is to communicate."""
    source = (
        "import torch\nimport torch.distributed as dist\n"
        "def conj_(x):\n    other = torch.empty_like(x)\n    dist.recv(other, src=1)\n    return torch.add(x, other)\n"
    )
    job = msgspec.structs.replace(JOB, schema=msgspec.structs.replace(JOB.schema, kind=kind), policy="native")
    assert expected is judged(tmp_path, source, job=job, launches=1).status


def judged(
    folder: Path,
    source: str,
    *,
    writes: tuple[bool, ...] = (True,),
    launches: int = 0,
    device: str = "cpu",
    job: Job = JOB,
) -> Verdict:
    """The verdict about a kernel of one file that launched so often in the first of its cases."""
    (folder / "conj.py").write_text(source)
    kernel = msgspec.structs.replace(JOB.kernel, files={"conj.py": ""})
    conduct = JobConduct(msgspec.structs.replace(job, kernel=kernel, root=folder), device)
    for number, one in enumerate(writes):
        prepared = PreparedCase(None, 1, "exact", "", result_bytes=(800,), writes=one)
        reply = Returned((msgspec.Raw(b"\x00"),), (CallConduct(launches=launches if number == 0 else 0),))
        assert [] == conduct.offence(prepared, reply, (), replayed=False, passed=True)
    verdict = conduct.verdict()
    assert verdict is not None
    return verdict


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
    several = [JobConduct(JOB, "cpu") for _ in range(2)]
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
