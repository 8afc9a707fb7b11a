"""What a program that writes kernels may ask of a judge: tasks, verdicts, times, and the last word.

::

    with Workbench(options, Path("bench")) as bench:
        bench.check("relu.default", source).accepted
        bench.submit("relu.default", source).accepted

Kernels are checked on values that stay the same while the workbench is open, so that two of them can be compared. The
last word, :meth:`Workbench.submit`, is a run of its own on fresh secret values, as at the end of a campaign.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import msgspec

from opsmith.backends.shipped import Shipped
from opsmith.core.case import CallRecord, digest, tensor_values
from opsmith.core.kernel import Kernel
from opsmith.core.op import TaskKind, matches
from opsmith.core.run import OpSummary, Options, RunDirectory, Summary, write_atomically
from opsmith.core.task import Task
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput, DamagedRun
from opsmith.generate.contexts import Setting
from opsmith.generate.eager_profile import counters, eager_profiles
from opsmith.generate.feedback import telling
from opsmith.generate.op_facts import OpFacts, op_facts
from opsmith.generate.prompt import statement
from opsmith.generate.results import kernel_file
from opsmith.pipeline import Progress, evaluate
from opsmith.session import AskedTask, Found, Judged, Session

#: What a task's statement tells of it.
CONTEXTS = ("documentation", "decomposition", "cases", "hardware")

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The last word on a kernel.

    Attributes:
        task: its task.
        accepted: right on every case, by what the policy allows and honest, on values that nobody had seen.
        summary: the scores; None of a problem that turned out to ask nothing.
        detail: why it is not accepted, in one line; empty otherwise.
        run: the run directory.
    """

    task: str
    accepted: bool
    summary: OpSummary | None
    detail: str
    run: str


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """The best kernel that is known for a task.

    Attributes:
        source: of its file.
        origin: who wrote it.
        speedup_k: of kernel time, in the run that accepted it; None where that was not timed.
        speedup_e: of call time.
        percent_of_floor: of what the device can do.
    """

    source: str
    origin: str
    speedup_k: float | None = None
    speedup_e: float | None = None
    percent_of_floor: float | None = None

    @property
    def speedup(self) -> float:
        """What kernels of a task are ordered by; 0 where nothing was timed."""
        return (self.speedup_k if self.speedup_k is not None else self.speedup_e) or 0.0


