"""Large outcomes as files between a worker, who may lie, and the referee."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from opsmith.calls import observer as outcomes
from opsmith.calls import transfer
from opsmith.calls.live import rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome, without_content
from opsmith.calls.synthetic import flat_view
from opsmith.calls.transfer import HostBytes, as_bytes, to_device
from opsmith.core.case import (
    CallRecord,
    CaseAddress,
    CaseRef,
    Outcome,
    OutputOther,
    OutputTensor,
    StoredOutcome,
    SummarisedOutcome,
    TensorValue,
)
from opsmith.core.run import Selection
from opsmith.core.verdict import Status
from opsmith.runner.child.outcome_files import INLINE_BYTES, OutcomeWriter, read_outcome, summarised
from opsmith.runner.protocol.referee_messages import CaseToPrepare, Compare, Compared, Prepare, Prepared
from opsmith.runner.referee.server import Referee

CPU = torch.device("cpu")
OTHER = OutputOther("int", 3)


def tensor_of_bytes(size_bytes: int, data: bytes = b"") -> OutputTensor:
    """A result of bytes."""
    return OutputTensor("u8", (size_bytes,), (1,), 0, "cpu", "strided", None, None, data)


def outcome(size_bytes: int) -> Outcome:
    """What a call left that returned one tensor of bytes."""
    return Outcome(structure="*", outputs=(tensor_of_bytes(size_bytes, bytes(size_bytes)),), changed={})


def stored(name: str, size_bytes: int) -> msgspec.Raw:
    """A worker's claim that the content of an outcome lies in a file."""
    form = Outcome(structure="*", outputs=(tensor_of_bytes(size_bytes),), changed={})
    return msgspec.Raw(msgspec.msgpack.encode(StoredOutcome(name, form, (size_bytes,), {})))


@pytest.mark.parametrize("size_bytes", [0, 100, INLINE_BYTES, 3 * INLINE_BYTES])
def test_an_outcome_arrives_whatever_its_size(tmp_path: Path, size_bytes: int) -> None:
    """Inside the message or as a file."""
    message = OutcomeWriter(tmp_path).encode(HeldOutcome.of(outcome(size_bytes)))
    arrived = read_outcome(message, tmp_path, CPU)
    assert isinstance(arrived, HeldOutcome)
    assert outcome(size_bytes) == arrived.outcome()


def test_content_arrives_wherever_it_lay_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of the buffer's size, the last one smaller; small pieces and numbers come as they are."""
    monkeypatch.setattr(transfer, "STAGED_BYTES", 1000)
    monkeypatch.setattr(transfer, "LARGE_BYTES", 100)
    transfer._buffer.cache_clear()
    pieces = [torch.arange(size, dtype=torch.int64).to(torch.uint8) for size in (2_500_001, 3)]
    form = Outcome(structure="(*,*,*)", outputs=(*[tensor_of_bytes(len(p)) for p in pieces], OTHER), changed={})
    held = HeldOutcome(form=form, elements=(*pieces, b""), changed={4: pieces[0], 2: b"small"})
    message = OutcomeWriter(tmp_path).encode(held)
    # What is on a device lies, in this process, on the host or nowhere.
    arrived = read_outcome(message, tmp_path, CPU)
    on_device = read_outcome(message, tmp_path, torch.device("meta"))
    transfer._buffer.cache_clear()
    assert isinstance(arrived, HeldOutcome)
    assert isinstance(on_device, HeldOutcome)
    assert held.equals(arrived)
    assert held.outcome() == arrived.outcome()
    assert [torch.Tensor, bytes, bytes] == [type(content) for content in on_device.elements]
    assert [torch.Tensor, bytes] == [type(content) for content in on_device.changed.values()]


@pytest.mark.parametrize("large_bytes", [10, 1000])
def test_content_reaches_a_device_and_comes_back(monkeypatch: pytest.MonkeyPatch, large_bytes: int) -> None:
    """In as many parts as it takes."""
    monkeypatch.setattr(transfer, "STAGED_BYTES", 7)
    monkeypatch.setattr(transfer, "LARGE_BYTES", large_bytes)
    transfer._buffer.cache_clear()
    data = bytes(range(100))
    assert data == as_bytes(to_device(data, CPU))
    assert b"" == as_bytes(to_device(b"", CPU))
    transfer._buffer.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_file_that_is_cut_short_while_it_is_read_is_no_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """A worker may do so at any time; mapped memory would end the referee."""
    size_bytes = 3 * INLINE_BYTES
    message = OutcomeWriter(tmp_path).encode(HeldOutcome.of(outcome(size_bytes)))
    sized = os.fstat

    def cutting(descriptor: int) -> os.stat_result:
        found = sized(descriptor)
        os.truncate(tmp_path / "outcome-0", size_bytes - 1)
        return found

    monkeypatch.setattr(transfer, "LARGE_BYTES", 100)
    monkeypatch.setattr(os, "fstat", cutting)
    with pytest.raises(EOFError):
        read_outcome(message, tmp_path, torch.device(device))


