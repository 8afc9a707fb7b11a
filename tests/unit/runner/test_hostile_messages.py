"""Ten thousand messages that no honest worker sends: each costs its sender, never the judge or the referee."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch

from opsmith.calls.live import rebuild_all
from opsmith.calls.seeding import seed_of
from opsmith.core.case import CallRecord, CaseAddress, CaseRef, Outcome, OutputTensor, StoredOutcome, TensorValue
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import Selection
from opsmith.core.verdict import Status
from opsmith.errors import ProcessLost, ProtocolError
from opsmith.evaluation.eager.reference import observe_eager
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.channel import HEADER, MAGIC, MAX_FRAME_BYTES, Channel
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import CaseToPrepare, Compare, Compared, Prepare, Prepared
from opsmith.runner.protocol.timing_messages import BlockTimed
from opsmith.runner.protocol.worker_messages import (
    Answered,
    CallToRun,
    Discover,
    Discovered,
    Loaded,
    Raised,
    Returned,
    RunCalls,
    Started,
    WorkerReply,
)
from opsmith.runner.referee.server import Referee

#: Shares of the ten thousand: bytes on the judge's channel, conversations with its link to a worker, outcomes
#: in the referee, and what a real worker sends.
FRAMES, CONVERSATIONS, OUTCOMES, REAL = 5_000, 2_000, 2_960, 40
MAX_SECONDS_EACH = 2.0
CPU = torch.device("cpu")

OUTCOME = Outcome(
    structure="(*,*)",
    outputs=(
        OutputTensor("f32", (2, 3), (3, 1), 0, "cpu", "strided", None, None, bytes(24)),
        OutputTensor("i64", (2,), (1,), 0, "cpu", "strided", None, None, bytes(16)),
    ),
    changed={0: bytes(24)},
)
REPLIES = (
    Started(),
    Loaded(0.5),
    Raised("error", "ValueError: no", "Traceback"),
    Answered((Returned((msgspec.Raw(msgspec.msgpack.encode(OUTCOME)),)), Raised("memory", "x", ""))),
    BlockTimed(12.5),
    Discovered({"relu.default": "x.py"}, "triton", None),
)
#: What no field of a message is meant to hold.
ABSURD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, float("nan"), float("inf"), ""),
    *("*", "(*,*)", "f32", "bf16", "c64", "strided", "sparse_coo", "meta", "cuda:99", "../passwd", "\0", "x" * 5000),
    *(b"", b"\xff" * 100, [], [0], [-1], [2**62, 2**62], [1] * 70, [[[[[[[[]]]]]]]]),
    *({}, {"type": "stored"}, {0: b""}, {-1: b"", 99: b""}),
)


def mutated_tree(rng: random.Random, value: Any) -> Any:
    """A copy of plain data in which a few places hold something else."""
    if rng.random() < 0.15:
        return rng.choice(ABSURD)
    if isinstance(value, dict):
        copy = {key: mutated_tree(rng, item) for key, item in value.items()}
        if copy and rng.random() < 0.05:
            copy.pop(rng.choice(list(copy)))
        return copy
    if isinstance(value, (list, tuple)):
        items = [mutated_tree(rng, item) for item in value]
        return items * rng.choice((1, 1, 1, 1, 0, 2))
    if isinstance(value, bytes) and value and rng.random() < 0.3:
        return mutated_bytes(rng, value)
    return value


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes with a few changed, inserted or removed."""
    copy = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(copy) + 1)
        match rng.randrange(4):
            case 0:
                copy[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                copy[place:place] = rng.randbytes(rng.randint(1, 20))
            case 2:
                del copy[place : place + rng.randint(1, 20)]
            case _:
                del copy[place:]
    return bytes(copy)


def mutated_body(rng: random.Random) -> bytes:
    """The body of a message that is nearly a reply, or nothing like one."""
    body = msgspec.msgpack.encode(rng.choice(REPLIES))
    match rng.randrange(6):
        case 0:
            return body
        case 1:
            return mutated_bytes(rng, body)
        case 2:
            return rng.randbytes(rng.randint(0, 300))
        case 3:  # Arrays within arrays, or maps within maps.
            return rng.choice((b"\x91", b"\x81\xa4type")) * rng.choice((10, 1000, 5000)) + b"\xc0"
        case _:
            return msgspec.msgpack.encode(mutated_tree(rng, msgspec.msgpack.decode(body)))


def hostile_bytes(rng: random.Random) -> bytes:
    """What a hostile worker may write to its channel; it fits into the socket's buffer."""
    body = mutated_body(rng)
    claimed = rng.choice((len(body),) * 6 + (0, 1, len(body) - 1, len(body) + 1, MAX_FRAME_BYTES, 2**63, 2**64 - 1))
    header = HEADER.pack(rng.choice((MAGIC,) * 9 + (b"OPSN",)), max(claimed, 0))
    match rng.randrange(12):
        case 0:
            return (header + body)[: rng.randrange(HEADER.size + len(body) + 1)]
        case 1:
            return header + body + rng.randbytes(rng.randint(1, 50))
        case 2:
            return (header + body) * 2
        case 3:
            return mutated_bytes(rng, header + body)
        case _:
            return header + body


def test_no_bytes_break_a_channel() -> None:
    """Whatever arrives is one of the reply's types, or one of three errors, in time."""
    seen = {"a reply": 0, ProtocolError: 0, EOFError: 0, TimeoutError: 0}
    for seed in range(FRAMES):
        rng = random.Random(seed)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(hostile_bytes(rng))
            if rng.random() < 0.95:
                theirs.shutdown(socket.SHUT_WR)
            started = time.monotonic()
            try:
                assert isinstance(Channel(ours).receive(WorkerReply, 0.02), tuple(map(type, REPLIES)))
                seen["a reply"] += 1
            except (ProtocolError, EOFError, TimeoutError) as exc:
                seen[type(exc)] += 1
            assert time.monotonic() - started < MAX_SECONDS_EACH
    assert all(count > FRAMES / 200 for count in seen.values()), seen


class StandInProcesses:
    """Gives a link a worker of whose channel the test holds the other end."""

    def __init__(self, folder: Path) -> None:
        self.scratch = folder
        self.theirs: socket.socket | None = None

    def start_nursery(self, reach: object) -> StandInProcesses:
        return self

    def has_memory_for_worker(self) -> bool:
        return False

    def fork(self, role: str, config: object, nursery: object) -> StandInWorker:
        ours, self.theirs = socket.socketpair()
        channel = Channel(self.theirs)
        channel.send_descriptor(None)
        channel.send(Started())
        return StandInWorker(self, Channel(ours))

    def guard(self, child: StandInWorker, questions: int | None, builds: Path) -> None: ...

    def discard(self, child: StandInWorker) -> None:
        child.channel.close()
        assert self.theirs is not None
        self.theirs.close()

    def is_lost(self, child: StandInWorker) -> bool:
        return False

    def close(self) -> None: ...


class StandInWorker:
    """What a link asks of a child."""

    killed_for = None
    is_at_work = False
    is_trusted = False
    gate = None
    pid = 0
    output_bytes = 0
    usable = True

    def __init__(self, zygote: StandInProcesses, channel: Channel) -> None:
        self.zygote, self.channel = zygote, channel
        self.gone = False

    def wait(self, timeout_s: float) -> int | None:
        return 0

    def last_output(self) -> str:
        return ""


REQUESTS: tuple[tuple[msgspec.Struct, tuple[type[Any], ...]], ...] = (
    (RunCalls((CallToRun(b"", 0),)), (Answered, Raised)),
    (Discover("m:a", ()), (BlockTimed, Raised)),
    (Discover("m:a", ()), (Loaded, Raised)),
)


def answer_when_asked(sock: socket.socket, data: bytes) -> None:
    """Wait for a request, then send bytes, unless the judge has had enough by then."""
    with contextlib.suppress(OSError):
        sock.recv(1 << 16)
        sock.sendall(data)


@pytest.mark.slow
def test_no_conversation_breaks_a_link(tmp_path: Path) -> None:
    """A link gives a reply of a type that was asked for or says that its worker failed, and goes on with the next."""
    stand_in = StandInProcesses(tmp_path)
    limits = Limits(load_s=0.02, call_s=0.02)
    link = WorkerLink(cast("Processes", stand_in), device="cpu", builds=tmp_path, threads=1, spares=0, limits=limits)
    answers = failures = 0
    for seed in range(CONVERSATIONS):
        rng = random.Random(seed)
        request, expected = rng.choice(REQUESTS)
        if link._child is None:
            link._start()
        assert stand_in.theirs is not None
        # Half of the answers come before they are asked for.
        theirs, data = stand_in.theirs, hostile_bytes(rng)
        if rng.random() < 0.5:
            theirs.sendall(data)
        else:
            threading.Thread(target=answer_when_asked, args=(theirs, data)).start()
        started = time.monotonic()
        try:
            assert isinstance(link.ask(request, expected), expected)
            answers += 1
        except WorkerFailed as failure:
            failures += 1
            assert failure.status in (Status.CRASHED, Status.TIMEOUT)  # noqa: PT017 - some raise, some do not
            assert link._child is None
        assert time.monotonic() - started < MAX_SECONDS_EACH
    assert failures > CONVERSATIONS / 2
    assert answers > CONVERSATIONS / 100
    link.close()


@pytest.mark.parametrize("lost", [False, True])
def test_a_worker_that_is_silent_once_the_zygote_is_lost_is_not_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    """It may wait for what went with the zygote; its call is made again elsewhere."""
    stand_in = StandInProcesses(tmp_path)
    monkeypatch.setattr(stand_in, "is_lost", lambda _child: lost)
    limits = Limits(load_s=0.02, call_s=0.02)
    link = WorkerLink(cast("Processes", stand_in), device="cpu", builds=tmp_path, threads=1, spares=0, limits=limits)
    link._start()
    with pytest.raises(ProcessLost if lost else WorkerFailed):
        link.ask(Discover("m:a", ()), (Loaded,))


def test_what_is_said_unasked_is_no_answer(tmp_path: Path) -> None:
    """A reply that lies ready when a block is timed would make the block look as if it took no time."""
    stand_in = StandInProcesses(tmp_path)
    link = WorkerLink(
        cast("Processes", stand_in), device="cpu", builds=tmp_path, threads=1, spares=0, limits=Limits(call_s=1.0)
    )
    link._start()
    assert stand_in.theirs is not None
    Channel(stand_in.theirs).send(BlockTimed(None))
    with pytest.raises(WorkerFailed, match="before it was asked"):
        link.ask(Discover("m:a", ()), (BlockTimed,))


def test_a_trickle_ends_with_the_time_limit() -> None:
    """One byte at a time, each in time, and never the last one."""
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            theirs.sendall(HEADER.pack(MAGIC, 1 << 20))
            while not stop.wait(0.01):
                theirs.sendall(b"\x90")

    thread = threading.Thread(target=trickle)
    thread.start()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(ours).receive(WorkerReply, 0.3)
    assert 0.3 <= time.monotonic() - started < 1.3
    stop.set()
    thread.join()
    ours.close()
    theirs.close()


# ---------------------------------------------------------------- outcomes, in the referee


def tensor(storage: int, dtype: str, *shape: int) -> TensorValue:
    """A contiguous argument."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorValue(storage, dtype, shape, tuple(strides[: len(shape)]), 0, "cpu")


def content(*values: float, dtype: torch.dtype = torch.float32) -> bytes:
    """A storage of these elements."""
    return torch.tensor(values, dtype=dtype).numpy().tobytes()


NUMBERS = content(3.0, -1.0, 2.0, 0.5, -4.0, 1.5)
MATRIX = tensor(0, "f32", 2, 3)
#: A call of each way to compare: values, inputs that are written, several results, indices, bare numbers, draws.
CALLS = (
    CallRecord(op="relu.default", args=(MATRIX,), kwargs={}, storages=(NUMBERS,)),
    CallRecord(op="relu_.default", args=(MATRIX,), kwargs={}, storages=(NUMBERS,)),
    CallRecord(op="topk.default", args=(tensor(0, "f32", 6), 2), kwargs={}, storages=(NUMBERS,)),
    CallRecord(op="split.Tensor", args=(MATRIX, 1), kwargs={}, storages=(NUMBERS,)),
    CallRecord(op="linalg_svd.default", args=(MATRIX,), kwargs={}, storages=(NUMBERS,)),
    CallRecord(op="empty_like.default", args=(MATRIX,), kwargs={}, storages=(NUMBERS,)),
    CallRecord(op="_local_scalar_dense.default", args=(tensor(0, "f32"),), kwargs={}, storages=(content(2.5),)),
    CallRecord(op="bernoulli.p", args=(MATRIX, 0.5), kwargs={}, storages=(NUMBERS,)),
)


def case_of(record: CallRecord, spool: Path) -> CaseToPrepare:
    """The case of a call, which is appended to a spool file."""
    call = msgspec.msgpack.encode(record)
    with spool.open("ab") as stream:
        offset = stream.tell()
        stream.write(call)
    address = CaseAddress("test", record.op, "f32", "sample", 0, 0)
    ref = CaseRef(
        address=address,
        op=record.op,
        signature=record.op,
        content_hash=record.op,
        size_bytes=24,
        spool=0,
        offset=offset,
        length=len(call),
    )
    return CaseToPrepare(ref, 7)


class OutcomesBench:
    """A referee that holds :data:`CALLS`, and a folder in which a worker's files may lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "spool").mkdir()
        self.referee = Referee("cpu", folder / "spool", 0, Selection())
        prepared = self.referee.answer(Prepare(tuple([case_of(call, folder / "spool" / "0.spool") for call in CALLS])))
        assert isinstance(prepared, Prepared)
        self.repeats = [case.repeats for case in prepared.cases]
        self.honest = [
            [
                msgspec.msgpack.encode(held.outcome())
                for held in observe_eager(
                    record,
                    rebuild_all([record] * repeats, CPU),
                    [seed_of(7, number, repeats) for number in range(repeats)],
                    CPU,
                )
            ]
            for record, repeats in zip(CALLS, self.repeats, strict=True)
        ]

    def compare(self, number: int, outcomes: list[bytes]) -> Status:
        """The status that the referee finds for a case."""
        compared = self.referee.answer(
            Compare({number: tuple(map(msgspec.Raw, outcomes))}, {}, "strict", "dense", str(self.folder))
        )
        assert isinstance(compared, Compared), compared
        return compared.cases[number].status


#: What the fields of a result may hold and still decode.
FIELDS: dict[str, tuple[Any, ...]] = {
    "dtype": ("f64", "bool", "i64", "no such dtype", ""),
    "shape": ([], [0], [6], [3, 2], [-2, -3], [2**31, 2**31], [2**40, 0], [1] * 70),
    "strides": ([], [0, 0], [1, 2], [-3, -1], [2**62, 2**62], [1] * 70),
    "offset": (-1, 1, 2**62),
    "device": ("cuda", "meta", "no such device"),
    "layout": ("sparse_coo", "no such layout"),
    "input_storage": (0, -1, 99, 2**62),
    "output": (0, -1, 99),
    "data": (b"", bytes(24), b"\xff" * 24, bytes(23), bytes(1 << 20)),
}


def altered(rng: random.Random, data: bytes) -> bytes:
    """An outcome that decodes, with one to three of a result's fields changed."""
    outcome = msgspec.msgpack.decode(data)
    results = [output for output in outcome["outputs"] if output["type"] == "tensor"]
    for field in rng.sample(list(FIELDS), rng.randint(1, 3)) if results else ():
        rng.choice(results)[field] = rng.choice(FIELDS[field])
    if rng.random() < 0.3:
        outcome["changed"] = {rng.choice((0, 1, -1, 2**62)): rng.choice((b"", bytes(24), bytes(25), bytes(7)))}
    return msgspec.msgpack.encode(outcome)


def a_link(rng: random.Random, path: Path, data: bytes) -> None:
    """A link to the outcome itself, or to what never ends."""
    path.with_name("elsewhere").write_bytes(data)
    path.symlink_to(rng.choice((path.with_name("elsewhere"), Path("/dev/zero"), path)))


def a_pipe(rng: random.Random, path: Path, data: bytes) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(path)


def a_folder(rng: random.Random, path: Path, data: bytes) -> None:
    """A folder of that name."""
    path.mkdir()


def a_file(rng: random.Random, path: Path, data: bytes) -> None:
    """The outcome, whole or cut."""
    path.write_bytes(data[: rng.choice((len(data), len(data) // 2))])


PLACED: tuple[Callable[[random.Random, Path, bytes], None], ...] = (a_link, a_pipe, a_folder, a_file)


def stored(rng: random.Random, folder: Path, data: bytes) -> bytes:
    """A claim that an outcome lies in the worker's folder, where something else may lie."""
    path = folder / f"outcome-{rng.randrange(1 << 30)}"
    rng.choice(PLACED)(rng, path, data)
    name = rng.choice((path.name,) * 5 + (str(path), f"../{folder.name}/{path.name}", "outcome-", "/dev/zero"))
    size = rng.choice((len(data),) * 3 + (0, -1, len(data) // 2, 1 << 40))
    tensor = OutputTensor("u8", (len(data),), (1,), 0, "cpu", "strided", None, None, b"")
    form = Outcome(structure="*", outputs=(tensor,) * rng.choice((1, 1, 1, 0, 2)), changed={})
    return msgspec.msgpack.encode(StoredOutcome(name, form, (size,), rng.choice(({}, {}, {0: 0}, {7: -1}))))


@pytest.mark.slow
def test_no_outcome_breaks_the_referee(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Absurd shapes, strides, types and places: a finding for the case, and the next case is judged as ever."""
    bench = OutcomesBench(tmp_path)
    request.addfinalizer(bench.referee._spool.close)
    for number, outcomes in enumerate(bench.honest):
        assert Status.PASSED is bench.compare(number, outcomes)
    found = set()
    for seed in range(OUTCOMES):
        rng = random.Random(seed)
        number = rng.randrange(len(CALLS))
        outcomes = list(bench.honest[number])
        place = rng.randrange(len(outcomes))
        match rng.randrange(8):
            case 0:
                outcomes[place] = mutated_bytes(rng, outcomes[place])
            case 1:
                outcomes[place] = stored(rng, tmp_path, outcomes[place])
            case 2:
                outcomes = rng.choice(([], outcomes * 2, [rng.randbytes(30)]))
            case 3 | 4 | 5:
                outcomes[place] = altered(rng, outcomes[place])
            case _:
                outcomes[place] = msgspec.msgpack.encode(mutated_tree(rng, msgspec.msgpack.decode(outcomes[place])))
        started = time.monotonic()
        found.add(bench.compare(number, outcomes))
        assert time.monotonic() - started < MAX_SECONDS_EACH
    assert {Status.CRASHED, Status.WRONG_STRUCTURE, Status.WRONG_SHAPE, Status.WRONG_VALUE} <= found, found


# ---------------------------------------------------------------- a real worker

SCHEMA = OpSchema(name="relu.default", schema="aten::relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL)
HOSTILE_KERNEL = """
import os, time
from pathlib import Path

def run():
    os.write(3, Path(__file__).with_name("message").read_bytes())
    {then}
"""


@pytest.mark.slow
def test_no_worker_breaks_the_judge(tmp_path: Path) -> None:
    """A kernel that writes to its worker's channel fails, or is answered for, and the next one is judged as ever."""
    call = CallToRun(msgspec.msgpack.encode(CallRecord(op="relu.default", args=(), kwargs={}, storages=())), 0)
    with Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20) as processes:
        link = WorkerLink(
            processes,
            device="cpu",
            builds=tmp_path / "builds",
            threads=1,
            spares=1,
            limits=Limits(load_s=30.0, call_s=0.5),
        )
        failures = 0
        for seed in range(REAL):
            rng = random.Random(seed)
            then = rng.choice(("return", "os._exit(0)", "time.sleep(60)", "os.close(3)"))
            root = tmp_path / str(seed)
            root.mkdir()
            (root / "kernel.py").write_text(HOSTILE_KERNEL.format(then=then))
            (root / "message").write_bytes(hostile_bytes(rng))
            kernel = Kernel(
                task=SCHEMA.name,
                backend="test",
                loader=Loader.FILE,
                entry="kernel.py:run",
                files={"kernel.py": str(seed)},
            )
            link.retire()
            assert link.load(kernel, root, SCHEMA) is None
            try:
                link.ask(RunCalls((call,)), (Answered, Raised))
            except WorkerFailed:
                failures += 1
        assert failures > REAL / 2
        link.close()
