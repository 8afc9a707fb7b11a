"""A run on disk: what was asked, what was found, and how to find it again after a kill.

::

    RUN/
      run.json        command, options, environment, seed (written when the run ends)
      plan.json       every op asked, who answers it, how many cases it has
      verdicts.jsonl  one verdict a line, append-only
      timings.jsonl   one timed case a line, append-only
      visits.jsonl    what was found of a case that was then timed again at another time, append-only
      columns.jsonl   of whole models one way to run one a line, append-only
      kernels/        exact snapshot of what was judged
      summary.json    the scores
      report.html     the page
      .seed           the secret seed of a run that has not ended, readable by its owner only
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opsmith.core.environment import Environment
from opsmith.core.fresh_values import Freshness
from opsmith.core.kernel import Kernel
from opsmith.core.op import TaskKind
from opsmith.core.storage import naming
from opsmith.core.timing import Clock, Timing, Undecided, Work
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import BadInput, DamagedRun

FORMAT_VERSION = 1
#: Of file systems that lock no folders.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL}
#: The last file that a run writes.
PAGE = "report.html"

Record = TypeVar("Record")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which inputs a run asks, or which problems; all but ``sample`` is for the suites that read a dataset or problems.

    Attributes:
        dataset: file of the dataset, or None for the one that comes with opsmith.
        dataset_hash: of that file's content.
        top_inputs: so many of the largest inputs of each op, or None for all.
        spread_inputs: so many inputs of each op, 2 or more, evenly spaced by rank of size, or None for all.
        sample: so many inputs, drawn at random and spread over the ops that are asked, or None for all.
        sample_seed: of that draw.
        models: patterns of names; inputs of other models are not asked.
        overhead_dominated: ``with``, ``without`` or ``only`` the inputs that mostly wait for their launch.
        problems: file or folder of module problems, or None for suites that ask ops.
        problems_hash: of the names and contents of those problems.
        trials: so many cases of a problem have inputs as the problem draws them.
        sizes: ``full``, or ``small`` for those that a problem names for machines without a GPU.
        seeded: a solution gets its weights by being constructed under the seed that Model was, as the public
            harness does it, and is asked nothing but what the problem draws.
        ranks: numbers of processes that collectives are asked on.
        mode: what whole models are asked: ``infer``, ``train`` or ``both``.
        columns: further ways to run whole models, beside the backend's.
        autocast: whole models keep float32 weights and compute in bfloat16 under autocast.
    """

    dataset: str | None = None
    dataset_hash: str | None = None
    top_inputs: int | None = None
    spread_inputs: int | None = None
    sample: int | None = None
    sample_seed: int = 0
    models: tuple[str, ...] = ()
    overhead_dominated: str = "with"
    problems: str | None = None
    problems_hash: str | None = None
    trials: int = 5
    sizes: str = "full"
    seeded: bool = False
    ranks: tuple[int, ...] = ()
    mode: str = "both"
    columns: tuple[str, ...] = ()
    autocast: bool = False


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run that decide its verdicts; a resumed run must ask for the same."""

    suite: str
    backend: str
    device: str
    dtypes: tuple[str, ...]
    ops: tuple[str, ...] = ()
    timing: str = "off"
    timing_pairs: int | None = None
    baseline: str = "eager"
    warm: bool = False
    isolation: str = "kernel"
    policy: str = "native"
    integrity: str = "auto"
    tolerance: str = "strict"
    layout: str = "dense"
    case: str | None = None
    selection: Selection = Selection()

    def checks_integrity(self, *, trusted: bool) -> bool:
        """Whether kernels are asked more than the suite does; by default those of every backend but the reference."""
        return self.integrity == "on" or (self.integrity == "auto" and not trusted)


class UsedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a run was judged on.

    Attributes:
        name: its maker's.
        identity: what tells it from others of its machine, its UUID for example.
        host: the machine's name.
        jobs: ops judged at a time on it.
        lost: it was gone before the run ended.
        clock: how it was set up there; None where nothing was timed.
    """

    name: str
    identity: str
    host: str
    jobs: int
    lost: bool = False
    clock: Clock | None = None