def test_a_large_outcome_does_not_pass_through_the_judge(tmp_path: Path) -> None:
    """The message names a file and holds none of its bytes."""
    message = OutcomeWriter(tmp_path).encode(HeldOutcome.of(outcome(3 * INLINE_BYTES)))
    assert len(bytes(message)) < 300


def test_the_files_of_a_reply_go_with_the_next(tmp_path: Path) -> None:
    """A worker that answers thousands of cases keeps the files of one reply."""
    writer = OutcomeWriter(tmp_path)
    for _ in range(3):
        writer.forget()
        writer.encode(HeldOutcome.of(outcome(2 * INLINE_BYTES)))
        writer.encode(HeldOutcome.of(outcome(2 * INLINE_BYTES)))
    assert ["outcome-0", "outcome-1"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["/etc/passwd", "../outcome-0", "outcome-0/x", "outcome-", "notes", "outcome-0\n"])
def test_no_other_file_can_be_named(tmp_path: Path, name: str) -> None:
    """The referee may read more than the worker: a name must not lead out of the worker's folder."""
    with pytest.raises(OSError, match="is no name of an outcome"):
        read_outcome(stored(name, 10), tmp_path, CPU)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """It could lead anywhere."""
    (tmp_path / "secret").write_bytes(bytes(4))
    (tmp_path / "outcome-0").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        read_outcome(stored("outcome-0", 4), tmp_path, CPU)


def test_a_pipe_does_not_make_the_referee_wait(tmp_path: Path) -> None:
    """Opening one for reading waits for a writer, by default for ever."""
    os.mkfifo(tmp_path / "outcome-0")
    with pytest.raises(OSError, match="no plain file"):
        read_outcome(stored("outcome-0", 0), tmp_path, CPU)


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    """A worker that still writes while the referee reads has not answered."""
    (tmp_path / "outcome-0").write_bytes(bytes(4))
    with pytest.raises(OSError, match="no plain file of 7 bytes"):
        read_outcome(stored("outcome-0", 7), tmp_path, CPU)


def test_a_size_below_zero_is_refused(tmp_path: Path) -> None:
    """It would make others read beyond what the file holds."""
    with pytest.raises(msgspec.ValidationError):
        read_outcome(stored("outcome-0", -1), tmp_path, CPU)


def test_content_in_the_form_of_a_stored_outcome_does_not_count(tmp_path: Path) -> None:
    """What a result is stands in one place."""
    (tmp_path / "outcome-0").write_bytes(b"file")
    message = msgspec.msgpack.encode(StoredOutcome("outcome-0", outcome(4), (4,), {}))
    arrived = read_outcome(msgspec.Raw(message), tmp_path, CPU)
    assert isinstance(arrived, HeldOutcome)
    assert (without_content(outcome(4)), (b"file",)) == (arrived.form, arrived.elements)


def test_a_summary_arrives_as_what_it_is(tmp_path: Path) -> None:
    """Nobody takes it for an outcome."""
    assert SummarisedOutcome(b"sixteen bytes...") == read_outcome(summarised(b"sixteen bytes..."), tmp_path, CPU)


Kernel = Callable[[torch.Tensor], torch.Tensor]
RELU: Kernel = torch.relu


class DeviceBytes(HostBytes):
    """Keeps pieces where they are, as those on a device are kept."""

    def add_storage(self, storage: torch.UntypedStorage) -> int:
        return self._add(flat_view(storage, torch.uint8).clone())

    def add_elements(self, tensor: torch.Tensor) -> int:
        return self._add(tensor.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8))


@pytest.fixture
def _on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes of more than 100 bytes lie on a device."""
    monkeypatch.setattr(outcomes, "HostBytes", DeviceBytes)
    monkeypatch.setattr(outcomes, "SUMMARISED_BYTES", 100)


def relu_of(*values: float) -> CallRecord:
    """A call on these numbers, repeated to a hundred."""
    data = struct.pack("100f", *(values * 100)[:100])
    return CallRecord(
        op="relu.default", args=(TensorValue(0, "f32", (100,), (1,), 0, ""),), kwargs={}, storages=(data,)
    )


FIRST, AGAIN = relu_of(-1.0, 2.0, 0.5), relu_of(3.0, -4.0)


def told(kernel: Kernel, record: CallRecord, *, fully: bool = False) -> msgspec.Raw:
    """What a worker sends of a kernel's outcome."""
    live = rebuild(record, torch.device("cpu"))
    observer = Observer()
    observer.keep([observer.describe(kernel(*live.args), live, record.storages)])
    [summary] = observer.summaries()
    assert summary is not None
    return msgspec.Raw(msgspec.msgpack.encode(observer.held(0).outcome())) if fully else summarised(summary)