class Workbench:
    """See the module's docstring; a context manager, whose methods may be called from several threads.

    Args:
        options: what is asked and how strictly; the backend is a name for the records.
        folder: takes kernels and runs; no kernel may read it. Kernels that were accepted there before are known.
        dsl: what kernels are to be written in.
        jobs: kernels judged at a time.
        most_judging_s: seconds that checking one kernel may take.
        progress: told how far starting and enumerating are.
    """

    def __init__(
        self,
        options: Options,
        folder: Path,
        *,
        dsl: str,
        jobs: int = 1,
        most_judging_s: float = 300.0,
        progress: Progress | None = None,
    ) -> None:
        self.options = options
        self._folder = folder.absolute()
        self._dsl = dsl
        self._jobs = jobs
        self._most_s = most_judging_s
        self._progress = progress
        self._facts: dict[str, OpFacts] | None = None
        self._writing, self._starting, self._reading = threading.Lock(), threading.Lock(), threading.Lock()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Begin to start the judge; what is asked waits for it.

        Raises:
            BadInput: the folder holds something else.
        """
        self._best = self._read_best()
        # Some children end with the thread that started them, so the threads live as long as the judge.
        self._threads = self._open.enter_context(ThreadPoolExecutor(self._jobs + 2, thread_name_prefix="workbench"))
        self._sessions: list[Future[Session]] = []
        self._open.callback(self._close_sessions)
        self._opened(0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def _open_session(self) -> Session:
        session = Session(
            self.options,
            self._folder / "judged",
            withheld=[self._folder],
            jobs=self._jobs,
            progress=self._progress,
        )
        return session.__enter__()

    def _opened(self, number: int) -> Future[Session]:
        """One of two sessions, each with a secret seed of its own; the second starts when it is first asked for."""
        with self._starting:
            while len(self._sessions) <= number:
                self._sessions.append(self._threads.submit(self._open_session))
        return self._sessions[number]

    def _close_sessions(self) -> None:
        for opened in self._sessions:
            if opened.exception() is None:
                opened.result().__exit__(None, None, None)

    @property
    def session(self) -> Session:
        """The judge, once it has started.

        Raises:
            UsageError: it cannot judge what the options ask.
            RefereeFailed: its processes do not start.
        """
        return self._opened(0).result()

    def tasks(self, pattern: str = "") -> list[AskedTask]:
        """The tasks, or those whose name matches a pattern."""
        return [task for name, task in self.session.tasks.items() if not pattern or matches(name, pattern)]

    def statement(self, task: str, *, answer: str) -> str:
        """What is asked of a kernel for a task, and by which rules.

        Args:
            task: a name of :meth:`tasks`.
            answer: how a kernel is handed in.

        Raises:
            UnknownName: there is no such task.
        """
        asked = self._asked(task)
        setting = Setting(
            task=asked, dsl=self._dsl, environment=self.session.environment, facts=self._all_facts().get(task)
        )
        return statement(setting, CONTEXTS, policy=self.options.policy, answer=answer)

    def check(self, task: str, source: str) -> Judged:
        """Whether a kernel is right and honest.

        Args:
            task: a name of :meth:`tasks`.
            source: of a Python file that defines ``<op>__<overload>_kernel_impl``, or ``ModelNew``.

        Raises:
            UnknownName: there is no such task.
            BadInput: the source defines no kernel for the task.
        """
        return self._judge(task, source, timed=False)

    def reproduce(self, task: str, source: str, case: str) -> Verdict:
        """The verdict on one case, on one variant or on a kernel's conduct; for the last two all cases are judged.

        Args:
            task: a name of :meth:`tasks`.
            source: as of :meth:`check`.
            case: its address, as a verdict names it.

        Raises:
            UnknownName: there is no such task.
            BadInput: the source defines no kernel for the task, or has no verdict at this address.
        """
        found: list[Found] = []
        only = case if self.session.has_case(task, case) else None
        self._judge(task, source, timed=False, case=only, told=found.append)
        verdict = next((each for each in found if isinstance(each, Verdict) and each.case == case), None)
        if verdict is None:
            raise BadInput(f"the kernel has no verdict at {case!r}; copy the address from a failure")
        return verdict

    def time(self, task: str, source: str) -> Judged:
        """As :meth:`check`, and how fast the kernel is where it is right.

        Raises:
            UnknownName: there is no such task.
            BadInput: the source defines no kernel for the task, or nothing is timed here.
        """
        if self.options.timing == "off":
            raise BadInput("nothing is timed here; start with --timing quick")
        return self._judge(task, source, timed=True)

    def profile(self, task: str) -> str:
        """What eager mode spends its time on in the largest call of a task, and what the device counts meanwhile.

        Raises:
            UnknownName: there is no such task.
            BadInput: it is a module, of which there is no profile.
        """
        if self._asked(task).op.kind is not TaskKind.OP:
            raise BadInput(f"{task} is no op, and only ops are profiled")
        largest = max(self.session.calls(task), key=_elements)
        found = eager_profiles({task: largest}, self.options.device)
        counted = counters(largest, self.options.device)
        text = f"Eager mode's largest call, by torch's profiler:\n{found[task].text}"
        return text if counted is None else f"{text}\n\nCounted by Nsight Compute:\n{counted}"

    def best(self, task: str) -> Best | None:
        """The fastest kernel that :meth:`submit` accepted, else opsmith's own; None without any.

        Raises:
            UnknownName: there is no such task.
        """
        asked = self._asked(task)
        return self._best.get(task) or _shipped(asked)

    def judge_again(self, task: str, source: str) -> Judged:
        """Judge and time a kernel on other secret values than those of :meth:`check`; for rewards.

        Quicker than a run of its own. These values stay the same as well, so tell whoever writes the kernel nothing of
        what is found but the reward.

        Raises:
            UnknownName: there is no such task.
            BadInput: the source defines no kernel for the task.
        """
        session = self._opened(1).result()
        return self._in_thread(session.judge_kernel, task, self._kernel(task, source), most_s=self._most_s)

    def submit(self, task: str, source: str) -> Submitted:
        """Have a kernel judged on fresh secret values, in a run of its own.

        An accepted kernel goes to the kernel directory ``kernels`` in the folder.

        Raises:
            UnknownName: there is no such task.
            BadInput: the source defines no kernel for the task.
        """
        kernel = self._kernel(task, source)
        return self._in_thread(self._submit, task, source, kernel)

    def _all_facts(self) -> dict[str, OpFacts]:
        with self._reading:
            if self._facts is None:
                self._facts = op_facts([task.name for task in self.tasks() if task.op.kind is TaskKind.OP])
        return self._facts

    def _asked(self, task: str) -> AskedTask:
        self.session.planned(task, None)
        return self.session.tasks[task]

    def _judge(
        self,
        task: str,
        source: str,
        *,
        timed: bool,
        case: str | None = None,
        told: Callable[[Found], None] | None = None,
    ) -> Judged:
        kernel = self._kernel(task, source)
        return self._in_thread(
            self.session.judge_kernel, task, kernel, most_s=self._most_s, case=case, timed=timed, told=told
        )

    def _in_thread(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._threads.submit(function, *args, **kwargs).result()

    def _kernel(self, task: str, source: str) -> Kernel:
        try:
            data = source.encode()
        except UnicodeEncodeError as exc:
            raise BadInput(f"the source is not text in UTF-8: {exc.reason}") from exc
        folder = self._folder / "sources" / digest(data)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "kernel.py", data)
        return self.session.kernel_in(folder / "kernel.py", task)

    def _submit(self, task: str, source: str, kernel: Kernel) -> Submitted:
        assert kernel.root is not None
        run = self._new_run()
        options = msgspec.structs.replace(
            self.options, backend=str(Path(kernel.root) / "kernel.py"), ops=(task,), isolation="kernel"
        )
        found = self._evaluate(options, run).per_op.get(task)
        if found is not None and found.accepted:
            self._keep(task, source, found)
            return Submitted(task=task, accepted=True, summary=found, detail="", run=str(run))
        return Submitted(task=task, accepted=False, summary=found, detail=_why_not(run), run=str(run))

    def _evaluate(self, options: Options, run: Path) -> Summary:
        return evaluate(options, run, jobs=self._jobs, command=("opsmith", "mcp"))

    def _new_run(self) -> Path:
        runs = self._folder / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        with self._writing:
            number = 1 + max((int(each.name) for each in runs.iterdir() if each.name.isdigit()), default=0)
            run = runs / f"{number:04}"
            run.mkdir()
        return run

    def _keep(self, task: str, source: str, found: OpSummary) -> None:
        """Add an accepted kernel to the directory, as the best one if it is."""
        made = Best(
            source=source,
            origin="submitted here",
            speedup_k=found.speedup_k,
            speedup_e=found.speedup_e,
            percent_of_floor=found.percent_of_floor,
        )
        with self._writing:
            before = self._best.get(task)
            if before is not None and before.speedup >= made.speedup:
                return
            self._best[task] = made
            write_atomically(self._folder / "best.json", msgspec.json.format(msgspec.json.encode(self._best)))
            file = self._folder / "kernels" / kernel_file(self._asked(task), 0)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, source.encode())

    def _read_best(self) -> dict[str, Best]:
        file = self._folder / "best.json"
        if not file.exists():
            return {}
        try:
            return msgspec.json.decode(file.read_bytes(), type=dict[str, Best])
        except msgspec.DecodeError as exc:
            raise DamagedRun(f"{file} is damaged: {exc}; use another folder") from exc


def _why_not(run: Path) -> str:
    first = next(iter(telling(RunDirectory(run).verdicts())), None)
    return f"{first.status}: {first.detail}" if first is not None else "not every case ran"


def _shipped(asked: AskedTask) -> Best | None:
    """The kernel for an op that comes with opsmith."""
    kernel = Shipped().kernel_for(Task(name=asked.name, op=asked.op, suite=""))
    if kernel is None or kernel.root is None:
        return None
    file = Path(kernel.root) / kernel.entry.rpartition(":")[0]
    return Best(source=file.read_text(encoding="utf-8"), origin=f"opsmith's own {file.name}, without what it imports")


def _elements(call: CallRecord) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensor_values((*call.args, *call.kwargs.values())))
