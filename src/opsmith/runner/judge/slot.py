"""A slot: one referee and one candidate that judge one op after another, on one thread of the judge."""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec

from opsmith.core.cache import build_folder
from opsmith.core.case import LARGE_LABELS, CaseRef
from opsmith.core.evidence import Evidence
from opsmith.core.op import Variant
from opsmith.core.run import Options
from opsmith.core.seeds import derive_seed
from opsmith.core.storage import is_about_storage, wait_for_room
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.judge.admission import Admission
from opsmith.runner.judge.bare_check import BareCheck
from opsmith.runner.judge.chunk import LOADING, ChunkJudge, Judged, Retry
from opsmith.runner.judge.conduct import JobConduct
from opsmith.runner.judge.looking import Looker
from opsmith.runner.judge.shrinking import Shrinking
from opsmith.runner.judge.verdicts import identity, make_verdict, not_run, was_oom, with_bare_answers
from opsmith.runner.processes.bare_link import BareLink
from opsmith.runner.processes.candidate import Candidate
from opsmith.runner.processes.failures import RefereeDied, WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import is_cache_of
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import MakeVariants, VariantsMade

#: After so many of them the kernel's remaining cases are NOT_RUN.
MAX_TIMEOUTS = 2
MAX_CRASHES = 3

#: Outcomes that end the worker process, apart from a time-out.
_DEADLY = {Status.CRASHED, Status.OUT_OF_MEMORY, Status.OUTPUT_LIMIT}

#: What is said of a case where a process finds a disk full.
_MAY_LACK_ROOM = {Status.REFERENCE_FAILED, Status.LOAD_FAILED, Status.ERROR, Status.CRASHED}

#: Evidence of a verdict on a case that lacked memory twice.
ASKED_BY_ITSELF = (
    "asked again with nothing else on the device and all memory given back, and there was too little again"
)

#: A chunk's size grows by this factor as long as nothing dies, up to the limits below.
FIRST_CHUNK_CASES = 8
CHUNK_GROWTH = 4
MAX_CHUNK_CASES = 32
MAX_CHUNK_BYTES = 8 << 20

#: Variants of an op: of its functional overload, and of the others, which the same code mostly answers.
VARIANTS = 24
VARIANTS_OF_VARIANTS = 8
#: How many of them are on large tensors: of a functional overload on a GPU, of one on a CPU, of the others on a GPU.
LARGE_VARIANTS = 3
LARGE_ON_CPU = 1
LARGE_OF_VARIANTS = 1
#: Cases that variants are made from, spread over the op's.
MAX_VARIED_CASES = 24
MAX_VARIED_BYTES = 1 << 20


