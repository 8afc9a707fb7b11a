"""The messages between judge, referees, workers and the zygote, and how they are framed.

A frame is a 4-byte magic, an 8-byte big-endian length and a msgpack body. Bodies decode into the
types below and nothing else; nothing is ever unpickled. The judge relays a worker's tensors to
the referee as an undecoded :class:`msgspec.Raw`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from opsmith.core.conduct import CallConduct, Offence
from opsmith.core.evidence import Evidence
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.runner.protocol.timing_messages import (
    BlockTimed,
    GiveMemoryBack,
    MakeReady,
    MemoryGivenBack,
    PrepareTiming,
    RenewInputs,
    ShowTimed,
    TimeBlock,
    TimingPrepared,
    WarmUp,
)

#: What is said of a reply that decodes and yet answers something else than was asked.
OUT_OF_PROTOCOL = "the worker's reply is not of the protocol"

Message = TypeVar("Message")


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


class ProfileCall(msgspec.Struct, frozen=True, tag=True):
    """Look at one call of the loaded kernel: what runs when, which lines take how long, what was compiled.

    Nothing of it decides anything: a kernel can lie about itself here.
    """

    call: bytes | LentCall


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

    What is no tampering a reply says as well, call by call.
    """

    line: str
    offence: Offence


WorkerRequest = (
    LoadKernel
    | RunCalls
    | ShowOutcomes
    | PrepareTiming
    | MakeReady
    | RenewInputs
    | WarmUp
    | TimeBlock
    | ShowTimed
    | ProfileCall
    | Inspect
    | Discover
    | GiveMemoryBack
)


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The kernel is loaded; ``changes`` says what of Python, torch or opsmith it replaced by that.

    ``build_cache`` names its folder below the parent of the build caches.
    """

    load_s: float
    changes: tuple[str, ...] = ()
    build_cache: str = ""


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

    ``changes`` says what of Python, torch or opsmith the kernel has replaced by now. Of a timed block, ``spans`` says
    where its results and arguments lie on the host (first addresses, and those behind the last ones), and ``foreign``
    what other memory than the device's results on a device lie in.
    """

    replies: tuple[Returned | Raised, ...]
    changes: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    foreign: str | None = None


def answers_all(request: RunCalls, answer: Answered) -> bool:
    """Whether an answer has as many replies, and each as many outcomes, as were asked for."""
    return len(answer.replies) == len(request.calls) and all(
        isinstance(reply, Raised) or len(reply.outcomes) == call.repeats + (call.again is not None)
        for call, reply in zip(request.calls, answer.replies, strict=True)
    )


class OutcomesShown(msgspec.Struct, frozen=True, tag=True):
    """Outcomes in full, in the order of the request."""

    outcomes: tuple[msgspec.Raw, ...]


class Discovered(msgspec.Struct, frozen=True, tag=True):
    """op -> source file of its kernel, or an empty string where there is none to show."""

    answered: dict[str, str]
    dsl: str = "unknown"
    kernel_directory: str | None = None


class CallProfiled(msgspec.Struct, frozen=True, tag=True):
    """What was seen; the evidence has no errors."""

    evidence: Evidence


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
    | CallProfiled
    | Inspected
    | Discovered
    | MemoryGivenBack
)
