"""The messages between judge, referees, workers and the zygote, and how they are framed.

A frame is a 4-byte magic, an 8-byte big-endian length and a msgpack body. Bodies decode into the
types below and nothing else; nothing is ever unpickled. The judge relays a worker's tensors to
the referee as an undecoded :class:`msgspec.Raw`.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time
from typing import Any, TypeVar

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.conduct import CallConduct
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.core.timing import Ceilings, GraphCosts, Work
from opsmith.core.trace import TracedCall
from opsmith.core.verdict import ErrorFigures, Status
from opsmith.errors import ProtocolError

MAGIC = b"OPSM"
#: What is said of a reply that decodes and yet answers something else than was asked.
OUT_OF_PROTOCOL = "the worker's reply is not of the protocol"
HEADER = struct.Struct(">4sQ")
#: A frame longer than this is refused before it is read.
MAX_FRAME_BYTES = 4 << 30
#: The same for a worker's: what is large in it lies in files.
MAX_REPLY_BYTES = 512 << 20
#: Far longer than a timed pair pauses between two messages.
SPIN_S = 0.02
#: A body of up to this size goes out together with its header.
JOINED_BYTES = 1 << 16
#: Taken from a socket at a time.
RECEIVE_BYTES = 1 << 20

Message = TypeVar("Message")


def spin_s(request: msgspec.Struct) -> float:
    """How long to look for the message that follows on a request before sleeping until it comes.

    A process that has slept wakes up on a cold core, and its next calls take two or three times as long
    as they do in a loop. So whoever has renewed its inputs waits awake for the block, and within a turn for
    what comes next: waking up takes up to 0.1 ms. The other side of the pair sleeps: both run on the same core.
    """
    goes_on = isinstance(request, RenewInputs) or (isinstance(request, TimeBlock) and request.more)
    return SPIN_S if goes_on else 0.0


def waits_awake(device: str) -> bool:
    """Whether the judge looks for the reply to a block again and again, instead of sleeping until it comes.

    Waking up takes it up to 0.1 ms, a fifth of a block. On a CPU, whose blocks are longer, it would take a
    processor from what it times.
    """
    return not device.startswith("cpu")


def answer_spin_s(request: msgspec.Struct) -> float:
    """How long a judge that waits awake looks for the reply to a request."""
    return SPIN_S if isinstance(request, RenewInputs | TimeBlock) else 0.0


# ---------------------------------------------------------------- judge <-> worker, judge <-> referee


class GiveMemoryBack(msgspec.Struct, frozen=True, tag=True):
    """Give the device what is kept for the next case: a case by itself needs it. Nothing is held after that."""


class MemoryGivenBack(msgspec.Struct, frozen=True, tag=True):
    """It is done."""


# ---------------------------------------------------------------- judge <-> worker


class LoadKernel(msgspec.Struct, frozen=True, tag=True):
    """Load a kernel; under a ``policy`` it is watched from then on, with None it is trusted."""

    kernel: Kernel
    root: str | None
    schema: OpSchema
    policy: str | None = None


class LentCall(msgspec.Struct, frozen=True):
    """A serialized call that lies in a file, which its worker can read and not write."""

    path: str


class CallToRun(msgspec.Struct, frozen=True):
    """A serialized :class:`~opsmith.core.case.CallRecord`, to be run ``repeats`` times on fresh copies.

    Attributes:
        again: the same call with other values, to be run after that at the same addresses.
        result_bytes: sizes of the results, for which a device's memory is filled with garbage.
        traced: note which lines of the kernel's files run in the last of these executions.
    """

    call: bytes | LentCall
    rng_seed: int
    repeats: int = 1
    again: bytes | LentCall | None = None
    result_bytes: tuple[int, ...] = ()
    traced: bool = False


class RunCalls(msgspec.Struct, frozen=True, tag=True):
    """Run the loaded kernel on several calls, one after another."""

    calls: tuple[CallToRun, ...]


class ShowOutcomes(msgspec.Struct, frozen=True, tag=True):
    """Show outcomes of the last :class:`RunCalls` in full, by their numbers in the order in which they came."""

    numbers: tuple[int, ...]


class PrepareTiming(msgspec.Struct, frozen=True, tag=True):
    """Get ready to make up to ``slots`` sets of a call's inputs, and run it on the first.

    Attributes:
        call: the serialized call.
        slots: sets of inputs; the referee may allow fewer.
        varied: rotate the values, so that each set has its own.
        pair: the number by which later requests name this call; 0 forgets all calls before.
        warm: as many sets as the device's cache holds, and nothing is put out of it.
        baseline: of the referee, what answers in eager's place; see :mod:`opsmith.evaluation.baselines`.
    """

    call: bytes
    slots: int
    varied: bool
    pair: int = 0
    warm: bool = False
    baseline: str = "eager"


class MakeReady(msgspec.Struct, frozen=True, tag=True):
    """Do what blocks need and should not wait for; answered with a :class:`BlockTimed`, which says what was captured.

    Attributes:
        pair: which call.
        calls: so many sets of inputs.
        captured: capture a CUDA graph of so many calls, if they can be.
    """

    pair: int
    calls: int
    captured: int | None = None


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """The values of a round, for the first ``sets`` sets of one call's inputs.

    Attributes:
        round: which values.
        sets: so many.
        pair: which call.
        warm_up: get ready for a block of E with so many calls, on the last of these sets; None for no such block.
    """

    round: int
    sets: int
    pair: int = 0
    warm_up: int | None = None


class RenewInputs(msgspec.Struct, frozen=True, tag=True):
    """Write fresh values into sets of inputs, of one call or of several; answered with a :class:`BlockTimed`."""

    renewals: tuple[Renewal, ...]


class TimeBlock(msgspec.Struct, frozen=True, tag=True):
    """Run ``calls`` calls, each on inputs of its own, and answer when they have finished.

    Attributes:
        calls: so many.
        quantity: ``K`` or ``E``.
        pair: which call.
        round: of K, write this round's values first; None leaves what is there.
        replays: of K, run the same calls so often, which is for the judge's own clock.
        steady: of K, take as long over everything else as in the last such block, for the judge's own clock.
        captured: of K, try a CUDA graph.
        more: another request of the same turn follows at once.
    """

    calls: int
    quantity: str
    pair: int = 0
    round: int | None = None
    replays: int = 1
    steady: bool = False
    captured: bool = True
    more: bool = False


class ShowTimed(msgspec.Struct, frozen=True, tag=True):
    """Show what the last block's call on one set of inputs returned; chosen when the block was over.

    Attributes:
        slot: which set.
        in_full: the outcome itself, even where a summary would do.
        pair: which call.
    """

    slot: int
    in_full: bool
    pair: int = 0


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """Say what the kernel has replaced of Python, torch or opsmith by now; it takes longer than a block."""


class Discover(msgspec.Struct, frozen=True, tag=True):
    """Ask a stranger's backend object which of these ops it answers."""

    target: str
    ops: tuple[str, ...]


