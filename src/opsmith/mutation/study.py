"""A study: a sample of mutants, judged as a user's kernels are, one session a dtype."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import queue
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from opsmith.aten.schemas import aten_schemas
from opsmith.core.environment import Environment
from opsmith.core.kernel import Kernel
from opsmith.core.run import Options
from opsmith.core.verdict import HELD_AGAINST, Verdict
from opsmith.errors import BadInput
from opsmith.mutation.mutants import Mutant, Place, Source
from opsmith.mutation.operators import Operator, all_operators
from opsmith.mutation.outcomes import EQUIVALENCE, OPSMITH, ORIGINAL, Book, Outcome, Result
from opsmith.mutation.probe_link import KnownCalls, ProbeLink
from opsmith.mutation.subjects import Subject, subjects_of, write
from opsmith.pipeline import Progress, Silent
from opsmith.runner.protocol.limits import Limits
from opsmith.session import Session

#: A mutant that loops forever costs a time limit.
LIMITS = Limits(load_s=60.0, call_s=10.0)
#: How often tables are written while a study goes on.
WRITTEN_EVERY_S = 60.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a study asks.

    Attributes:
        dtypes: short names; each is judged by itself.
        sample: so many mutants, spread over ops and operators; all if None.
        seed: of the sample, and of the values that mutants are judged on.
        operators: patterns of names; all if empty.
        device: where kernels run.
        jobs: mutants judged at a time.
        public: judge with the public harness too.
        harness: the folder that holds its package, where that is not installed.
        equivalence_s: seconds after which the comparison of a survivor with its original ends.
    """

    dtypes: tuple[str, ...]
    sample: int | None = None
    seed: int = 0
    operators: tuple[str, ...] = ()
    device: str = "cpu"
    jobs: int = 2
    public: bool = True
    harness: str | None = None
    equivalence_s: float = 60.0


def chosen_operators(patterns: Sequence[str]) -> list[Operator]:
    """The operators that patterns name.

    Raises:
        BadInput: a pattern names none.
    """
    operators = all_operators()
    for pattern in patterns:
        if not any(fnmatch.fnmatch(each.name, pattern) for each in operators):
            raise BadInput(
                f"no mutation operator is called {pattern}; there are {', '.join(o.name for o in operators)}"
            )
    return [each for each in operators if not patterns or any(fnmatch.fnmatch(each.name, p) for p in patterns)]


def draw(
    subjects: Sequence[Subject], operators: Sequence[Operator], sample: int | None, seed: int
) -> dict[str, list[Mutant]]:
    """Mutants of each subject, by the subject's name.

    A sample goes round the origins, and round the subjects of each. Each turn takes the operator that was taken least.
    """
    if sample is None:
        return {each.name: list(Source(each.source, each.function, each.op).mutants(operators)) for each in subjects}
    random_ = random.Random(seed)  # noqa: S311 - a sample, nothing secret
    origins: defaultdict[str, list[_Pile]] = defaultdict(list)
    for each in random_.sample(subjects, len(subjects)):
        origins[each.origin].append(_Pile(each, operators, random_))
    taken: Counter[str] = Counter()
    drawn: defaultdict[str, list[Mutant]] = defaultdict(list)
    waiting = [pile for turn in itertools.zip_longest(*origins.values()) for pile in turn if pile is not None]
    while waiting and taken.total() < sample:
        for pile in list(waiting):
            mutant = pile.take(taken)
            if mutant is None:
                waiting.remove(pile)
                continue
            taken[mutant.operator] += 1
            drawn[pile.name].append(mutant)
            if taken.total() >= sample:
                break
    return dict(drawn)


class _Pile:
    """The mutants of a subject that are not drawn yet; the places of an operator are looked for when it is its turn."""

    def __init__(self, subject: Subject, operators: Sequence[Operator], random_: random.Random) -> None:
        self.name = subject.name
        self._subject = subject
        self._left = list(operators)
        self._places: dict[str, list[Place]] = {}
        self._texts: set[str] = set()
        self._random = random_

    @functools.cached_property
    def _source(self) -> Source:
        return Source(self._subject.source, self._subject.function, self._subject.op)

    def take(self, taken: Counter[str]) -> Mutant | None:
        """A mutant by the operator that was taken least so far; None if there is none left."""
        while self._left:
            operator = min(self._left, key=lambda each: (taken[each.name], self._random.random()))
            if operator.name not in self._places:
                self._places[operator.name] = self._source.places(operator)
                self._random.shuffle(self._places[operator.name])
            if not self._places[operator.name]:
                self._left.remove(operator)
                continue
            mutant = self._source.mutant_at(self._places[operator.name].pop())
            if mutant is not None and mutant.source not in self._texts:
                self._texts.add(mutant.source)
                return mutant
        return None


