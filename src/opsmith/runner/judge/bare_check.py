"""Does an accepted kernel answer as well where nothing of opsmith's is? Asked with secret cases, in a bare process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.run import Options
from opsmith.core.seeds import derive_seed
from opsmith.core.storage import storage_problem
from opsmith.core.verdict import BareAnswers, Status, Verdict
from opsmith.errors import InternalError, RefereeFailed
from opsmith.runner.processes.bare_link import BareLink, BareProcess, CallAsked, NotAnswered
from opsmith.runner.processes.failures import RefereeDied
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import (
    CaseToPrepare,
    Compare,
    Compared,
    DrawSecret,
    Prepare,
    Prepared,
    SecretDrawn,
)

#: Secret calls of a kernel, of as many entries of the suite at most.
CALLS, ENTRIES = 4, 2
#: Arguments of one of them; and of the only one, where all cases are larger.
MAX_CALL_BYTES, MAX_ONLY_CALL_BYTES = 64 << 20, 1 << 30
#: Times that a kernel has to fail in a bare process, and to answer the same calls rightly in its worker, to be accused.
ROUNDS = 2
#: Said of the calls in the verdicts that they get where the kernel is wrong in its worker as well.
LABEL = "secret values"


class Found(NamedTuple):
    """What came out.

    Attributes:
        answers: for the record.
        offence: what is held against the kernel, or None.
        wrong: verdicts on secret calls that the worker did not answer rightly either.
    """

    answers: BareAnswers
    offence: str | None = None
    wrong: tuple[Verdict, ...] = ()


class BareCheck:
    """Asks one accepted kernel.

    Args:
        job: the task and its kernel.
        referee: of the slot.
        link: to the bare program.
        options: of the run.
        seed: of the run.
        build_cache: tells where the kernel's worker builds; None where it has said nothing.
        judge: judges a secret case in the kernel's worker.
        admitted: to the device, for so many bytes of arguments.
        alone: with the device and its memory to itself, as kernels are asked again.
        left_s: seconds that are left for judging the kernel.
    """

    def __init__(
        self,
        job: Job,
        referee: RefereeLink,
        link: BareLink,
        *,
        options: Options,
        seed: int,
        build_cache: Callable[[], str | None],
        judge: Callable[[CaseRef], Verdict],
        admitted: Callable[[int], AbstractContextManager[None]],
        alone: Callable[[], AbstractContextManager[None]],
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._job = job
        self._referee = referee
        self._link = link
        self._options = options
        self._seed = seed
        self._build_cache = build_cache
        self._judge = judge
        self._admitted = admitted
        self._alone = alone
        self._left_s = left_s

    def ask(self, passed: Sequence[CaseRef]) -> Found:
        """Ask the kernel, with what it answered rightly in its worker.

        Args:
            passed: the suite's cases.
        """
        if self._job.schema.kind.on_ranks:
            return _not_asked("ranks answer together, and a bare process is one")
        cases = self._chosen(passed)
        if not cases:
            return _not_asked("no case is small enough")
        try:
            return self._asked(cases)
        except (NotAnswered, InternalError, RefereeDied, RefereeFailed) as exc:
            return _not_asked(str(exc))
        except OSError as exc:
            if storage_problem(exc) is not None:  # Whoever fills a disk would not be asked.
                raise
            return _not_asked(str(exc))

    def _asked(self, cases: Sequence[CaseRef]) -> Found:
        wrong: list[Verdict] = []
        for number in range(ROUNDS):
            right, failed = self._round(cases, number)
            suspected = []
            for case, reason in failed:
                verdict = self._judge(case)
                if verdict.status is Status.PASSED:
                    suspected.append((case, reason))
                elif verdict.status is not Status.REFERENCE_FAILED:
                    wrong.append(verdict)
            if not suspected or wrong:
                problem = "" if number == 0 and not failed else "it failed once, and not always"
                return Found(BareAnswers(calls=right, problem="" if wrong else problem), wrong=tuple(wrong))
        case, reason = suspected[0]
        return Found(
            BareAnswers(calls=right),
            f"right only where it is judged: in a process without opsmith {case.address} {reason}",
        )

    def _chosen(self, passed: Sequence[CaseRef]) -> list[CaseRef]:
        """Cases of all sizes from few entries; which, follows from the run's seed."""
        answered = sorted((case for case in passed if not case.expects_error), key=lambda case: case.size_bytes)
        if not answered or answered[0].size_bytes > MAX_CALL_BYTES:
            return [case for case in answered[:1] if case.size_bytes <= MAX_ONLY_CALL_BYTES]
        order = sorted(
            (case for case in answered if case.size_bytes <= MAX_CALL_BYTES),
            key=lambda case: derive_seed(self._seed, "bare", self._job.kernel.content_hash, str(case.address)),
        )
        entries = list(dict.fromkeys((case.address.entry, case.address.dtype) for case in order))[:ENTRIES]
        known = [case for case in order if (case.address.entry, case.address.dtype) in entries]
        largest = max(known, key=lambda case: case.size_bytes)
        return list(dict.fromkeys([largest, *known]))[:CALLS]

    def _round(self, cases: Sequence[CaseRef], number: int) -> tuple[int, list[tuple[CaseRef, str]]]:
        """Draw values, ask a new process; how many calls it answered rightly, and the others, with what it did."""
        seed = derive_seed(self._seed, "bare", self._job.kernel.content_hash, number)
        size_bytes = sum(case.size_bytes for case in cases)
        admitted = self._alone() if number else self._admitted(size_bytes)
        with self._link.process() as process, admitted:
            request = DrawSecret(tuple(cases), self._options.suite, self._options.device, seed, str(process.folder))
            drawn = self._referee.ask(request, SecretDrawn)
            secret = [_secret(case, place) for place, case in enumerate(drawn.cases)]
            prepared = self._referee.ask(
                Prepare(tuple(CaseToPrepare(case, self._random_state(case)) for case in secret)), Prepared
            )
            places = [place for place, known in enumerate(prepared.cases) if known.error is None]
            calls = [
                CallAsked(drawn.calls[place], prepared.cases[place].repeats, self._random_state(secret[place]))
                for place in places
            ]
            if not calls:
                raise NotAnswered("eager refuses its cases with other values")
            failed = self._compared(process, calls, places)
        return len(calls) - len(failed), [(secret[place], reason) for place, reason in failed]

    def _compared(
        self, process: BareProcess, calls: Sequence[CallAsked], places: Sequence[int]
    ) -> list[tuple[int, str]]:
        job = self._job
        cache = self._build_cache()
        if cache is None:
            raise NotAnswered("its worker named no build cache")
        asked = process.ask(job.kernel, job.root, job.schema, calls, cache, most_s=self._left_s())
        replies = dict(zip(places, asked, strict=True))
        outcomes = {
            place: tuple(msgspec.Raw(msgspec.msgpack.encode(outcome)) for outcome in reply)
            for place, reply in replies.items()
            if not isinstance(reply, str)
        }
        request = Compare(outcomes, {}, self._options.tolerance, self._options.layout, str(process.scratch))
        compared = self._referee.ask(request, Compared)
        failed: list[tuple[int, str]] = []
        for place, reply in replies.items():
            if isinstance(reply, str):
                failed.append((place, f"ended in {reply}"))
            elif compared.cases[place].status is not Status.PASSED:
                failed.append((place, f"was {compared.cases[place].status}: {compared.cases[place].detail}"))
        return failed

    def _random_state(self, case: CaseRef) -> int:
        side = "reference" if self._job.schema.kind.of_problems else "candidate"
        return derive_seed(self._seed, side, case.content_hash)


def _not_asked(reason: str) -> Found:
    return Found(BareAnswers(problem=reason.partition("\n")[0]))


def _secret(case: CaseRef, place: int) -> CaseRef:
    """The case under an address of its own: it is none of the suite's."""
    address = msgspec.structs.replace(case.address, source="secret", sample=place, call=0)
    return msgspec.structs.replace(case, address=address, variant=LABEL)