class Slot:
    """Judges ops; see the module's docstring.

    Args:
        referee: of this slot.
        worker: the candidate of this slot: a worker, or the ranks that are one together.
        spool: of all referees.
        options: of the run.
        seed: of the run.
        admission: to the device, while cases are judged.
        bare: asks accepted kernels outside opsmith; None where nobody is asked.

    Attributes:
        in_use: held while it judges.
    """

    def __init__(
        self,
        referee: RefereeLink,
        worker: Candidate,
        spool: Spool,
        options: Options,
        seed: int,
        admission: Admission,
        bare: BareLink | None = None,
    ) -> None:
        self.referee = referee
        self.worker = worker
        self.spool = spool
        self._options = options
        self._seed = seed
        self._admission = admission
        self._bare = bare
        self._failed = False
        self._finish_by = math.inf
        self.in_use = threading.Lock()

    def close(self) -> None:
        """End both processes."""
        self.referee.close()
        self.worker.close()

    def finish_by(self, deadline: float) -> None:
        """Wait for nobody's answer beyond a moment of the monotonic clock; math.inf for no such limit."""
        self._finish_by = deadline
        self.referee.finish_by(deadline)
        self.worker.finish_by(deadline)

    def give_memory_back(self) -> None:
        """Give the device what both processes keep for the next case, and end those that wait."""
        self.referee.give_memory_back()
        self.worker.give_memory_back()

    def end_family(self) -> None:
        """Called between families of jobs: the next kernel gets a worker of its own.

        With ``--isolation backend`` it gets this one's, unless something failed in it: what a kernel did to its process
        is not held against the next one.
        """
        if self._options.isolation == "kernel" or self._failed:
            self.worker.retire()
        self._failed = False

    def judge(self, job: Job) -> Iterator[Verdict]:
        """Judge every case of a job, then variants of them, then how the kernel came to its answers.

        Of a void problem every case has that verdict, and no kernel is run.
        """
        if job.void is not None:
            yield from (make_verdict(job, case, Status.VOID, job.void) for case in job.cases)
            return
        for verdict in self._judge(job):
            self._failed = self._failed or verdict.is_failure
            yield verdict

    def _judge(self, job: Job) -> Iterator[Verdict]:
        conduct = JobConduct(job, self._options.device)
        # Variants on large tensors are not counted where nothing is resumed, either.
        tally = _Tally([verdict for verdict in job.earlier if verdict.variant not in LARGE_LABELS])
        judge = ChunkJudge(
            job,
            conduct,
            self.referee,
            self.worker,
            spool=self.spool,
            options=self._options,
            seed=self._seed,
        )
        shrinking = Shrinking(self.referee, self._options, self._seed, lambda case: self._judge_one(judge, case))
        cases = {str(case.address): case for case in job.cases}
        loaded = all(verdict.status is not Status.LOAD_FAILED for verdict in job.earlier)
        found = _Found(job.earlier)
        for verdict in self._judge_cases(job, job.cases, judge, tally):
            loaded = loaded and verdict.status is not Status.LOAD_FAILED
            found.add(verdict)
            yield shrinking.explain(verdict, cases[verdict.case])
        if not job.integrity or not loaded:
            return
        # Variants that had begun before a resume go on, as they would have, even if all that is said is NOT_RUN.
        if tally.enough() is None or any(verdict.part is Part.VARIANT for verdict in job.earlier):
            judged = {verdict.case for verdict in job.earlier}
            variants = [case for case in self._variants(job) if str(case.address) not in judged]
            for verdict in self._judge_variants(job, variants, judge, tally):
                found.add(verdict)
                yield verdict
        about_it = conduct.verdict()
        if about_it is not None:
            yield from self._asked_outside(job, judge, found, about_it)

    def look(self, job: Job, case: str, *, is_wrong: bool) -> Evidence:
        """What is seen of one case, by its address, or of a variant, which is made again."""
        known = {str(each.address): each for each in job.all_cases}
        if case not in known:
            known |= {str(each.address): each for each in self._variants(job)}
        if case not in known or job.schema.kind.on_ranks:
            return Evidence()
        worker = self.worker.timed_worker()
        looker = Looker(job, self.referee, worker, spool=self.spool, options=self._options, seed=self._seed)
        with self._admission.beside_others(known[case].size_bytes, self.give_memory_back):
            return looker.look(known[case], is_wrong=is_wrong)

    def _judge_variants(
        self, job: Job, variants: Sequence[CaseRef], judge: ChunkJudge, tally: _Tally
    ) -> Iterator[Verdict]:
        """Judge those on large tensors first. A kernel may be too slow for these, and then gets no more of them."""
        for case in [case for case in variants if case.variant in LARGE_LABELS]:
            [verdict] = self._judge_cases(job, [case], judge, _Tally(()))
            slow = verdict.status is Status.TIMEOUT and not verdict.detail.startswith(LOADING)
            yield msgspec.structs.replace(verdict, status=Status.UNSUPPORTED) if slow else verdict
            if slow:
                break
        yield from self._judge_cases(job, [case for case in variants if case.variant not in LARGE_LABELS], judge, tally)

    def _asked_outside(self, job: Job, judge: ChunkJudge, found: _Found, about_it: Verdict) -> Iterator[Verdict]:
        """The verdict on a kernel's conduct; of one that is accepted so far, after it was asked in a bare process."""
        if self._bare is None or found.is_refused or about_it.status is not Status.PASSED:
            yield about_it
            return
        check = BareCheck(
            job,
            self.referee,
            self._bare,
            options=self._options,
            seed=self._seed,
            build_cache=lambda: self._build_cache(job),
            judge=lambda case: self._judge_one(judge, case),
            admitted=lambda size_bytes: self._admission.beside_others(size_bytes, self.give_memory_back),
            alone=self._alone,
            left_s=lambda: max(self._finish_by - time.monotonic(), 0.0),
        )
        outside = check.ask([case for case in job.all_cases if str(case.address) in found.passed])
        yield from outside.wrong
        yield with_bare_answers(about_it, outside.answers, outside.offence, job.policy)

    def _build_cache(self, job: Job) -> str | None:
        """Where the kernel's worker builds, which may have ended or not have been started in a resumed run."""
        worker = self.worker.timed_worker()
        with contextlib.suppress(WorkerFailed):
            worker.load(job.kernel, job.root, job.schema, job.policy)
        return worker.build_cache

    def _judge_cases(self, job: Job, cases: Sequence[CaseRef], judge: ChunkJudge, tally: _Tally) -> Iterator[Verdict]:
        """Judge cases in growing chunks: one wait for the device serves a chunk."""
        left = list(cases)
        # On a device each round trip waits for its turn; on the CPU a hang is found soonest alone.
        size = 1 if self._options.device.startswith("cpu") else FIRST_CHUNK_CASES
        one_by_one = False
        while left:
            reason = tally.enough()
            if reason is not None:
                yield from not_run(job, left, reason)
                return
            chunk = _chunk(left, 1 if one_by_one else size)
            found = self._judge_chunk(judge, chunk)
            if isinstance(found, Retry):
                # A case of the chunk has crashed the worker, or the referee was lost over it. Judged in a chunk of its
                # own it is found out, and costs no other case its verdict.
                one_by_one = True
                continue
            not_loaded: Verdict | None = None
            for case, first in zip(chunk, found.verdicts, strict=False):  # One for all where nothing was loaded.
                if tally.enough() is not None:
                    break  # As if the chunk had been judged case by case: a resumed run finds the same.
                # Out of memory, be it the kernel's or eager's: others may have had it, so the case is judged once more
                # with the device to itself, and that verdict counts.
                verdict = self._judge_by_itself(judge, case) if was_oom(first) else first
                if verdict.status in _MAY_LACK_ROOM and self._waited_for_room(job, verdict.detail, *verdict.evidence):
                    verdict = self._judge_one(judge, case)
                not_loaded = verdict if verdict.status is Status.LOAD_FAILED else None
                tally.add(verdict)
                del left[0]
                yield verdict
            if not_loaded is not None:
                # It would not load for the next case either.
                yield from (msgspec.structs.replace(not_loaded, **identity(job, case)) for case in left)
                return
            size = min(size * CHUNK_GROWTH, MAX_CHUNK_CASES)
            one_by_one = one_by_one or not tally.clean  # A kernel that has ended a process may end the next one.

    def _judge_chunk(self, judge: ChunkJudge, chunk: Sequence[CaseRef]) -> Judged | Retry:
        with self._admission.beside_others(sum(case.size_bytes for case in chunk), self.give_memory_back):
            return judge.judge(chunk)

    def _judge_one(self, judge: ChunkJudge, case: CaseRef) -> Verdict:
        return _only(self._judge_chunk(judge, [case]))

    def _judge_by_itself(self, judge: ChunkJudge, case: CaseRef) -> Verdict:
        """Judge a case again for which there was no memory, while nobody else has any that can be given back."""
        with self._alone():
            verdict = _only(judge.judge([case]))
        if not was_oom(verdict):
            return verdict
        return msgspec.structs.replace(verdict, evidence=(*verdict.evidence, ASKED_BY_ITSELF))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Within it nobody else has the device, nor any of its memory that can be given back."""
        self.worker.retire()
        self.give_memory_back()
        with self._admission.by_itself():
            yield

    def _variants(self, job: Job) -> Sequence[CaseRef]:
        """More cases of the op than the suite asks, made from those that it asks; of a collective none."""
        if job.schema.kind.on_ranks:
            return ()  # What ranks are given has to fit together.
        varied = [case for case in job.all_cases if not case.expects_error and case.size_bytes <= MAX_VARIED_BYTES]
        if not varied:
            return ()
        step = -(-len(varied) // MAX_VARIED_CASES)
        chosen = varied[::step]
        limit = VARIANTS if job.schema.variant is Variant.FUNCTIONAL else VARIANTS_OF_VARIANTS
        seed = derive_seed(self._seed, "variants", job.schema.name)
        request = MakeVariants(tuple(chosen), seed, limit, self._large_variants(job))
        try:
            return self._made(request)
        except (RefereeDied, RefereeFailed) as exc:
            if not self._waited_for_room(job, str(exc)):
                return ()  # Eager itself fails on such values.
        try:
            return self._made(request)
        except (RefereeDied, RefereeFailed):
            return ()

    def _made(self, request: MakeVariants) -> Sequence[CaseRef]:
        with self._admission.beside_others(0, self.give_memory_back):
            made = self.referee.ask(request, VariantsMade)
        assert isinstance(made, VariantsMade)
        return made.cases

    def _waited_for_room(self, job: Job, *said: str) -> bool:
        """Whether a process said that a disk is full, or the like, which is not so any more.

        What the kernel has written is removed before: it may have filled the disk itself.

        Raises:
            OSError: it is still so. No verdict can be had.
        """
        if not any(map(is_about_storage, said)):
            return False
        self.worker.retire()
        self.referee.close()
        builds = build_folder()
        for cache in builds.glob(f"{job.kernel.build_name}*"):
            if is_cache_of(cache.name, job.kernel):
                shutil.rmtree(cache, ignore_errors=True)
        wait_for_room([folder for folder in (self.spool.folder, builds) if folder.exists()])
        return True

    def _large_variants(self, job: Job) -> int:
        functional = job.schema.variant is Variant.FUNCTIONAL
        if not self._options.device.startswith("cpu"):
            return LARGE_VARIANTS if functional else LARGE_OF_VARIANTS
        return LARGE_ON_CPU if functional and not _may_be_interpreted(job) else 0


def _may_be_interpreted(job: Job) -> bool:
    """Whether a kernel may run in Triton's interpreter, which takes a millisecond for each program of a grid."""
    if job.kernel.dsl not in ("torch", "cpp", "aten") or (job.root is None and job.kernel.dsl != "aten"):
        return True
    return any(b"triton" in (job.root / path).read_bytes() for path in job.kernel.files if job.root is not None)


