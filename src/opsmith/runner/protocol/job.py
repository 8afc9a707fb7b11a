"""A job: one op with the kernel that answers it and everything that it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind
from opsmith.core.verdict import Verdict


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All cases of one op that are still to be judged.

    Attributes:
        schema: the op.
        kernel: who answers.
        root: folder of the kernel's files in the run's snapshot, or None.
        cases: what is to be judged, in order.
        counts: signature -> how often it was met in the suite.
        earlier: verdicts of this op from before a resume; they count for the limits.
        all_cases: what the op is asked in all, whether judged before or not; variants follow from it.
        policy: what the kernel may do, or None for a kernel that is trusted.
        integrity: ask more than the suite does: again at the same addresses, and varied.
        void: why the problem asks nothing: no kernel is run for it.
        measurement: how often its cases were timed before; each time in another order, and other results are looked at.
    """

    schema: OpSchema
    kernel: Kernel
    root: Path | None
    cases: tuple[CaseRef, ...]
    counts: dict[str, int]
    earlier: tuple[Verdict, ...] = ()
    all_cases: tuple[CaseRef, ...] = ()
    policy: str | None = None
    integrity: bool = False
    void: str | None = None
    measurement: int = 0


def families(jobs: Iterable[Job]) -> list[list[Job]]:
    """Group jobs that the same kernel answers, the longest first: they share a worker.

    One function may answer several overloads: through in-place and ``out=`` adapters, as a packet's
    kernel, or as ATen's own, of which the overloads of a packet count as one.
    """
    groups: dict[tuple[object, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(_family(job), []).append(job)
    return sorted(groups.values(), key=lambda group: -sum(len(job.cases) for job in group))


def _family(job: Job) -> tuple[object, ...]:
    kernel = job.kernel
    if kernel.loader is Loader.FILE:
        return kernel.loader, kernel.root, kernel.entry
    if kernel.loader is Loader.ATEN and job.schema.kind is TaskKind.OP:
        return kernel.loader, (job.schema.functional or kernel.task).rpartition(".")[0]
    return kernel.loader, kernel.entry, kernel.derived_from or kernel.task
