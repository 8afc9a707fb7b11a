"""What an audit of module problems finds: is a problem worth solving, and can a judge tell who solved it?"""

from __future__ import annotations

import enum

import msgspec


class Check(enum.StrEnum):
    """What is looked at in a problem."""

    LOADS = "loads"
    FINITE = "finite"
    CONSTANT = "constant"
    INDEPENDENT = "independent of an input"
    UNUSED = "unused weight"
    TRIVIAL = "trivially bounded"
    REDUNDANT = "redundant op"
    LAUNCH_BOUND = "launch-bound"
    MEMORY = "memory"
    TOLERANCE = "tolerance"
    NOT_AUDITED = "not audited"


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a problem.

    Attributes:
        check: what was looked at.
        detail: what was seen, in one line.
    """

    check: Check
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}"


class AuditFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a problem takes at its full sizes, counted on tensors without content.

    Attributes:
        launches: ATen calls of Model that run something on a device.
        flops: floating-point operations of its products, convolutions and attentions.
        moved_bytes: what each of these calls has to read and write at least, added up.
        least_us: time that a large device needs for that at least, call by call.
        peak_bytes: state, inputs and what is alive of the results at the worst moment.
        case_bytes: inputs and state of one case.
    """

    launches: int
    flops: int
    moved_bytes: int
    least_us: float
    peak_bytes: int
    case_bytes: int


class ProblemAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one problem.

    Attributes:
        problem: the task's name.
        findings: what is wrong with it; empty for a sound problem.
        figures: its sizes; None where they could not be told.
        sizes: at which sizes its values were looked at: ``full`` or ``small``.
        took_s: seconds.
    """

    problem: str
    findings: tuple[AuditFinding, ...]
    figures: AuditFigures | None
    sizes: str
    took_s: float
