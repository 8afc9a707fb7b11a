"""Pictures of what was measured of each task, for people: all attempts, the best kernel, the last wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opsmith.errors import MissingDependency
from opsmith.generate.attempt import Attempt, best
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import Picture
from opsmith.generate.journal import Journal
from opsmith.generate.pictures import Subject, key_of, pictured
from opsmith.generate.pictures.canvas import require_pillow

#: Tasks of a campaign whose pictures a page holds.
MOST_TASKS = 50


def task_pictures(journal: Journal, histories: Sequence[TaskHistory]) -> dict[str, list[Picture]]:
    """Task -> its pictures, of those that have any; none at all where nothing is there to draw with."""
    try:
        require_pillow()
    except MissingDependency:
        return {}
    found: dict[str, list[Picture]] = {}
    for history in histories[:MOST_TASKS]:
        subjects = {key_of(subject): subject for subject in _subjects(journal, history.task, history.attempts)}
        drawn = [
            Picture(kind=subject.kind, caption=subject.caption, png=journal.drawing(key, subject.draw))
            for key, subject in subjects.items()
        ]
        if drawn:
            found[history.task] = drawn
    return found


def _subjects(journal: Journal, task: str, attempts: Sequence[Attempt]) -> Iterator[Subject]:
    top = best([attempt for attempt in attempts if attempt.accepted])
    wrong = next((attempt for attempt in reversed(attempts) if attempt.judged and not attempt.accepted), None)
    for attempt in (top, wrong):
        if attempt is not None and attempt.judged is not None:
            evidence = journal.evidence(task, attempt.judged.kernel_hash)
            others = attempts if attempt is top else ()
            yield from pictured(task, None, attempt, others, evidence)
