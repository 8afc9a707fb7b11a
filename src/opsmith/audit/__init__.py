"""Auditing a module problem: is it worth solving, and can a judge tell who solved it?

Sizes are counted at the problem's full sizes on tensors without content, so any machine can do it. Values are
looked at where they are affordable: at the sizes of the problem's ``SMALL``, or on a device at full sizes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from opsmith.audit import dependence, precision, redundancy, sizes, triviality
from opsmith.audit.draws import Draws
from opsmith.core.audit import AuditFigures, AuditFinding, Check, ProblemAudit
from opsmith.tasks.problem import BrokenProblem, Problem

#: The values of a problem that computes more than this are not looked at on a CPU.
MOST_FLOPS_CPU = 200_000_000_000
MOST_BYTES_CPU = 4 << 30

VALUE_CHECKS: tuple[Callable[[Draws], Iterator[AuditFinding]], ...] = (
    dependence.findings,
    triviality.findings,
    redundancy.findings,
    precision.findings,
)


def audit(task: str, file: Path, device: str, *, small: bool) -> ProblemAudit:
    """Audit one problem.

    Args:
        task: its name.
        file: its path; the file is imported, and Model runs.
        device: where its values are looked at.
        small: look at them at the sizes that its ``SMALL`` names, where it names some.
    """
    start = time.monotonic()
    figures: AuditFigures | None = None
    findings: list[AuditFinding] = []
    try:
        figures = sizes.figures(file, small=False)
        findings += sizes.findings(figures)
    except sizes.NotCounted as exc:
        findings.append(AuditFinding(check=Check.NOT_AUDITED, detail=f"its sizes: {exc}"))
    findings += _about_values(task, file, torch.device(device), small=small)
    return ProblemAudit(
        problem=task,
        findings=tuple(findings),
        figures=figures,
        sizes="small" if small else "full",
        took_s=round(time.monotonic() - start, 2),
    )


def _about_values(task: str, file: Path, device: torch.device, *, small: bool) -> list[AuditFinding]:
    if device.type == "cpu" and (reason := _too_large(file, small=small)) is not None:
        return [AuditFinding(check=Check.NOT_AUDITED, detail=f"its values: {reason}")]
    try:
        draws = Draws(Problem(task, file, device, small=small), device)
        if (reason := draws.not_finite()) is not None:
            return [AuditFinding(check=Check.FINITE, detail=reason)]
        if (finding := dependence.constant(draws)) is not None:
            return [finding]  # Whatever else is wrong follows from that.
        return list(itertools.chain.from_iterable(check(draws) for check in VALUE_CHECKS))
    except BrokenProblem as exc:
        return [AuditFinding(check=Check.LOADS, detail=str(exc))]


def _too_large(file: Path, *, small: bool) -> str | None:
    try:
        figures = sizes.figures(file, small=small)
    except sizes.NotCounted:
        return None  # Who cannot be counted may still be small.
    if figures.flops <= MOST_FLOPS_CPU and figures.peak_bytes <= MOST_BYTES_CPU:
        return None
    return (
        f"{figures.flops / 1e9:.0f} GFLOP and {figures.peak_bytes / 2**30:.1f} GiB are too much for a CPU; "
        "name smaller sizes in SMALL, or audit on a GPU with --device cuda --sizes full"
    )