class Started(msgspec.Struct, frozen=True, tag=True):
    """The first message of a worker, unasked: it has its device context."""


class Noticed(msgspec.Struct, frozen=True, tag=True):
    """Something that is held against the kernel, told at once: what comes later may be beyond telling.

    ``breach`` says that it broke its policy, which a reply says as well, call by call.
    """

    line: str
    breach: bool


WorkerRequest = (
    LoadKernel
    | RunCalls
    | ShowOutcomes
    | PrepareTiming
    | MakeReady
    | RenewInputs
    | TimeBlock
    | ShowTimed
    | Inspect
    | Discover
    | GiveMemoryBack
)


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The kernel is loaded; ``changes`` says what of Python, torch or opsmith it replaced by that."""

    load_s: float
    changes: tuple[str, ...] = ()


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The outcomes of all executions, each undecoded: ``Outcome``, ``StoredOutcome`` or ``SummarisedOutcome``.

    ``conduct`` says what was seen meanwhile, execution by execution, of a kernel under a policy;
    ``executed`` names the lines of its files that ran in the last one, where that was asked.
    """

    outcomes: tuple[msgspec.Raw, ...]
    conduct: tuple[CallConduct, ...] = ()
    executed: dict[str, tuple[int, ...]] = {}


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The kernel (or its loading) raised.

    ``kind``: ``unsupported`` (NotImplementedError), ``memory``, ``device`` (the device context is
    lost and the worker ends) or ``error``.
    """

    kind: str
    message: str
    traceback: str
    conduct: tuple[CallConduct, ...] = ()


class Answered(msgspec.Struct, frozen=True, tag=True):
    """What became of each call of a :class:`RunCalls`, in order.

    ``changes`` says what of Python, torch or opsmith the kernel has replaced by now.
    """

    replies: tuple[Returned | Raised, ...]
    changes: tuple[str, ...] = ()


class OutcomesShown(msgspec.Struct, frozen=True, tag=True):
    """Outcomes in full, in the order of the request."""

    outcomes: tuple[msgspec.Raw, ...]


class TimingPrepared(msgspec.Struct, frozen=True, tag=True):
    """The inputs are there, and a call has run.

    Attributes:
        slots: sets of inputs; the worker makes as many as the referee says.
        varied: whether the op takes varied values; the worker does as the referee says.
        first_call_s: seconds of the first call, compiling and tuning included.
        peak_bytes: device memory of torch's that a further call took at most; None where nothing counts it.
        work: of the referee, what the call has to do; None where that is not known.
    """

    slots: int
    varied: bool
    first_call_s: float
    peak_bytes: int | None = None
    work: Work | None = None


class BlockTimed(msgspec.Struct, frozen=True, tag=True):
    """A block has finished, or inputs are renewed.

    ``own_us`` is what the process itself has seen, in microseconds a call: K by its device's events, None
    where they cannot tell it from the host's time. Of an E block nobody relies on it: that is read from
    the judge's clock.
    ``nodes`` says how many nodes of a CUDA graph a call takes, or is None where none was captured.
    """

    own_us: float | None
    nodes: float | None = None


class Discovered(msgspec.Struct, frozen=True, tag=True):
    """op -> source file of its kernel, or an empty string where there is none to show."""

    answered: dict[str, str]
    dsl: str = "unknown"
    kernel_directory: str | None = None


class Inspected(msgspec.Struct, frozen=True, tag=True):
    """One line for each thing that was replaced."""

    changes: tuple[str, ...]


WorkerReply = (
    Started
    | Noticed
    | Loaded
    | Answered
    | OutcomesShown
    | Raised
    | TimingPrepared
    | BlockTimed
    | Inspected
    | Discovered
    | MemoryGivenBack
)


# ---------------------------------------------------------------- judge <-> referee


class OpenDevice(msgspec.Struct, frozen=True, tag=True):
    """Make the device context; the referee loads ``suite`` once it has answered."""

    suite: str | None = None


class ListOps(msgspec.Struct, frozen=True, tag=True):
    """Ask for the schemas of every ATen overload and the suite's entries for these dtypes."""

    suite: str
    dtypes: tuple[str, ...]


