"""A book out of module problems: the compiler writes, the judge runs what it wrote, and what is the same stays once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from opsmith.backends.file import KernelFile
from opsmith.core.case import digest
from opsmith.core.task import Task
from opsmith.core.verdict import Verdict
from opsmith.generate.book.files import Entry, Log
from opsmith.generate.book.pairs import NotPaired, Pair, ast_hash, library_calls
from opsmith.generate.inductor import Compiler
from opsmith.generate.inductor.messages import Answer, AskModule, Refused, WroteModule
from opsmith.session import Session

#: The set that comes with opsmith is part of it; whoever builds a book out of other problems names their licence.
OWN_LICENSE = "BSD-3-Clause"
#: Of the GPU that the compiler is given where there is none.
ARCHITECTURE = "sm_90"
INTERPRETER = "interpreter"
#: After so long no further case is begun, and the pair is not validated.
MOST_JUDGING_S = 120.0


class BookSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a book.

    Attributes:
        problems: that were asked.
        pairs: in the book.
        validated: of them.
        validated_on: see :class:`.pairs.Pair`.
        duplicates: kind -> pairs that were left out as the same as another.
        not_paired: reason -> problems without a pair.
        not_validated: reason -> pairs.
    """

    problems: int
    pairs: int
    validated: int
    validated_on: str
    duplicates: dict[str, int]
    not_paired: dict[str, int]
    not_validated: dict[str, int]


class Builder:
    """Makes pairs one after another, and writes each down when it is made.

    Args:
        compiler: writes.
        session: of the problems, judges.
        small: the session's sizes are the small ones.
        license_id: SPDX expression, of the problems.
        folder: takes what was written, for the judge.
        log: of the build.

    Attributes:
        validated_on: see :class:`.pairs.Pair`.
    """

    def __init__(
        self,
        compiler: Compiler,
        session: Session,
        *,
        small: bool,
        license_id: str,
        folder: Path,
        log: Log,
    ) -> None:
        self._compiler = compiler
        self._session = session
        self._small = small
        self._license = license_id
        self._folder = folder
        self._log = log
        self.validated_on = INTERPRETER if session.options.device == "cpu" else session.environment.device_name

    def build(self, problems: Mapping[str, Path], *, jobs: int, made: Callable[[str], None]) -> list[Entry]:
        """What became of each problem, in order.

        Args:
            problems: task -> file.
            jobs: kernels judged at a time.
            made: is told of each problem when it is done.
        """
        with ThreadPoolExecutor(jobs) as judging:
            entries = []
            for task, file in problems.items():
                answer = self._compiler.ask(AskModule.of(file, small=self._small))
                entries.append(judging.submit(self._entry, task, file, answer, made))
            return [entry.result() for entry in entries]

    def _key(self, task: str, answer: Answer) -> str:
        return digest(msgspec.msgpack.encode((task, self.validated_on, answer)))

    def _entry(self, task: str, file: Path, answer: Answer, made: Callable[[str], None]) -> Entry:
        key = self._key(task, answer)
        entry = self._log.known.get(key)
        if entry is None:
            if isinstance(answer, WroteModule):
                entry = Entry(key=key, pair=self._pair(task, file, answer))
            else:
                assert isinstance(answer, Refused)
                entry = Entry(key=key, not_paired=NotPaired(task=task, reason=answer.reason))
            self._log.add(entry)
        made(task)
        return entry

    def _pair(self, task: str, file: Path, wrote: WroteModule) -> Pair:
        module = file.read_text(encoding="utf-8")
        problem = self._problem(task, wrote.source)
        facts = self._compiler.facts
        return Pair(
            task=task,
            module=module,
            triton=wrote.source,
            sizes="small" if self._small else "full",
            kernels=wrote.kernels,
            library_calls=library_calls(wrote.source),
            ast_hash=ast_hash(module),
            graph_hash=wrote.graph_hash,
            kernel_hash=wrote.kernel_hash,
            validated=problem is None,
            validated_on=self.validated_on,
            problem=problem,
            license=self._license,
            torch=facts.torch,
            triton_version=facts.triton,
            architecture=ARCHITECTURE,
        )

    def _problem(self, task: str, source: str) -> str | None:
        """Why a solution is not accepted, or None."""
        if task not in self._session.tasks:
            return "the judge has no case of the problem"
        place = self._folder / f"{task.replace('/', '_')}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source, encoding="utf-8")
        asked = self._session.tasks[task]
        kernel = KernelFile(place).kernel_for(Task(name=task, op=asked.op, suite=self._session.options.suite))
        assert kernel is not None, "it defines ModelNew"
        judged = self._session.judge_kernel(task, kernel, most_s=MOST_JUDGING_S)
        if judged.accepted:
            return None
        return next(map(_in_one_line, judged.verdicts), "no case ran")


def _in_one_line(verdict: Verdict) -> str:
    return f"{verdict.status}: {' '.join(verdict.detail.split())}"[:300]


def summarise(entries: list[Entry], kept: list[Pair], duplicates: dict[str, int], *, on: str) -> BookSummary:
    """The figures of a book.

    Args:
        entries: of all problems.
        kept: the pairs that are in the book.
        duplicates: see :func:`.pairs.distinct`.
        on: where pairs were validated.
    """
    refused = [entry.not_paired.reason for entry in entries if entry.not_paired is not None]
    return BookSummary(
        problems=len(entries),
        pairs=len(kept),
        validated=sum(pair.validated for pair in kept),
        validated_on=on,
        duplicates=duplicates,
        not_paired=_counted(refused),
        not_validated=_counted([pair.problem.partition(":")[0] for pair in kept if pair.problem is not None]),
    )


def _counted(reasons: list[str]) -> dict[str, int]:
    return dict(Counter(reasons).most_common())
