"""Verdicts: what the judge found for one case."""

from __future__ import annotations

import enum

import msgspec

from opsmith.core.timing import Timing, Undecided

MAX_DETAIL_CHARS = 500


class Status(enum.StrEnum):
    """The outcome of one case. Only PASSED counts as correct."""

    PASSED = "PASSED"
    WRONG_VALUE = "WRONG_VALUE"
    WRONG_SHAPE = "WRONG_SHAPE"
    WRONG_DTYPE = "WRONG_DTYPE"
    WRONG_STRIDE = "WRONG_STRIDE"
    WRONG_DEVICE = "WRONG_DEVICE"
    WRONG_STRUCTURE = "WRONG_STRUCTURE"
    MUTATED_INPUT = "MUTATED_INPUT"
    ALIASED_OUTPUT = "ALIASED_OUTPUT"
    DID_NOT_RAISE = "DID_NOT_RAISE"
    LOAD_FAILED = "LOAD_FAILED"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"
    CRASHED = "CRASHED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    POLICY = "POLICY"
    DISHONEST = "DISHONEST"
    VOID = "VOID"
    UNSUPPORTED = "UNSUPPORTED"
    REFERENCE_FAILED = "REFERENCE_FAILED"
    NOT_RUN = "NOT_RUN"


#: A right answer does not help: how the kernel came to it is held against it.
HELD_AGAINST = frozenset({Status.POLICY, Status.DISHONEST})


class Part(enum.StrEnum):
    """What of a run a verdict is about.

    Only CASE is counted in the suite's cases. VARIANT asks more than the suite does, to see whether a
    kernel knows the op or only the suite's calls. CONDUCT is about the kernel as a whole.
    """

    CASE = "case"
    VARIANT = "variant"
    CONDUCT = "conduct"


class ErrorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How far a result lies from the reference, elementwise.

    Attributes:
        max_abs: largest absolute difference over elements where both are finite.
        max_rel: largest difference relative to the reference's magnitude there.
        mismatched: elements outside the tolerance and not excused by the oracle.
        elements: elements compared.
        rtol: relative tolerance that was applied.
        atol: absolute tolerance that was applied.
        oracle_excused: elements outside the plain tolerance that the float64 oracle accepted.
    """

    max_abs: float
    max_rel: float
    mismatched: int
    elements: int
    rtol: float
    atol: float
    oracle_excused: int = 0


class BareAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel did in a process that has none of opsmith's modules.

    Attributes:
        calls: secret calls that it answered there as under the judge.
        problem: why nothing, or not everything, was found out; empty if there is nothing to say.
    """

    calls: int = 0
    problem: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the judge found for one case of one kernel.

    Attributes:
        op: the task's name.
        case: the case's address as text.
        content_hash: hash of the serialized inputs.
        dtype: short dtype name of the case's generator.
        kernel: content hash of the kernel.
        status: the outcome.
        detail: one line a person can act on; empty for PASSED.
        expects_error: the case is a bad call that must raise; counted apart.
        figures: distance from the reference, where values were compared.
        timings: one per quantity measured; empty where nothing was timed.
        undecided: one per quantity that was timed and of which nothing can be said.
        inputs: the arguments in one line, shapes and dtypes.
        derived: answered by the functional kernel plus a copy.
        layout_differs: a dense permutation of eager's layout.
        comparison: the kind of comparison that decided.
        evidence: further lines for the reader (a traceback's end, an exit status).
        count: how often the same signature was met in the suite.
        part: a case of the suite, a variant of one, or the kernel's conduct.
        variant: of a variant what was varied; empty otherwise.
        bare: of an accepted kernel's conduct: how it answered outside opsmith. None of others, and in records of
            earlier versions.
    """

    op: str
    case: str
    content_hash: str
    dtype: str
    kernel: str
    status: Status
    detail: str = ""
    expects_error: bool = False
    figures: ErrorFigures | None = None
    timings: tuple[Timing, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    inputs: str = ""
    derived: bool = False
    layout_differs: bool = False
    comparison: str = ""
    evidence: tuple[str, ...] = ()
    count: int = 1
    part: Part = Part.CASE
    variant: str = ""
    bare: BareAnswers | None = None

    @property
    def counts_against(self) -> bool:
        """Whether the kernel's op is not accepted because of this verdict alone.

        A kernel may decline a variant, and where eager itself fails on one nothing is known of the kernel. Nor is
        anything where a problem is void.
        """
        if self.status is Status.VOID:
            return False
        if self.status is Status.PASSED or self.status in HELD_AGAINST:
            return self.status is not Status.PASSED
        if self.part is Part.VARIANT:
            return self.status not in (Status.UNSUPPORTED, Status.REFERENCE_FAILED)
        return not self.expects_error

    @property
    def is_failure(self) -> bool:
        """Whether there is something in it for the kernel's author to look at."""
        if self.part is Part.VARIANT:
            return self.counts_against
        return self.status not in (Status.PASSED, Status.VOID)


def one_line(text: str) -> str:
    """Text on one line that is not too long."""
    return " ".join(text.split())[:MAX_DETAIL_CHARS]