class Enumerate(msgspec.Struct, frozen=True, tag=True):
    """Turn one suite entry into cases; serialized calls go to the referee's spool file.

    ``ops`` limits what is spooled; None takes every op that the entry calls. ``only`` limits it to
    the case of that address. With ``again`` the entry is run under another seed as well, for the
    other values of each case. With ``afresh`` what was recorded before is recorded once more.
    """

    suite: str
    entry: str
    dtype: str
    device: str
    seed: int
    ops: tuple[str, ...] | None
    only: str | None
    again: bool = False
    afresh: bool = False


class CaseToPrepare(msgspec.Struct, frozen=True):
    """A case, whose serialized call the referee reads from the spool, and what its random state follows from."""

    case: CaseRef
    rng_seed: int


class MakeVariants(msgspec.Struct, frozen=True, tag=True):
    """Vary some of an op's calls in values, memory layout and shapes; eager must answer what comes out.

    Attributes:
        cases: the cases whose calls are varied; they are of one op.
        seed: of what is varied how.
        limit: at most so many variants.
    """

    cases: tuple[CaseRef, ...]
    seed: int
    limit: int


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Compute the references of some cases and hold them until others are prepared."""

    cases: tuple[CaseToPrepare, ...]


class Compare(msgspec.Struct, frozen=True, tag=True):
    """Judge a worker's outcomes against held references; the key is the case's place in ``Prepare``.

    ``again`` holds the outcomes on other values. ``folder`` is the worker's private folder, where its
    large outcomes lie. Where several ranks answered, ``rank_folders`` are theirs, and each outcome is the list of
    what they sent.
    """

    outcomes: dict[int, tuple[msgspec.Raw, ...]]
    again: dict[int, msgspec.Raw]
    tolerance: str
    layout: str
    folder: str
    rank_folders: tuple[str, ...] = ()


class CompareTimed(msgspec.Struct, frozen=True, tag=True):
    """Judge what a timed call returned against eager on the same values; answered with a :class:`Compared`.

    Its only case has the number 0; there is none where that result is not compared.
    """

    slot: int
    round: int
    outcome: msgspec.Raw
    tolerance: str
    layout: str
    folder: str
    pair: int = 0


class SetUpClock(msgspec.Struct, frozen=True, tag=True):
    """Measure what a device reaches, or read it from the cache; answered with a :class:`ClockSetUp`.

    ``folder`` holds the ceilings of devices that were measured before.
    """

    folder: str


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Run eager on one traced call and time it."""

    call: TracedCall
    seed: int