class RunManifest(msgspec.Struct, frozen=True, kw_only=True):
    """``run.json``.

    Attributes:
        command: the command line that made the run.
        options: what was asked.
        environment: where it ran.
        sandbox: the isolation layers that were active in the workers.
        sandbox_missing: those that the machine could not give -> why.
        started_utc: ISO 8601 time of the first start.
        finished_utc: ISO 8601 time of the end, or None while the run is not finished.
        seed: the run's seed, recorded when it ends; None before.
        resumed: how often the run was taken up again.
        notes: remarks that change how figures are to be read (interpreter, no timing).
        wall_s: seconds of the last start, imports included; None while not finished.
        stages_s: stage of the last start -> seconds of it.
        clock: how kernels were timed, on the first device that did; None where nothing was.
        executor: what brought the devices together, as ``--executor`` names it.
        devices: all that were used, by all starts of the run.
    """

    command: tuple[str, ...]
    options: Options
    environment: Environment
    sandbox: tuple[str, ...]
    sandbox_missing: dict[str, str] = {}
    started_utc: str
    finished_utc: str | None = None
    seed: int | None = None
    resumed: int = 0
    notes: tuple[str, ...] = ()
    wall_s: float | None = None
    stages_s: dict[str, float] = {}
    clock: Clock | None = None
    executor: str = "local"
    devices: tuple[UsedDevice, ...] = ()
    format_version: int = FORMAT_VERSION


class PlannedOp(msgspec.Struct, frozen=True, kw_only=True):
    """One op (or module) of the plan: what is asked and who answers.

    Attributes:
        void: of a module problem why it asks nothing, as an audit says it: it is not judged and in no denominator.
        not_asked: of one that cannot be asked, why; it has no cases and counts as not correct.
    """

    op: str
    schema: str
    cases: int
    error_cases: int
    kernel: Kernel | None
    kernel_hash: str | None
    kind: TaskKind = TaskKind.OP
    void: str | None = None
    not_asked: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it is in the denominators."""
        return self.void is None and (self.cases > 0 or self.not_asked is not None)


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``plan.json``: the denominators.

    Attributes:
        ops: every op asked.
        skipped: suite entries that could not be turned into cases, with the reason.
        unrecognised: folders and manifest entries of the backend that name no op of this torch.
    """

    ops: tuple[PlannedOp, ...]
    skipped: dict[str, str] = {}
    unrecognised: tuple[str, ...] = ()


class OpSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One op in ``summary.json``.

    Attributes:
        accepted: a kernel was found, every planned case PASSED and nothing was POLICY or DISHONEST.
        answered: a kernel was found, even one that fails to load.
        cases: planned cases; bad calls are not among them.
        passed: how many of them PASSED; a case without a verdict did not.
        statuses: status -> number of cases, in the order of the enum.
        error_cases: ``asked`` bad calls and those that ``raised``.
        dishonest: DISHONEST verdicts, those of bad calls, of variants and of the kernel as a whole included.
        policy: the same of POLICY verdicts.
        derived: answered by the functional kernel plus a copy.
        layout_differs: cases whose output is a dense permutation of eager's layout.
        speedup_k: geometric mean over the timed cases of K, kernel time on the device; None: not timed.
        speedup_e: the same of E, one call as a caller pays for it.
        labels_k: label -> number of timed cases, of K.
        labels_e: the same of E.
        percent_of_floor: median over the timed cases of what the device needs at least over what the
            kernel takes, of K where there is one; None: not measured.
        first_call_s: seconds that the first calls of the timed cases took together, compiling included.
        dsl: what the kernel is written in; None without a kernel.
        task_kind: ``op``, ``module`` or ``model``.
        variants: status -> number of variants of the cases, which are not among ``cases``; a kernel may
            decline one.
        void: why the problem asks nothing; such a one is in a ``summary.json`` by name alone.
        not_asked: why the problem could not be asked.
        accepted_for: of a kernel that is not accepted because it declines calls, and right wherever it answers: the
            dtypes of which it answers every case whose tensors are of that dtype, integers and masks beside floats
            aside.
        rank_spread_us: of ranks, how much earlier than the last one the first one was done, microseconds; the median
            over the timed cases, None without any.
    """

    accepted: bool
    answered: bool
    cases: int
    passed: int
    statuses: dict[str, int]
    error_cases: dict[str, int]
    dishonest: int
    policy: int = 0
    derived: bool
    layout_differs: int
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None
    dsl: str | None
    task_kind: TaskKind = TaskKind.OP
    variants: dict[str, int] = {}
    labels_k: dict[str, int] = {}
    labels_e: dict[str, int] = {}
    first_call_s: float | None = None
    void: str | None = None
    not_asked: str | None = None
    accepted_for: tuple[str, ...] = ()
    rank_spread_us: float | None = None

    def speedup(self, quantity: str) -> float | None:
        """Of ``K`` or ``E``."""
        return self.speedup_k if quantity == "K" else self.speedup_e

    def labels(self, quantity: str) -> dict[str, int]:
        """Of ``K`` or ``E``."""
        return self.labels_k if quantity == "K" else self.labels_e


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One score, with what it is a share or a mean of.

    Attributes:
        value: the score.
        denominator: how many of the things that ``convention`` names it is taken over.
        convention: one sentence: what is counted, over what, and what a failure counts as.
    """

    value: float
    denominator: int
    convention: str