class _Tally:
    """Counts what makes a kernel's remaining cases not worth running."""

    def __init__(self, earlier: Sequence[Verdict]) -> None:
        self._timeouts = 0
        self._crashes = 0
        for verdict in earlier:
            self.add(verdict)

    def add(self, verdict: Verdict) -> None:
        if verdict.status is Status.TIMEOUT:
            # Loading again would take as long again.
            self._timeouts += MAX_TIMEOUTS if verdict.detail.startswith(LOADING) else 1
        self._crashes += verdict.status in _DEADLY

    @property
    def clean(self) -> bool:
        """Whether nothing has counted so far."""
        return not self._timeouts and not self._crashes

    def enough(self) -> str | None:
        """Why no more cases are run, or None."""
        if self._timeouts >= MAX_TIMEOUTS:
            return "timed out"
        return "crashed" if self._crashes >= MAX_CRASHES else None


class _Found:
    """What the verdicts on an op come to."""

    def __init__(self, earlier: Sequence[Verdict]) -> None:
        self.passed: set[str] = set()
        self.is_refused = False
        for verdict in earlier:
            self.add(verdict)

    def add(self, verdict: Verdict) -> None:
        self.is_refused = self.is_refused or verdict.counts_against
        if verdict.status is Status.PASSED:
            self.passed.add(verdict.case)


def _only(found: Judged | Retry) -> Verdict:
    """The verdict on a case that was judged alone."""
    assert isinstance(found, Judged), "only a chunk of several has to be judged again"
    [verdict] = found.verdicts
    return verdict


def _chunk(cases: Sequence[CaseRef], size: int) -> list[CaseRef]:
    """The next cases that are judged together, by as many ranks: at most ``size``, not too many bytes; at least one."""
    chunk = [cases[0]]
    total_bytes = cases[0].size_bytes
    for case in cases[1:size]:
        total_bytes += case.size_bytes
        if total_bytes > MAX_CHUNK_BYTES or case.ranks != cases[0].ranks:
            break
        chunk.append(case)
    return chunk