class Shrink(msgspec.Struct, frozen=True, tag=True):
    """Look for the smallest call that fails like example ``failing`` of a suite's entry; see ``suites.Shrinkable``.

    The answer is the first :class:`Proposal`; each :class:`Feedback` gets the next one.
    """

    suite: str
    entry: str
    dtype: str
    device: str
    seed: int
    failing: int
    limit_s: float


class Feedback(msgspec.Struct, frozen=True, tag=True):
    """Whether the last proposal failed; None ends the search."""

    failed: bool | None


RefereeRequest = (
    OpenDevice
    | ListOps
    | Enumerate
    | MakeVariants
    | Prepare
    | Compare
    | PrepareTiming
    | MakeReady
    | RenewInputs
    | TimeBlock
    | CompareTimed
    | SetUpClock
    | Measure
    | Shrink
    | Feedback
    | GiveMemoryBack
)


class DeviceOpened(msgspec.Struct, frozen=True, tag=True):
    """The device's name; ``problem`` says why it cannot be used, or is None.

    ``identity`` tells one device of a machine from another: an NVIDIA GPU's UUID. ``count`` says how many of its type
    there are.
    """

    name: str
    problem: str | None
    identity: str = ""
    count: int = 1


class OpsListed(msgspec.Struct, frozen=True, tag=True):
    """Every ATen overload, or the suite's module tasks, and the suite's (entry, dtype) pairs in order."""

    schemas: tuple[OpSchema, ...]
    entries: tuple[tuple[str, str], ...]


class Enumerated(msgspec.Struct, frozen=True, tag=True):
    """The cases of one entry.

    ``counts`` says how often each signature was met, ``ops`` which overloads the entry calls at
    all, ``skipped`` what could not be recorded and why, ``modules`` what a module task is
    constructed with.
    """

    cases: tuple[CaseRef, ...]
    counts: dict[str, int]
    ops: tuple[str, ...]
    skipped: dict[str, str]
    modules: tuple[OpSchema, ...] = ()


class PreparedCase(msgspec.Struct, frozen=True):
    """What is known of a case before the candidate runs.

    Attributes:
        error: what eager raised, or None: as wanted for a bad call, else a failure of the reference.
        repeats: executions that the comparison needs.
        comparison: the kind of comparison that will decide.
        inputs: the arguments in one line.
        reference_calls: of a module, the overloads that Model called and that compute, in order.
        result_bytes: size of each result tensor.
        again: whether the reference on other values is held, too.
        writes: whether eager gave a result in memory of its own, or changed an argument; else there was nothing to do.
    """

    error: str | None
    repeats: int
    comparison: str
    inputs: str
    reference_calls: tuple[str, ...] = ()
    result_bytes: tuple[int, ...] = ()
    again: bool = False
    writes: bool = False


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The references are held; one entry a case, in order."""

    cases: tuple[PreparedCase, ...]


class ComparedCase(msgspec.Struct, frozen=True):
    """What was found for one case."""

    status: Status
    detail: str
    figures: ErrorFigures | None
    layout_differs: bool


class Compared(msgspec.Struct, frozen=True, tag=True):
    """The findings, by the same keys as in :class:`Compare`.

    ``replayed`` are cases whose outcome on other values is, byte for byte, the one on the first values.
    ``unclear`` are cases with a summary that is not eager's, which says nothing yet: they are in neither
    of the other two and have to be compared in full.
    """

    cases: dict[int, ComparedCase]
    again: dict[int, ComparedCase]
    replayed: tuple[int, ...] = ()
    unclear: tuple[int, ...] = ()


class VariantsMade(msgspec.Struct, frozen=True, tag=True):
    """The variants, as cases whose calls are spooled."""

    cases: tuple[CaseRef, ...]


class ClockSetUp(msgspec.Struct, frozen=True, tag=True):
    """What the device reaches, and what CUDA graphs cost without what their kernels do; None off CUDA."""

    ceilings: Ceilings
    graphs: GraphCosts | None


class Measured(msgspec.Struct, frozen=True, tag=True):
    """The time of the call and of an empty launch, in milliseconds; ``problem`` says why it did not run."""

    runtime_ms: float | None
    launch_ms: float
    problem: str | None


class Proposal(msgspec.Struct, frozen=True, tag=True):
    """A call to try: its case, and its arguments in one line. Without a case the search has ended."""

    case: CaseRef | None
    text: str = ""


class RefereeError(msgspec.Struct, frozen=True, tag=True):
    """The referee's own code raised: a bug of opsmith's, with its traceback.

    ``ends``: it has lost its device, and answers nothing more.
    """

    message: str
    traceback: str
    ends: bool = False


RefereeReply = (
    DeviceOpened
    | OpsListed
    | Enumerated
    | VariantsMade
    | Prepared
    | Compared
    | TimingPrepared
    | BlockTimed
    | ClockSetUp
    | Measured
    | Proposal
    | MemoryGivenBack
    | RefereeError
)


# ---------------------------------------------------------------- judge <-> zygote


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Fork a child. Its socket and its output pipe follow as file descriptors of the same message."""

    role: str
    config: dict[str, Any]


