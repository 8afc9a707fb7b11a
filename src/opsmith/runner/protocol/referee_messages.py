"""Messages between the judge and a referee."""

from __future__ import annotations

import msgspec

from opsmith.core.audit import AuditFinding
from opsmith.core.case import CaseRef
from opsmith.core.evidence import ErrorMap
from opsmith.core.op import OpSchema
from opsmith.core.timing import Ceilings, GraphCosts
from opsmith.core.trace import TracedCall
from opsmith.core.verdict import ErrorFigures, Status
from opsmith.runner.protocol.bare_messages import PlainCall
from opsmith.runner.protocol.timing_messages import (
    BlockTimed,
    GiveMemoryBack,
    MakeReady,
    MemoryGivenBack,
    PrepareTiming,
    RenewInputs,
    TimeBlock,
    TimingPrepared,
    WarmUp,
)


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
    other values of each case. With ``afresh`` what was recorded before is recorded once more. By ``tolerance`` it is
    found out whether a problem asks anything.
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
    tolerance: str = "strict"


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
        large: at most so many of them on large tensors.
    """

    cases: tuple[CaseRef, ...]
    seed: int
    limit: int
    large: int = 0


class DrawSecret(msgspec.Struct, frozen=True, tag=True):
    """Make calls like those of some cases with values that nobody has met, and write them for a bare program.

    Attributes:
        cases: of one op, from any of the suite's entries.
        suite: that they are from.
        device: torch device string that the suite is asked about.
        seed: of the values.
        folder: where the contents of their storages go, a file for each.
    """

    cases: tuple[CaseRef, ...]
    suite: str
    device: str
    seed: int
    folder: str


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


class MapErrors(msgspec.Struct, frozen=True, tag=True):
    """Where the first outcome of the only case of a :class:`Compare` is off; answered with :class:`ErrorsMapped`."""

    compared: Compare


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
    rank_folders: tuple[str, ...] = ()


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
    | DrawSecret
    | Prepare
    | Compare
    | MapErrors
    | PrepareTiming
    | MakeReady
    | RenewInputs
    | WarmUp
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
    constructed with, ``void`` which task asks nothing, and what shows it.
    """

    cases: tuple[CaseRef, ...]
    counts: dict[str, int]
    ops: tuple[str, ...]
    skipped: dict[str, str]
    modules: tuple[OpSchema, ...] = ()
    void: dict[str, AuditFinding] = {}


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


class ErrorsMapped(msgspec.Struct, frozen=True, tag=True):
    """Of the first result that is off; None where none is, or where that is no matter of single elements."""

    errors: ErrorMap | None


class VariantsMade(msgspec.Struct, frozen=True, tag=True):
    """The variants, as cases whose calls are spooled."""

    cases: tuple[CaseRef, ...]


class SecretDrawn(msgspec.Struct, frozen=True, tag=True):
    """The cases with other values, spooled, and the same calls as a bare program reads them.

    Those that cannot be drawn anew have the values that they had.
    """

    cases: tuple[CaseRef, ...]
    calls: tuple[PlainCall, ...]


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
    | SecretDrawn
    | Prepared
    | Compared
    | ErrorsMapped
    | TimingPrepared
    | BlockTimed
    | ClockSetUp
    | Measured
    | Proposal
    | MemoryGivenBack
    | RefereeError
)
