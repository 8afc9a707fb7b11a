"""Bytes from a stranger become a message of the protocol or one of three errors, in time."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.core.case import Outcome
from opsmith.errors import ProtocolError
from opsmith.runner.protocol.channel import HEADER, MAGIC, MAX_FRAME_BYTES, Channel
from opsmith.runner.protocol.worker_messages import Answered, CallToRun, Loaded, Raised, Returned, RunCalls, WorkerReply

RAISED = Raised("error", "ValueError: no", "Traceback")


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    """The judge's channel and the stranger's socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def frame(body: bytes) -> bytes:
    """A frame around ``body``."""
    return HEADER.pack(MAGIC, len(body)) + body


def test_messages_arrive_in_order_and_as_what_they_were(pair: tuple[Channel, socket.socket]) -> None:
    """Two messages in one stream, the second with raw bytes of another encoder in it."""
    channel, theirs = pair
    outcome = msgspec.msgpack.encode(Outcome(structure="*", outputs=(), changed={0: b"\x00\xff"}))
    for message in (RAISED, Answered((RAISED, Returned((msgspec.Raw(outcome),))))):
        Channel(theirs).send(message)
    assert RAISED == channel.receive(WorkerReply, 1.0)
    first, second = channel.receive(WorkerReply, 1.0).replies
    assert RAISED == first
    assert [outcome] == [bytes(raw) for raw in second.outcomes]


def test_a_frame_that_arrives_byte_by_byte_is_one_message(pair: tuple[Channel, socket.socket]) -> None:
    """Streams have no packets."""
    channel, theirs = pair

    def dribble() -> None:
        for number in frame(msgspec.msgpack.encode(RAISED)):
            theirs.sendall(bytes([number]))

    thread = threading.Thread(target=dribble)
    thread.start()
    assert RAISED == channel.receive(WorkerReply, 5.0)
    thread.join()


@pytest.mark.parametrize(
    "data",
    [
        b"OPSX" + frame(b"")[4:],
        HEADER.pack(MAGIC, MAX_FRAME_BYTES + 1),
        HEADER.pack(MAGIC, 2**64 - 1),
        b"print to the wrong descriptor",
        frame(b""),
        frame(b"\xc1"),
        frame(msgspec.msgpack.encode(RAISED) + b"\x00"),
        frame(msgspec.msgpack.encode(RAISED)[:-1]),
        frame(msgspec.msgpack.encode({"type": "Pickle", "data": b"cos\nsystem\n"})),
        frame(msgspec.msgpack.encode({"type": "Loaded", "load_s": "soon"})),
        frame(msgspec.msgpack.encode({"type": "Raised", "kind": 1, "message": "", "traceback": ""})),
        frame(b"\x84\xa4type\xa6Raised\xa4kind\xa1\xff\xa7message\xa0\xa9traceback\xa0"),
        frame(b"\x91" * 100_000),
    ],
    ids=range(13),
)
def test_bytes_that_are_no_message_are_a_protocol_error(pair: tuple[Channel, socket.socket], data: bytes) -> None:
    """Another magic, an absurd length, broken msgpack, another type, a wrong field, bad text, deep nesting."""
    channel, theirs = pair
    threading.Thread(target=theirs.sendall, args=(data,)).start()
    with pytest.raises(ProtocolError):
        channel.receive(WorkerReply, 5.0)


@pytest.mark.parametrize("size", [0, 3, HEADER.size, HEADER.size + 4])
def test_a_stream_that_ends_early_is_an_end_of_file(pair: tuple[Channel, socket.socket], size: int) -> None:
    """Before, in and after the header."""
    channel, theirs = pair
    theirs.sendall(frame(msgspec.msgpack.encode(RAISED))[:size])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        channel.receive(WorkerReply, 1.0)


def test_a_length_that_is_only_claimed_takes_no_memory(pair: tuple[Channel, socket.socket]) -> None:
    """Twelve bytes from a stranger must not fill the judge's memory."""
    channel, theirs = pair
    theirs.sendall(HEADER.pack(MAGIC, MAX_FRAME_BYTES) + b"few")
    theirs.shutdown(socket.SHUT_WR)
    tracemalloc.start()
    with pytest.raises(EOFError):
        channel.receive(WorkerReply, 1.0)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_sender_that_dribbles_cannot_stretch_the_time_limit(pair: tuple[Channel, socket.socket]) -> None:
    """The limit holds for the whole message, not for each part of it."""
    channel, theirs = pair
    stop = threading.Event()

    def dribble() -> None:
        for number in frame(bytes(10_000)):
            if stop.wait(0.02):
                return
            theirs.sendall(bytes([number]))

    thread = threading.Thread(target=dribble)
    thread.start()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        channel.receive(WorkerReply, 0.2)
    assert 0.2 <= time.monotonic() - started < 2.0
    stop.set()
    thread.join()


def test_a_receiver_that_does_not_read_cannot_hold_up_the_sender(pair: tuple[Channel, socket.socket]) -> None:
    """A request that is larger than the socket's buffer meets the time limit too."""
    channel, _ = pair
    with pytest.raises(TimeoutError):
        channel.send(RunCalls((CallToRun(bytes(64 << 20), 0),)), 0.2)


def test_a_large_message_passes_a_small_buffer(pair: tuple[Channel, socket.socket]) -> None:
    """Sending waits for the reader instead of failing."""
    channel, theirs = pair
    received: list[RunCalls] = []
    thread = threading.Thread(target=lambda: received.append(Channel(theirs).receive(RunCalls, 10.0)))
    thread.start()
    message = RunCalls((CallToRun(bytes(range(256)) * (1 << 15), 7),))
    channel.send(message, 10.0)
    thread.join()
    assert [message] == received


@given(data=st.binary(max_size=200), framed=st.booleans())
@settings(max_examples=300, deadline=None)
def test_no_bytes_do_anything_else(data: bytes, framed: bool) -> None:  # noqa: FBT001 - hypothesis passes it by name
    """Whatever a stranger writes: a message of the protocol, or one of these errors."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame(data) if framed else data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            message = Channel(ours).receive(WorkerReply, 1.0)
        except (ProtocolError, EOFError, TimeoutError):
            return
        assert isinstance(message, WorkerReply)


@given(cut=st.integers(0, 60), flip=st.integers(0, 60), bits=st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_no_damage_to_a_real_message_does_anything_else(cut: int, flip: int, bits: int) -> None:
    """The same for frames that are nearly right: one byte changed, the end cut off."""
    data = bytearray(frame(msgspec.msgpack.encode(Loaded(1.5))))
    data[flip % len(data)] ^= bits
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes(data[: len(data) - cut % len(data)]))
        theirs.shutdown(socket.SHUT_WR)
        try:
            message = Channel(ours).receive(WorkerReply, 1.0)
        except (ProtocolError, EOFError, TimeoutError):
            return
        assert isinstance(message, WorkerReply)