class SpeedScores(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the solutions of a level are in one quantity.

    Of a problem with several samples every share and mean is taken over its samples first, so that each problem
    counts once. A problem without a solution counts as one whose solution is wrong.

    Attributes:
        baseline: what times are compared with.
        quantity: ``K`` or ``E``.
        fast: p as text -> share of the problems that are correct with a speedup above p.
        timed: problems of which a correct sample was timed.
        geomean: geometric mean over those, of their correct timed samples; None without any.
        median: the same, median.
        geomean_floored_at_one: over all problems, where a sample that is wrong, slower or not timed counts 1.
        median_floored_at_one: the same, median.
    """

    baseline: str
    quantity: str
    fast: dict[str, float]
    timed: int
    geomean: float | None
    median: float | None
    geomean_floored_at_one: float
    median_floored_at_one: float


class LevelScores(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found about the module problems of one level, or of all.

    Attributes:
        level: ``L1``, the name of another folder, empty for problems outside of folders, or ``all``.
        problems: problems asked.
        answered: those with a solution.
        samples: solutions judged.
        correct: solutions that are accepted.
        solved: problems with such a solution.
        policy: solutions that are not accepted because of POLICY.
        void: further problems, which ask nothing and are in no other figure.
        pass_at: k as text -> mean over the problems of the chance that one of k samples is accepted, for those k that
            every answered problem has samples for.
        speeds: in each quantity that was timed.
    """

    level: str
    problems: int
    answered: int
    samples: int
    correct: int
    solved: int
    policy: int = 0
    void: int = 0
    pass_at: dict[str, float]
    speeds: tuple[SpeedScores, ...] = ()


class ColumnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found about one way to run whole models.

    Attributes:
        cases: cases asked.
        passed: how many of them PASSED.
        statuses: status -> number of cases, in the order of the enum.
        speedup_k: geometric mean over the timed cases of K over eager's; None: not timed.
        speedup_e: the same of E.
        labels_k: label -> number of timed cases, of K.
        labels_e: the same of E.
        first_call_s: seconds that the first calls took together, compiling included; None: not timed.
        graphs: graphs that the compiler made together; None where nothing is compiled.
        memory: geometric mean of peak memory over eager's; None: not measured.
    """

    cases: int
    passed: int
    statuses: dict[str, int]
    speedup_k: float | None
    speedup_e: float | None
    labels_k: dict[str, int]
    labels_e: dict[str, int]
    first_call_s: float | None
    graphs: int | None
    memory: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """``summary.json``.

    Attributes:
        ops: ``asked``, ``answered`` and ``correct`` ops.
        cases: ``asked`` and ``passed`` cases; bad-call cases are not among them.
        error_cases: ``asked`` bad calls and those that ``raised``.
        accepted: at least one op answered, every answered op passes all its cases, none POLICY or DISHONEST.
        scores: by name; a score that cannot be computed from this run is not among them.
        statuses: how many cases got each status; bad-call cases are not among them.
        levels: of module problems, level by level, then ``all``; empty for a run of ops.
        columns: of whole models, way by way; empty for a run of ops.
        policy: ops that are not correct because of POLICY: their kernels compose, in the open, what the run's policy
            does not allow.
        void: module problem -> why it asks nothing. Such a problem is neither in ``per_op`` nor in any count or score.
    """

    suite: str
    backend: str
    device: str
    dtypes: tuple[str, ...]
    ops: dict[str, int]
    cases: dict[str, int]
    error_cases: dict[str, int]
    accepted: bool
    per_op: dict[str, OpSummary]
    scores: dict[str, Score]
    statuses: dict[str, int]
    notes: tuple[str, ...] = ()
    levels: tuple[LevelScores, ...] = ()
    columns: dict[str, ColumnSummary] = {}
    policy: int = 0
    void: dict[str, str] = {}
    accepted_for: tuple[str, ...] = ()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    What is no file, such as a pipe or ``/dev/null``, is written to as it is, and a link stays one.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with naming(path), os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a value as json, indented for people, atomically."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def new_seed(given: int | None = None) -> int:
    """The given seed, or a fresh secret one of 48 bits."""
    return secrets.randbits(48) if given is None else given


class TimedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``timings.jsonl``.

    Attributes:
        op: the task's name.
        case: the case's address as text.
        kernel: content hash of the kernel.
        timings: one per quantity.
        undecided: of each quantity that was timed and of which nothing can be said, why.
        problem: why the case could not be timed, or one of the quantities not be measured.
        offence: what the clock found that is held against the kernel; the verdict of the case becomes DISHONEST.
        work: what the call has to do; None where that is not known.
        load_s: seconds that loading the kernel took, building included; of a kernel's first case only.
        first_call_s: seconds of the candidate's first call, compiling and tuning for this case included.
        reference_first_call_s: the same of the reference.
        peak_bytes: device memory of torch's that one candidate call takes at most, results included.
        reference_peak_bytes: the same of the reference.
        device: which of the run's devices it was timed on, by its number in ``run.json``; None where the run had one.
        values: whether its calls met values that no call had met before; None where nothing was timed, and in records
            from before this was told.
    """

    op: str
    case: str
    kernel: str
    timings: tuple[Timing, ...]
    undecided: tuple[Undecided, ...] = ()
    problem: str | None = None
    offence: str | None = None
    work: Work | None = None
    load_s: float | None = None
    first_call_s: float | None = None
    reference_first_call_s: float | None = None
    peak_bytes: int | None = None
    reference_peak_bytes: int | None = None
    device: int | None = None
    values: Freshness | None = None

    def told_by(self, verdict: Verdict) -> Verdict:
        """The verdict of the case, with what the clock says."""
        if self.offence is None:
            return msgspec.structs.replace(verdict, timings=self.timings, undecided=self.undecided)
        evidence = (self.offence, *verdict.evidence)
        return msgspec.structs.replace(verdict, status=Status.DISHONEST, detail=self.offence, evidence=evidence)


class ColumnResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of ``columns.jsonl``: one whole model run in one way.

    Attributes:
        column: the way's name.
        verdict: whether results and gradients are right.
        timed: how fast they came; None where nothing was timed.
        graphs: graphs that the compiler made, those of recompilations among them; None where nothing is compiled.
        peak_bytes: device memory that torch's allocator held at most during a call, weights included; None off CUDA.
    """

    column: str
    verdict: Verdict
    timed: TimedCase | None = None
    graphs: int | None = None
    peak_bytes: int | None = None


class RunDirectory:
    """Reads and writes one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def verdicts_path(self) -> Path:
        return self.path / "verdicts.jsonl"

    @property
    def kernels_path(self) -> Path:
        return self.path / "kernels"

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run.

        Raises:
            BadInput: there is no run at ``path``.
        """
        if not (path / "run.json").is_file():
            raise BadInput(f"{path} is not a run directory (it has no run.json); make one with `opsmith run -o {path}`")
        return cls(path)

    def manifest(self) -> RunManifest:
        return self._read("run.json", RunManifest)

    def plan(self) -> RunPlan:
        return self._read("plan.json", RunPlan)

    def summary(self) -> Summary:
        return self._read("summary.json", Summary)

    def write(self, name: str, record: msgspec.Struct) -> None:
        """Write one of the run's json documents."""
        write_json(self.path / name, record)

    def _read(self, name: str, record_type: type[Record]) -> Record:
        path = self.path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=record_type)
        except FileNotFoundError as exc:
            raise BadInput(
                f"{path} is missing; the run did not get that far: resume it with `opsmith run --resume -o {self.path}`"
            ) from exc
        except msgspec.DecodeError as exc:
            remedy = (
                "only a copy of it can bring this run back"
                if name == "run.json"
                else f"resume the run with `opsmith run --resume -o {self.path}` to write it again"
            )
            raise DamagedRun(f"{path} is damaged ({exc}); {remedy}") from exc
        except OSError as exc:
            raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts in the order in which they were found.

        A last line without its newline is what a killed writer leaves; it is not a verdict yet.

        Raises:
            DamagedRun: a complete line does not decode; the verdicts before it were yielded.
        """
        decoder = msgspec.json.Decoder(Verdict)
        timed_cases = {(timed.case, timed.kernel): timed for timed in self.timed_cases()}
        for number, line in enumerate(_complete_lines(self.verdicts_path), start=1):
            try:
                verdict = decoder.decode(line)
                found = timed_cases.get((verdict.case, verdict.kernel))
                yield verdict if found is None else found.told_by(verdict)
            except msgspec.DecodeError as exc:
                raise DamagedRun(
                    f"{self.verdicts_path} line {number} is damaged ({exc}); the {number - 1} verdicts before it "
                    f"are intact: `opsmith run --resume -o {self.path}` keeps them and judges the rest again"
                ) from exc

    def timed_cases(self) -> Iterator[TimedCase]:
        """Yield what was timed; a damaged line ends it, and its case is timed again on a resume."""
        yield from self._intact("timings.jsonl", TimedCase)

    def earlier_timings(self) -> Iterator[TimedCase]:
        """Yield what was found of cases that were then timed again; a damaged line ends it."""
        yield from self._intact("visits.jsonl", TimedCase)

    def note_earlier_timing(self, timed: TimedCase) -> None:
        """Keep what was found of a case that is to be timed again."""
        with self.appender("visits.jsonl") as append:
            append(timed)

    def column_results(self) -> Iterator[ColumnResult]:
        """Yield what was found of whole models; a damaged line ends it, and its column is judged again on a resume."""
        yield from self._intact("columns.jsonl", ColumnResult)

    def _intact(self, name: str, record_type: type[Record]) -> Iterator[Record]:
        """The records of a file up to the first damaged line."""
        decoder = msgspec.json.Decoder(record_type)
        for line in _complete_lines(self.path / name):
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                return

    @contextlib.contextmanager
    def appender(self, name: str) -> Iterator[Callable[[msgspec.Struct], None]]:
        """Open one of the run's jsonl files for appending; each record is there whole, or not at all."""
        encoder, path = msgspec.json.Encoder(), self.path / name
        with path.open("ab", buffering=0) as stream:

            def append(record: msgspec.Struct) -> None:
                line = encoder.encode(record) + b"\n"
                before = stream.tell()
                try:
                    with naming(path):
                        written = stream.write(line)
                        while written < len(line):  # The disk is about to be full: the rest says so.
                            written += stream.write(line[written:])
                except OSError:
                    with contextlib.suppress(OSError):
                        stream.truncate(before)
                    raise

            yield append

    def recover(self) -> tuple[list[Verdict], Path | None]:
        """Return the intact verdicts; cut them, the timings, earlier ones and the columns off before the first damage.

        Whatever follows the last intact line is moved to a side file, so nothing is lost.

        Returns:
            the intact verdicts, and the side file if any verdict had to be set aside.
        """
        intact: list[Verdict] = []
        with contextlib.suppress(DamagedRun):
            intact.extend(self.verdicts())  # Keeps what was yielded before the damage.
        self._keep_lines("timings", len(list(self.timed_cases())))
        self._keep_lines("visits", len(list(self.earlier_timings())))
        self._keep_lines("columns", len(list(self.column_results())))
        return intact, self._keep_lines("verdicts", len(intact))

    def _keep_lines(self, name: str, count: int) -> Path | None:
        path = self.path / f"{name}.jsonl"
        good_bytes = sum(map(len, itertools.islice(_complete_lines(path), count)))
        data = path.read_bytes() if path.exists() else b""
        if len(data) == good_bytes:
            return None
        number = 1
        while (aside := self.path / f"{name}.damaged-{number}.jsonl").exists():
            number += 1
        write_atomically(aside, data[good_bytes:])
        write_atomically(path, data[:good_bytes])
        return aside

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Within, no other process writes to the run; the system gives the claim up when this one dies.

        Raises:
            BadInput: another process does.
        """
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise self._busy() from exc
            except OSError as exc:
                if exc.errno not in _NO_LOCKS:
                    raise
            yield
        finally:
            os.close(folder)

    def _busy(self) -> BadInput:
        return BadInput(f"another process writes to {self.path}; wait until it ends, or choose another -o")

    def create(self, seed: int, *, anew: bool = False) -> None:
        """Make the directory, if it is not there, and keep the seed for a resume.

        ``.seed`` has mode 0600 and lives until :meth:`forget_seed`: a resumed run asks the same
        cases with the same values.

        Args:
            seed: of the run.
            anew: there was no run in it before.

        Raises:
            BadInput: the directory cannot be made, or another process has begun a run in it meanwhile.
        """
        try:
            self.kernels_path.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise BadInput(f"{self.path} cannot be made: {exc.strerror}; choose another -o") from exc
        stored = self.stored_seed()
        if stored not in (None, seed) or (anew and (self.path / "run.json").exists()):
            raise self._busy()
        if stored is None:
            descriptor = os.open(self.path / ".seed", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(str(seed))

    def stored_seed(self) -> int | None:
        """The seed of a run that has not ended, or None.

        Raises:
            DamagedRun: the file holds no number.
        """
        path = self.path / ".seed"
        try:
            return int(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as exc:
            raise DamagedRun(f"{path} is damaged, and no other file holds the run's seed; start a new run") from exc

    def forget_seed(self) -> None:
        (self.path / ".seed").unlink(missing_ok=True)


def _complete_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            yield from (line for line in stream if line.endswith(b"\n"))
    except FileNotFoundError:
        return
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
