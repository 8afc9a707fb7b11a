"""The list of attempts: how each ended, and the first reason why; ``attempts.txt`` of a campaign."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from opsmith.core.verdict import Part
from opsmith.generate.attempt import Attempt, Outcome
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.results import attempt_kind
from opsmith.report.strangers import one_line

#: Characters of a reason.
LONGEST_REASON = 200


def reason(attempt: Attempt) -> str:
    """Why an attempt was not accepted, in one line; its speed where it was."""
    if attempt.problem is not None:
        return one_line(attempt.problem)
    if attempt.outcome is not Outcome.JUDGED or attempt.judged is None:
        return ""
    if attempt.review is not None and attempt.review.rejected:
        return one_line(attempt.review.text)
    if attempt.accepted:
        speedup = attempt.judged.speedup
        return "" if speedup is None else f"{speedup:.2f}x"
    failures = [verdict for verdict in attempt.judged.verdicts if verdict.is_failure]
    first = min(failures, key=lambda verdict: verdict.part is Part.VARIANT, default=None)
    if first is None:
        return "judging ended before all cases were judged"
    return one_line(f"{first.inputs}: {first.detail}" if first.inputs else first.detail)


def attempt_list(histories: Iterable[TaskHistory]) -> str:
    """A line an attempt: its number, model, status and first reason, below the name of the task."""
    lines = []
    for history in histories:
        lines.append(one_line(history.task))
        lines += _rows(history.attempts)
        if history.stopped is not None:
            lines.append(f"  stopped: {one_line(history.stopped)}")
    return "\n".join(lines) + "\n"


def _rows(attempts: Sequence[Attempt]) -> Iterable[str]:
    models = max((len(attempt.model) for attempt in attempts), default=0)
    kinds = max((len(attempt_kind(attempt)) for attempt in attempts), default=0)
    for attempt in attempts:
        why = textwrap.shorten(reason(attempt), LONGEST_REASON, placeholder=" ...")
        kind = attempt_kind(attempt)
        yield f"  {attempt.index + 1:>3}  {one_line(attempt.model):<{models}}  {kind:<{kinds}}  {why}".rstrip()