class _Survivor(NamedTuple):
    """A mutant to be compared with its original, on the calls of a file."""

    subject: Subject
    mutant: Mutant
    original: Kernel
    kernel: Kernel
    calls: Path


def _all_done(threads: Sequence[threading.Thread]) -> None:
    """Start threads and wait for them."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Study:
    """Judges mutants and keeps what is found in a book; what the book holds already is not judged again.

    Attributes:
        environment: where mutants were judged; None where none was.

    Args:
        asked: what.
        subjects: the kernels.
        book: of outcomes.
        folder: takes the mutants' files and the sessions'.
        progress: told how far it is.
        written: called now and then, when outcomes were added.
    """

    def __init__(
        self,
        asked: Asked,
        subjects: Sequence[Subject],
        book: Book,
        folder: Path,
        progress: Progress | None = None,
        *,
        written: Callable[[], object] = lambda: None,
    ) -> None:
        self._asked = asked
        self._subjects = {each.name: each for each in subjects}
        self._book = book
        self._folder = folder
        self._progress = progress or Silent()
        self.environment: Environment | None = None
        self._lock = threading.Lock()
        self._written, self._written_s = written, time.monotonic()
        self._done = 0
        self._survivors: queue.SimpleQueue[_Survivor] = queue.SimpleQueue()

    def run(self) -> None:
        """Judge what is missing.

        Raises:
            UsageError: the request cannot be carried out as written.
        """
        operators = chosen_operators(self._asked.operators)
        self._progress.stage("mutating", 0)
        drawn = draw(list(self._subjects.values()), operators, self._asked.sample, self._asked.seed)
        found: defaultdict[tuple[str, str], dict[str, Result]] = defaultdict(dict)
        for (name, dtype, judge), outcome in self._book.outcomes.items():
            found[name, dtype][judge] = outcome.result
        for dtype in self._asked.dtypes:
            faults = {each.name for each in operators if dtype not in each.no_fault_in}
            todo = {
                name: missing
                for name, mutants in drawn.items()
                if (
                    missing := [
                        each
                        for each in mutants
                        if each.operator in faults and not self._is_done(found[each.name, dtype])
                    ]
                )
            }
            if todo:
                self._judge_dtype(dtype, todo)

    def _is_done(self, found: Mapping[str, Result]) -> bool:
        """Whether every judge has said all that it will of a mutant, given what each has said so far."""
        if found.get(OPSMITH) is Result.SURVIVED and EQUIVALENCE not in found:
            return False
        return OPSMITH in found and (not self._asked.public or len(found.keys() - {OPSMITH, EQUIVALENCE}) > 0)

    def _judge_dtype(self, dtype: str, todo: dict[str, list[Mutant]]) -> None:
        asked = self._asked
        options = Options(
            suite="opinfo",
            backend="mutants",
            device=asked.device,
            dtypes=(dtype,),
            ops=tuple(sorted({self._subjects[name].op for name in todo})),
            policy="any",
        )
        mutants = self._folder / "mutants"
        mutants.mkdir(parents=True, exist_ok=True)
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        with Session(
            options,
            self._folder / f"session-{dtype}",
            seed=asked.seed,
            jobs=asked.jobs,
            limits=LIMITS,
            progress=self._progress,
        ) as session:
            self.environment = session.environment
            for name in todo:
                waiting.put(name)
            self._progress.stage(f"judging mutants in {dtype}", sum(map(len, todo.values())))
            self._done = 0
            threads = [
                threading.Thread(target=self._work, args=(session, dtype, waiting, todo, mutants))
                for _ in range(asked.jobs)
            ]
            _all_done(threads)
        self._progress.stage(f"comparing survivors in {dtype}", self._survivors.qsize())
        self._done = 0
        _all_done(
            [
                threading.Thread(target=self._compare, args=(dtype,))
                for _ in range(min(asked.jobs, self._survivors.qsize()))
            ]
        )

    def _compare(self, dtype: str) -> None:
        """Compare survivor after survivor with its original; one thread's work."""
        with ProbeLink(dtype, (), public=False, harness=None) as probe:
            while True:
                try:
                    one = self._survivors.get_nowait()
                except queue.Empty:
                    return
                result, why = Result.EQUAL, "compiles to the same code"
                if not one.mutant.same_code:
                    asked = self._asked
                    result, why = probe.compare(
                        one.subject.op, one.calls, one.original, one.kernel, asked.seed, asked.equivalence_s
                    )
                self._note(one.subject, dtype, EQUIVALENCE, result, why, mutant=one.mutant)
                self._count(one.subject.op)

    def _count(self, op: str) -> None:
        with self._lock:
            self._done += 1
            self._progress.advance(self._done, op)

    def _work(
        self,
        session: Session,
        dtype: str,
        waiting: queue.SimpleQueue[str],
        todo: dict[str, list[Mutant]],
        folder: Path,
    ) -> None:
        """Judge subject after subject; one thread's work."""
        ops = {self._subjects[name].op for name in todo}
        with ProbeLink(dtype, ops, public=self._asked.public, harness=self._asked.harness) as probe:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                self._judge_subject(session, dtype, self._subjects[name], todo[name], folder, probe)

    def _judge_subject(
        self, session: Session, dtype: str, subject: Subject, mutants: list[Mutant], folder: Path, probe: ProbeLink
    ) -> None:
        original = write(subject, folder)
        if subject.op not in session.tasks:
            self._note(subject, dtype, OPSMITH, Result.NOT_ASKED)
            return
        if not self._accepts(session, dtype, subject, original, probe):
            return
        for mutant in mutants:
            kernel = write(subject, folder, mutant)
            done = self._book.outcomes
            if (mutant.name, dtype, OPSMITH) not in done:
                result, why, seconds = _judged(session, subject.op, kernel)
                self._note(subject, dtype, OPSMITH, result, why, mutant=mutant, seconds=seconds)
            if self._asked.public and (mutant.name, dtype, probe.harness_name) not in done:
                self._note(subject, dtype, probe.harness_name, *probe.harness(subject.op, kernel), mutant=mutant)
            survived = done[mutant.name, dtype, OPSMITH].result is Result.SURVIVED
            if survived and (mutant.name, dtype, EQUIVALENCE) not in done:
                calls = self._folder / f"calls-{dtype}-{subject.op}.msgpack"
                if not calls.exists():
                    known = KnownCalls(session.calls(subject.op), session.tolerance(subject.op))
                    calls.write_bytes(msgspec.msgpack.encode(known))
                self._survivors.put(_Survivor(subject, mutant, original, kernel, calls))
            self._count(subject.op)

    def _accepts(self, session: Session, dtype: str, subject: Subject, original: Kernel, probe: ProbeLink) -> bool:
        """Whether the judge accepts the kernel without a fault; nothing can be said of its mutants otherwise."""
        key = (subject.name, dtype, OPSMITH)
        if key not in self._book.outcomes:
            result, why, seconds = _judged(session, subject.op, original)
            self._note(subject, dtype, OPSMITH, result, why, seconds=seconds)
        if self._asked.public and (subject.name, dtype, probe.harness_name) not in self._book.outcomes:
            self._note(subject, dtype, probe.harness_name, *probe.harness(subject.op, original))
        return self._book.outcomes[key].result is Result.SURVIVED

    def _note(
        self,
        subject: Subject,
        dtype: str,
        judge: str,
        result: Result,
        why: str = "",
        *,
        mutant: Mutant | None = None,
        seconds: float = 0.0,
    ) -> None:
        outcome = Outcome(
            mutant=mutant.name if mutant else subject.name,
            op=subject.op,
            origin=subject.origin,
            operator=mutant.operator if mutant else ORIGINAL,
            family=mutant.family if mutant else "",
            dtype=dtype,
            judge=judge,
            result=result,
            why=why,
            before=mutant.before if mutant else "",
            after=mutant.after if mutant else "",
            seconds=round(seconds, 2),
        )
        with self._lock:
            self._book.add(outcome)
            if time.monotonic() - self._written_s > WRITTEN_EVERY_S:
                self._written_s = time.monotonic()
                self._written()