def compared(tmp_path: Path, first: Sequence[msgspec.Raw], again: msgspec.Raw | None = None) -> Compared:
    """What the referee finds for these outcomes of one case."""
    calls = [msgspec.msgpack.encode(record) for record in (FIRST, AGAIN)]
    case = CaseRef(
        address=CaseAddress("opinfo", "relu", "f32", "sample", 0, 0),
        op="relu.default",
        signature="0",
        content_hash="0",
        size_bytes=400,
        spool=0,
        offset=0,
        length=len(calls[0]),
        again=(len(calls[0]), len(calls[1])),
    )
    (tmp_path / "0.spool").write_bytes(b"".join(calls))
    referee = Referee("cpu", tmp_path, 0, Selection())
    prepared = referee.answer(Prepare((CaseToPrepare(case, 1),)))
    assert isinstance(prepared, Prepared), prepared
    found = referee.answer(
        Compare({0: tuple(first)}, {} if again is None else {0: again}, "strict", "dense", str(tmp_path))
    )
    referee._spool.close()
    assert isinstance(found, Compared), found
    return found


@pytest.mark.usefixtures("_on_a_device")
def test_eagers_summary_passes_unseen(tmp_path: Path) -> None:
    """Of both calls."""
    found = compared(tmp_path, [told(RELU, FIRST)], told(RELU, AGAIN))
    assert (Status.PASSED, Status.PASSED) == (found.cases[0].status, found.again[0].status)
    assert ((), ()) == (found.unclear, found.replayed)


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: x.relu().add_(1e-6),  # Other bits.
        lambda x: x.relu().double(),
        lambda x: x.relu().view(10, 10),
        lambda x: x.relu_(),  # Returns its input.
        lambda x: (x.relu(), x.add_(1))[0],  # Changes its input.
        lambda x: x.relu().mul_(-1),
    ],
)
@pytest.mark.usefixtures("_on_a_device")
def test_another_summary_says_nothing_yet(tmp_path: Path, kernel: Kernel) -> None:
    """Neither pass nor failure, for the first call or for the second one; in full it is judged."""
    for first, again in ((kernel, RELU), (RELU, kernel)):
        found = compared(tmp_path, [told(first, FIRST)], told(again, AGAIN))
        assert ({}, {}, (0,)) == (found.cases, found.again, found.unclear)
    in_full = compared(tmp_path, [told(kernel, FIRST, fully=True)], told(RELU, AGAIN, fully=True))
    assert [0] == list(in_full.cases)
    assert () == in_full.unclear


@pytest.mark.usefixtures("_on_a_device")
def test_as_many_summaries_are_needed_as_executions(tmp_path: Path) -> None:
    """A second one is out of protocol."""
    found = compared(tmp_path, [told(RELU, FIRST)] * 2)
    assert Status.CRASHED is found.cases[0].status


@pytest.mark.usefixtures("_on_a_device")
def test_a_summary_of_another_call_is_not_eagers(tmp_path: Path) -> None:
    """The second call's answer is no answer to the first."""
    assert (0,) == compared(tmp_path, [told(RELU, AGAIN)]).unclear


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.usefixtures("_on_a_device")
def test_a_first_answer_that_is_given_again_is_a_replay(tmp_path: Path, *, fully: bool) -> None:
    """Also where the first was told by its summary and the second in full, as a worker may choose."""
    first = RELU(rebuild(FIRST, torch.device("cpu")).args[0])
    found = compared(tmp_path, [told(RELU, FIRST, fully=fully)], told(lambda _: first, AGAIN, fully=True))
    assert (Status.PASSED, Status.WRONG_VALUE) == (found.cases[0].status, found.again[0].status)
    assert (0,) == found.replayed


@pytest.mark.usefixtures("_on_a_device")
def test_a_wrong_second_answer_in_full_is_no_replay(tmp_path: Path) -> None:
    """Though the first was told by its summary."""
    found = compared(tmp_path, [told(RELU, FIRST)], told(lambda x: x.relu() + 1, AGAIN, fully=True))
    assert (Status.WRONG_VALUE, ()) == (found.again[0].status, found.replayed)


@pytest.mark.usefixtures("_on_a_device")
def test_small_outcomes_are_not_summarised() -> None:
    """Their bytes cost less than a second question; nor are those that are bytes already."""
    observer = Observer()
    for elements in (25, 26):
        record = CallRecord(op="", args=(), kwargs={}, storages=())
        observer.keep([observer.describe(torch.zeros(elements), rebuild(record, torch.device("cpu")), ())])
    small, large = observer.summaries()
    assert small is None
    assert large is not None


def test_outcomes_on_the_host_are_not_summarised(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have come already."""
    monkeypatch.setattr(outcomes, "SUMMARISED_BYTES", 0)
    observer = Observer()
    record = CallRecord(op="", args=(), kwargs={}, storages=())
    observer.keep([observer.describe(torch.zeros(1000), rebuild(record, torch.device("cpu")), ())])
    assert [None] == observer.summaries()
