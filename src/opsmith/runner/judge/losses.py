"""Work done again after a process of the judge's was lost over it, and given up after several losses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from opsmith.core.run import TimedCase
from opsmith.core.verdict import Part, Verdict
from opsmith.errors import ProcessLost
from opsmith.runner.judge.verdicts import not_run
from opsmith.runner.protocol.job import Job

Result = TypeVar("Result")

#: After so many losses over a piece of work it is its own fault.
MOST_LOSSES = 3


def through_losses(
    family: Sequence[Job],
    do: Callable[[Sequence[Job]], Iterator[Result]],
    *,
    rest: Callable[[Sequence[Job], Sequence[Result]], Sequence[Job] | None],
    give_up: Callable[[Sequence[Job]], Iterator[Result]],
    mend: Callable[[], None],
) -> Iterator[Result]:
    """Do a family of jobs, and after a loss what is left of it; each result is yielded once.

    Args:
        family: jobs that the same kernel answers.
        do: does them.
        rest: what is left of jobs of which there are these results; None if nothing is.
        give_up: the results of jobs that processes are lost over.
        mend: ends what is left of the processes; the next request starts others.

    Raises:
        MachineFailed: no process is to be had any more.
    """
    left = family
    for _ in range(MOST_LOSSES):
        found: list[Result] = []
        try:
            for result in do(left):
                found.append(result)
                yield result
        except ProcessLost:
            mend()
            remaining = rest(left, found)
            if remaining is None:
                return
            left = remaining
        else:
            return
    yield from give_up(left)


def again(ask: Callable[[], Result]) -> Result:
    """An answer, asked for again where a process was lost over it.

    Raises:
        ProcessLost: it was lost each time.
        MachineFailed: no process is to be had any more.
    """
    for _ in range(MOST_LOSSES - 1):
        with contextlib.suppress(ProcessLost):
            return ask()
    return ask()


def given_up(family: Sequence[Job]) -> Iterator[Verdict]:
    """The verdicts on what is left of jobs that processes are lost over."""
    for job in family:
        yield from not_run(job, job.cases, "took the judge's processes with it")


def not_timed(family: Sequence[Job], problem: str) -> Iterator[TimedCase]:
    """What is said of the cases of jobs that could not be timed."""
    for job in family:
        for case in job.cases:
            yield TimedCase(
                op=job.schema.name,
                case=str(case.address),
                kernel=job.kernel.content_hash,
                timings=(),
                problem=problem,
            )


def rest_to_judge(family: Sequence[Job], found: Sequence[Verdict]) -> list[Job] | None:
    """What is left of a family of which there are these verdicts; None if nothing is.

    As when a run is taken up again: what was found counts for the limits, and is not found a second time.
    """
    left = []
    for job in family:
        mine = tuple(verdict for verdict in found if verdict.op == job.schema.name)
        judged = {verdict.case for verdict in mine}
        cases = tuple(case for case in job.cases if str(case.address) not in judged)
        if cases or (job.integrity and not any(verdict.part is Part.CONDUCT for verdict in mine)):
            left.append(msgspec.structs.replace(job, cases=cases, earlier=(*job.earlier, *mine)))
    return left or None


def rest_to_time(family: Sequence[Job], found: Sequence[TimedCase]) -> list[Job] | None:
    """As :func:`rest_to_judge`, of timed cases."""
    timed = {(case.op, case.case) for case in found}
    left = []
    for job in family:
        cases = tuple(case for case in job.cases if (job.schema.name, str(case.address)) not in timed)
        left += [msgspec.structs.replace(job, cases=cases)] if cases else []
    return left or None
