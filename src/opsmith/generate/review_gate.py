"""``generate --review``: a task stops for a person, and goes on with what they say.

Nothing waits: a task that needs a person ends, the campaign ends with it, and ``--resume`` goes on from the journal
once the person has spoken. What they said by then is kept in ``taken.json``, so that a campaign which is taken up once
more asks its models what it asked before, whatever is added to the reviews later.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opsmith.backends.file import KernelFile
from opsmith.core.kernel import Kernel
from opsmith.core.run import write_atomically
from opsmith.core.task import Task
from opsmith.errors import DamagedRun
from opsmith.generate.attempt import Attempt, PersonSaid, best
from opsmith.generate.feedback import findings
from opsmith.generate.waiting import Waiting
from opsmith.reviews.book import ReviewBook
from opsmith.reviews.records import Review, State, standing
from opsmith.reviews.scope import reviewed_hash
from opsmith.session import AskedTask

TAKEN = "taken.json"


class WaitsForPerson(Exception):
    """A task cannot go on before somebody has reviewed a kernel; the message says which and why."""


class ReviewGate:
    """Decides whether a task may go on; its methods may be called from several threads.

    Args:
        out: the campaign's directory.
        after: how many failed attempts a person is asked about.
        suite: of the campaign.
    """

    def __init__(self, out: Path, after: int, suite: str) -> None:
        self._out, self._after, self._suite = out, after, suite
        self._lock = threading.Lock()
        self._taken = self._read()
        self.waiting: list[Waiting] = []

    def pass_through(self, task: AskedTask, attempts: list[Attempt]) -> bool:
        """Put what people said into the attempts, and tell whether one of them was approved, which ends the task.

        Raises:
            WaitsForPerson: an accepted kernel, or the last of so many failed ones, has no review yet.
        """
        for place, attempt in enumerate(attempts):
            said = self._said(task, attempt) if self._is_asked_about(attempt, attempts) else None
            if said is not None:
                attempts[place] = msgspec.structs.replace(attempt, review=said)
        if any(each.accepted and each.review is not None and each.review.approved for each in attempts):
            return True
        open_ones = [each for each in attempts if each.review is None and self._is_asked_about(each, attempts)]
        waits = best([each for each in open_ones if each.accepted]) or (open_ones[-1] if open_ones else None)
        if waits is not None:
            why = "a kernel is accepted" if waits.accepted else f"{self._after} attempts have failed"
            with self._lock:
                kernel = msgspec.structs.replace(self._kernel(task, waits), root=str(Path(waits.file or "").parent))
                self.waiting.append(Waiting(kernel=kernel, why=why, findings=findings(waits)))
            raise WaitsForPerson(f"waits for a review, because {why}: opsmith review {self._out} '{task.name}'")
        return False

    def _is_asked_about(self, attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
        """An accepted kernel, or each N-th failed one before the first that is accepted."""
        if attempt.judged is None:
            return False
        if attempt.judged.accepted:
            return True
        judged = [(each.index, each.judged.accepted) for each in attempts if each.judged is not None]
        failed = [index for index, accepted in judged if not accepted]
        first = next((index for index, accepted in judged if accepted), len(attempts))
        return attempt.index < first and (failed.index(attempt.index) + 1) % self._after == 0

    def _said(self, task: AskedTask, attempt: Attempt) -> PersonSaid | None:
        """What was taken over before, else what people have said by now; None: nothing yet."""
        content = reviewed_hash(self._kernel(task, attempt))
        key = f"{task.name} {content}"
        with self._lock:
            if key not in self._taken:
                found = standing(ReviewBook(self._out).reviews(), task.name, content)
                if not found.reviews:
                    return None
                approved, rejected = found.state is State.APPROVED, found.state is State.REJECTED
                self._taken[key] = PersonSaid(approved=approved, rejected=rejected, text=_feedback(found.reviews))
                write_atomically(self._out / TAKEN, msgspec.json.format(msgspec.json.encode(self._taken), indent=1))
            return self._taken[key]

    def _kernel(self, task: AskedTask, attempt: Attempt) -> Kernel:
        assert attempt.file is not None, "what was judged has a file"
        found = KernelFile(self._out / attempt.file).kernel_for(Task(name=task.name, op=task.op, suite=self._suite))
        assert found is not None, "what was judged defines what the task asks for"
        return found

    def _read(self) -> dict[str, PersonSaid]:
        try:
            return msgspec.json.decode((self._out / TAKEN).read_bytes(), type=dict[str, PersonSaid])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as exc:
            raise DamagedRun(f"{self._out / TAKEN} is damaged: {exc}; only a copy of it can bring it back") from exc


def _feedback(reviews: Sequence[Review]) -> str:
    """What people said of a kernel, as its writer reads it."""
    lines = ["A person reviewed the kernel. Do what they ask:"]
    for review in reviews:
        for comment in review.comments:
            place = f"line {comment.line}: " if comment.line is not None else ""
            lines.append(f"- {place}{comment.text}")
        if not review.comments:
            lines.append(f"- ({review.word}, without a word)")
    return "\n".join(lines)