class Forked(msgspec.Struct, frozen=True, tag=True):
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """A child ended; ``status`` is as :func:`os.waitstatus_to_exitcode` gives it."""

    pid: int
    status: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The zygote has finished its imports; ``facts`` describe the environment."""

    facts: dict[str, Any]


ZygoteReply = Forked | Exited | Ready | RefereeError


# ---------------------------------------------------------------- framing


class Channel:
    """A framed, typed message channel over a stream socket.

    Attributes:
        spin_s: how long to look for a message again and again before sleeping until one comes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.spin_s = 0.0
        self._sent_s = self._received_s = 0.0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}

    def send(self, message: msgspec.Struct, timeout_s: float | None = None) -> None:
        """Send one message.

        Raises:
            TimeoutError: the other side did not take all of it within ``timeout_s``.
            OSError: the other side is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        body = self._encoder.encode(message)
        header = HEADER.pack(MAGIC, len(body))
        parts = (header + body,) if len(body) <= JOINED_BYTES else (header, body)
        self._sent_s = time.perf_counter()
        for part in parts:
            self._write(part, deadline)

    @property
    def wall_us(self) -> float:
        """Microseconds from when the last message went out to when the last one was there."""
        return (self._received_s - self._sent_s) * 1e6

    def has_unread(self) -> bool:
        """Whether bytes wait to be read."""
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False  # Nothing there, or nobody.

    def receive(self, message_type: Any, timeout_s: float | None = None, *, most_bytes: int = MAX_FRAME_BYTES) -> Any:
        """Receive one message of ``message_type`` (a struct type or a union of them).

        Raises:
            TimeoutError: nothing complete arrived within ``timeout_s``.
            EOFError: the other side closed the channel.
            ProtocolError: the bytes are no frame, or do not decode as ``message_type``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        magic, length = HEADER.unpack(self._read_exactly(HEADER.size, deadline))
        if magic != MAGIC or length > most_bytes:
            raise ProtocolError("the bytes received are no message of this protocol")
        body = self._read_exactly(length, deadline)
        self._received_s = time.perf_counter()
        decoder = self._decoders.get(message_type)
        if decoder is None:
            decoder = self._decoders[message_type] = msgspec.msgpack.Decoder(message_type)
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise ProtocolError(f"a message does not decode: {exc}") from exc

    def close(self) -> None:
        self.sock.close()

    def _read_exactly(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray()
        while len(data) < size:  # Grows with what has arrived: a length that a stranger claims reserves nothing.
            self._wait(select.POLLIN, deadline)
            part = self.sock.recv(min(size - len(data), RECEIVE_BYTES))
            if not part:
                raise EOFError("the other side closed the channel")
            data += part
        return data

    def _write(self, data: bytes, deadline: float | None) -> None:
        remaining = memoryview(data)
        while remaining:
            self._wait(select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                remaining = remaining[self.sock.send(remaining, socket.MSG_DONTWAIT) :]

    def _wait(self, event: int, deadline: float | None) -> None:
        poller = select.poll()  # select() refuses descriptors above 1023.
        poller.register(self.sock, event)
        spun = time.monotonic() + self.spin_s
        while self.spin_s and time.monotonic() < spun:
            if poller.poll(0):
                return
        # Rounded up: polling with 0 ms until the deadline would be a busy loop.
        timeout_ms = None if deadline is None else math.ceil((deadline - time.monotonic()) * 1000)
        if (timeout_ms is not None and timeout_ms <= 0) or not poller.poll(timeout_ms):
            raise TimeoutError("no message within the time limit")
