"""What the judge of whole models and its processes say to each other: one msgpack message a request, one a reply."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from opsmith.core.columns import Column
from opsmith.core.fresh_values import Freshness, Variation
from opsmith.core.verdict import ErrorFigures, Status
from opsmith.runner.protocol.referee_messages import DeviceOpened


class ModelCase(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one model.

    Attributes:
        suite: whose model it is.
        model: its name.
        mode: ``infer`` or ``train``.
        dtype: short name: ``f32`` leaves the model as it is, others convert its floats.
        autocast: compute in bfloat16 under autocast.
        small: at a size for machines without a GPU.
        device: torch device string.
        seed: what weights and inputs follow from.
    """

    suite: str
    model: str
    mode: str
    dtype: str
    autocast: bool
    small: bool
    device: str
    seed: int

    @property
    def task(self) -> str:
        """The task's name."""
        return f"{self.model}/{self.mode}"


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Open a device and tell what there is, of models those of a suite."""

    device: str
    suite: str


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    """What there is.

    Attributes:
        device: the device.
        versions: of torch and what it runs on.
        backends: of ``torch.compile``, those of installed packages too.
        modes: of Inductor.
        models: name -> what is missing for it, or None.
    """

    device: DeviceOpened
    versions: dict[str, str | None]
    backends: tuple[str, ...]
    modes: tuple[str, ...]
    models: dict[str, str | None]


class PrepareModel(msgspec.Struct, frozen=True, tag="prepare"):
    """To the referee: make weights and inputs, and eager's answer.

    Attributes:
        case: what is asked.
        record: the file that weights and inputs go to.
    """

    case: ModelCase
    record: str


class ModelPrepared(msgspec.Struct, frozen=True, tag="prepared"):
    """The reference is there.

    Attributes:
        content_hash: of weights and inputs.
        inputs: the first batch, in one line.
        first_call_s: seconds of eager's first call.
        void: why the model asks nothing, or None.
    """

    content_hash: str
    inputs: str
    first_call_s: float
    void: str | None = None


class CompareAnswer(msgspec.Struct, frozen=True, tag="compare"):
    """To the referee: compare the answer in a file."""

    answer: str
    tolerance: str
    layout: str


class Compared(msgspec.Struct, frozen=True, tag="compared"):
    """What the comparison found."""

    status: Status
    detail: str
    figures: ErrorFigures | None


class LoadColumn(msgspec.Struct, frozen=True, tag="load"):
    """To a column: build the model, and prepare it to run the column's way; nothing is compiled yet.

    Attributes:
        case: what is asked.
        column: the way.
        record: the file that the referee has written.
        caches: a folder of the column's own, for what compilers keep.
    """

    case: ModelCase
    column: Column
    record: str
    caches: str


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """To a column: run the case."""


class Show(msgspec.Struct, frozen=True, tag="show"):
    """To a column: write the last answer to a file."""

    answer: str


class Shown(msgspec.Struct, frozen=True, tag="shown"):
    """The answer is in its file.

    Attributes:
        digest: of its content.
        graphs: graphs that the compiler made; None where nothing is compiled.
    """

    digest: str
    graphs: int | None


class MakeReady(msgspec.Struct, frozen=True, tag="make-ready"):
    """Get ready for timed calls, under the weights of the case.

    Attributes:
        sets: sets of inputs at most.
        variations: how the inputs are made anew, as the referee has found; None for the referee.
    """

    sets: int
    variations: tuple[Variation, ...] | None = None


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Blocks can be run.

    Attributes:
        peak_bytes: see :attr:`opsmith.core.columns.ColumnResult.peak_bytes`.
        variations: how the inputs are made anew.
        values: how much of them.
    """

    peak_bytes: int | None
    variations: tuple[Variation, ...]
    values: Freshness


class RenewInputs(msgspec.Struct, frozen=True, tag="renew"):
    """Write the values of a round, which its key gives, into the inputs of so many calls."""

    key: int
    calls: int


class RunBlock(msgspec.Struct, frozen=True, tag="block"):
    """Run so many timed calls and wait for them; of ``K``, measure them on the device."""

    calls: int
    quantity: str


class BlockRun(msgspec.Struct, frozen=True, tag="run"):
    """The block is over; for ``K`` microseconds on the device, None where they cannot be told from the host's."""

    own_us: float | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What was asked is done."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """What was asked raised.

    Attributes:
        status: ERROR, LOAD_FAILED or OUT_OF_MEMORY.
        detail: type and message, in one line.
        evidence: the traceback's end.
    """

    status: Status
    detail: str
    evidence: tuple[str, ...] = ()


Request: TypeAlias = (
    Open | PrepareModel | CompareAnswer | LoadColumn | Answer | Show | MakeReady | RenewInputs | RunBlock
)
Reply: TypeAlias = Opened | ModelPrepared | Compared | Shown | Ready | BlockRun | Done | Failed
