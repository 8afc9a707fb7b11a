"""What is held against a kernel, and when its files are read for that."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import msgspec
import pytest

from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.conduct import AtenCall, CallConduct, Held, Offence
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.verdict import Status, Verdict
from opsmith.evaluation.integrity.static import StaticFinding
from opsmith.runner.judge import conduct as conduct_module
from opsmith.runner.judge.conduct import SHORT_TURN_S, JobConduct
from opsmith.runner.judge.verdicts import failed, with_offence
from opsmith.runner.processes.failures import WorkerFailed
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

ADD = AtenCall("add.Tensor", "conj.py:6")
OWN = AtenCall("conj_physical.default", "conj.py:7")
COMPOSES = "composes ATen ops; pass --policy any to allow it"
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


@pytest.mark.parametrize(("kind", "expected"), [(TaskKind.COLLECTIVE, Status.PASSED), (TaskKind.OP, Status.POLICY)])
def test_arithmetic_is_held_against_a_kernel_only_where_its_task_is_to_compute(
    kind: TaskKind, expected: Status, tmp_path: Path
) -> None:
    """Policy native leaves it to a collective, whose task is to communicate."""
    source = (
        "import torch\nimport torch.distributed as dist\n"
        "def conj_(x):\n    other = torch.empty_like(x)\n    dist.recv(other, src=1)\n    return torch.add(x, other)\n"
    )
    job = msgspec.structs.replace(JOB, schema=msgspec.structs.replace(JOB.schema, kind=kind), policy="native")
    assert expected is judged(tmp_path, source, job=job, launches=1, calls=(ADD,)).status


def test_a_source_that_torch_computes_is_open_only_if_the_run_saw_it(tmp_path: Path) -> None:
    """A kernel that made the watch blind is told by its source."""
    job = msgspec.structs.replace(JOB, policy="native")
    source = "import torch\ndef conj_(x):\n    return torch.add(x, 1)\n"
    seen, unseen = (judged(tmp_path, source, job=job, launches=1, calls=calls) for calls in ((ADD,), ()))
    assert (Status.POLICY, Status.DISHONEST) == (seen.status, unseen.status)
    assert seen.detail.endswith(COMPOSES)
    assert "no call of ATen's that computes was seen" in unseen.detail


@pytest.mark.parametrize(
    ("policy", "conduct", "said", "status"),
    [
        (
            "native",
            CallConduct(forbidden=(ADD,)),
            f"called aten::add.Tensor at conj.py:6: {COMPOSES}",
            Status.POLICY,
        ),
        (
            "native",
            CallConduct(copied_results=(AtenCall("clone.default", "conj.py:8"),)),
            "aten::clone.default at conj.py:8 wrote the result, and nothing after it: " + COMPOSES,
            Status.POLICY,
        ),
        # No policy allows that, so none is named.
        (
            "native",
            CallConduct(forbidden=(ADD, OWN)),
            "called aten::conj_physical.default at conj.py:7: the op itself, which no policy allows",
            Status.POLICY,
        ),
        ("any", CallConduct(forbidden=(OWN,)), "called aten::conj_physical.default at conj.py:7", Status.POLICY),
        (
            "native",
            CallConduct(forbidden=(ADD,), hidden=(OWN,)),
            "called aten::conj_physical.default at conj.py:7, out of sight of the dispatch mode around the call",
            Status.DISHONEST,
        ),
        (
            "any",
            CallConduct(hidden=(OWN,)),
            "called aten::conj_physical.default at conj.py:7, out of sight of the dispatch mode around the call",
            Status.DISHONEST,
        ),
    ],
)
def test_composing_in_the_open_is_a_matter_of_policy(
    policy: str, conduct: CallConduct, said: str, status: Status
) -> None:
    """The hint stands where another policy would help; one hidden call outweighs what was open."""
    job = msgspec.structs.replace(JOB, policy=policy)
    found = _with_conduct(job, conduct)
    assert (status, said) == (found.status, found.detail)
    assert f"policy: {policy}" in found.evidence


def test_a_copy_of_model_is_told_to_allow_nothing() -> None:
    """Policy any refuses it as well."""
    schema = msgspec.structs.replace(JOB.schema, name="problem", kind=TaskKind.MODULE)
    for policy in ("native", "any"):
        job = msgspec.structs.replace(JOB, schema=schema, policy=policy)
        seen = CallConduct(calls=(ADD,), forbidden=(ADD,) if policy == "native" else ())
        found = _with_conduct(job, seen, reference_calls=("add.Tensor",))
        assert Status.POLICY is found.status
        assert found.detail.startswith("made the 1 ATen calls of Model")
        assert "--policy" not in " ".join(found.evidence)


def test_a_hint_of_a_collective_speaks_of_collectives() -> None:
    """It does not compose ATen ops."""
    schema = msgspec.structs.replace(JOB.schema, name="_c10d_functional.all_reduce", kind=TaskKind.COLLECTIVE)
    call = AtenCall("c10d.allreduce_.default", "own.py:3")
    found = _with_conduct(msgspec.structs.replace(JOB, schema=schema, policy="native"), CallConduct(forbidden=(call,)))
    assert (Status.POLICY, "has torch's collectives communicate; pass --policy any to allow it") == (
        found.status,
        found.detail.partition(": ")[2],
    )


def test_a_wrong_answer_stays_wrong_whatever_the_policy_says() -> None:
    """That is worse."""
    found = with_offence(_verdict(JOB, Status.WRONG_VALUE), [Held("called aten::add", Offence.COMPOSITION)], "native")
    assert (Status.WRONG_VALUE, True) == (found.status, "called aten::add" in found.evidence)


@pytest.mark.parametrize(
    ("offence", "status"),
    [
        (Offence.COMPOSITION, Status.CRASHED),
        (Offence.CONCEALMENT, Status.DISHONEST),
        (Offence.TAMPERING, Status.DISHONEST),
    ],
)
def test_a_worker_that_dies_after_it_composed_has_died(offence: Offence, status: Status) -> None:
    """Only what it hid explains its end away."""
    case = CaseRef(
        address=CaseAddress("s", "e", "f32", "sample", 0, 0),
        op=JOB.schema.name,
        signature="",
        content_hash="",
        size_bytes=0,
        spool=0,
        offset=0,
        length=0,
    )
    failure = WorkerFailed(Status.CRASHED, "signal 11", ("a trace",), (Held("called aten::add", offence),))
    found = failed(JOB, case, failure)
    assert status is found.status
    assert "called aten::add" in found.evidence


@pytest.mark.parametrize(
    ("source", "hides"),
    [
        ("import gc\ndef unused(): return gc.get_objects()\n", True),
        ("import torch\ndef unused(): return torch._C._DisableTorchDispatch()\n", True),
        ("import ctypes\nlibrary = ctypes.CDLL('libtorch_cpu.so')\n", True),
        ("import ctypes\nlibrary = ctypes.CDLL('libm.so.6')\n", False),
        ("import sys\nKNOWN = 'triton' in sys.modules\n", False),
        ("import threading\nLOCK = threading.Lock()\n", False),
    ],
)
def test_a_composition_has_no_use_for_a_way_out_of_sight(source: str, tmp_path: Path, *, hides: bool) -> None:
    """Whether such a line ran before the judge says nothing about what it does elsewhere."""
    (tmp_path / "conj.py").write_text(source + "def conj_(x): return x.add_(1)\n")
    kernel = msgspec.structs.replace(JOB.kernel, files={"conj.py": ""}, dsl="cpp")
    conduct = JobConduct(msgspec.structs.replace(JOB, kernel=kernel, root=tmp_path, policy="native"), "cpu")
    clean = conduct.verdict()
    conduct.held_against(PREPARED, _returned(CallConduct(forbidden=(ADD,))), (), replayed=False, passed=True)
    verdict = conduct.verdict()
    assert clean is not None
    assert verdict is not None
    assert Status.DISHONEST is not clean.status
    assert hides is (verdict.status is Status.DISHONEST)


PREPARED = PreparedCase(None, 1, "exact", "", result_bytes=(800,), writes=True)


def _returned(conduct: CallConduct) -> Returned:
    return Returned((msgspec.Raw(b"\x00"),), (conduct,))


def _verdict(job: Job, status: Status) -> Verdict:
    return Verdict(op=job.schema.name, case="", content_hash="", dtype="f32", kernel="", status=status)


def _with_conduct(job: Job, conduct: CallConduct, reference_calls: tuple[str, ...] = ()) -> Verdict:
    """The verdict on a right answer that came about like that."""
    prepared = msgspec.structs.replace(PREPARED, reference_calls=reference_calls)
    held = JobConduct(job, "cpu").held_against(prepared, _returned(conduct), (), replayed=False, passed=True)
    return with_offence(_verdict(job, Status.PASSED), held, job.policy)


def judged(
    folder: Path,
    source: str,
    *,
    writes: tuple[bool, ...] = (True,),
    launches: int = 0,
    device: str = "cpu",
    job: Job = JOB,
    calls: tuple[AtenCall, ...] = (),
) -> Verdict:
    """The verdict about a kernel of one file that launched so often in the first of its cases."""
    (folder / "conj.py").write_text(source)
    kernel = msgspec.structs.replace(JOB.kernel, files={"conj.py": ""})
    conduct = JobConduct(msgspec.structs.replace(job, kernel=kernel, root=folder), device)
    for number, one in enumerate(writes):
        prepared = PreparedCase(None, 1, "exact", "", result_bytes=(800,), writes=one)
        seen = CallConduct(launches=launches if number == 0 else 0, calls=calls)
        reply = Returned((msgspec.Raw(b"\x00"),), (seen,))
        assert [] == conduct.held_against(prepared, reply, (), replayed=False, passed=True)
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


@pytest.mark.parametrize(("loader", "name"), [(Loader.MODULE, "ModelNew"), (Loader.FILE, "Conj")])
@pytest.mark.parametrize(("launches", "status"), [(0, Status.DISHONEST), (1, Status.POLICY)])
def test_the_kernels_that_a_module_declares_are_looked_for(
    launches: int, status: Status, loader: Loader, name: str, tmp_path: Path
) -> None:
    """The entry of its kernel is a class, of any name where a manifest says it; what is called is its forward."""
    source = DECLARED + f"import torch\nclass {name}:\n    def forward(self, x):\n        return torch.add(relu, x)\n"
    (tmp_path / "conj.py").write_text(source)
    kernel = msgspec.structs.replace(
        JOB.kernel, files={"conj.py": ""}, loader=loader, entry=f"conj.py:{name}", task="L1/1_X"
    )
    schema = msgspec.structs.replace(JOB.schema, name="L1/1_X", kind=TaskKind.MODULE)
    job = msgspec.structs.replace(JOB, kernel=kernel, schema=schema, root=tmp_path, policy="native")
    conduct = JobConduct(job, "cpu")
    seen = CallConduct(forbidden=(ADD,), calls=(ADD,), launches=launches)
    conduct.held_against(PREPARED, _returned(seen), (), replayed=False, passed=True)
    verdict = conduct.verdict()
    assert verdict is not None
    assert status is verdict.status