def _judged(session: Session, op: str, kernel: Kernel) -> tuple[Result, str, float]:
    """What the session says of a kernel, up to its first complaint."""
    against: list[Verdict] = []

    def complains(verdict: Verdict) -> bool:
        if verdict.counts_against:
            against.append(verdict)
        return bool(against)

    judged = session.judge_kernel(op, kernel, until=complains)
    if not against:
        return Result.SURVIVED, "" if judged.accepted else "answered no case", judged.device_s
    first = against[0]
    where = f" ({first.variant})" if first.variant else ""
    why = f"{first.status}{where}: {first.detail} on {first.inputs}"[:400]
    return (Result.VOID if first.status in HELD_AGAINST else Result.KILLED), why, judged.device_s


def chosen_subjects(origins: Sequence[str], ops: Sequence[str]) -> list[Subject]:
    """The kernels of several origins, of the ops that patterns name; of two for one op and origin the first.

    Raises:
        UsageError: an origin is damaged or there is none of that name.
    """
    chosen = {op for op in aten_schemas() if not ops or any(_names(pattern, op) for pattern in ops)}
    return [subject for origin in origins for subject in subjects_of(origin, chosen)]


def _names(pattern: str, op: str) -> bool:
    return fnmatch.fnmatchcase(op, pattern) or op.rpartition(".")[0] == pattern
