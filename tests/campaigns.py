"""Campaigns whose judge reads the verdict in the kernel's source: everything but the judging is real."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.backends.file import KernelFile
from opsmith.core.environment import Environment
from opsmith.core.evidence import CallProfile, CompiledKernel, ErrorMap, Evidence, LineTimes, Span
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, Variant, folder_name
from opsmith.core.run import Options, PlannedOp
from opsmith.core.task import Task
from opsmith.core.timing import Label, Timing
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import BadInput, UnknownName
from opsmith.generate.attempt import Attempt
from opsmith.generate.background import Background
from opsmith.generate.budget import Budget, Prices
from opsmith.generate.campaign import Campaign, CampaignOptions, TaskHistory
from opsmith.generate.chat import ChatModel, TaskAuthor
from opsmith.generate.held_out import LastJudged, candidates
from opsmith.generate.journal import HeldOut, Journal
from opsmith.generate.providers import author
from opsmith.report.scores import summarise_op
from opsmith.session import AskedTask, Judged, Watch

_SPEED = re.compile(r"speed=([\d.]+)")
_FLOOR = re.compile(r"floor=([\d.]+)")


def task(name: str) -> AskedTask:
    """A task that takes one tensor."""
    schema = f"aten::{name.partition('.')[0]}(Tensor self) -> Tensor"
    op = OpSchema(name=name, schema=schema, variant=Variant.FUNCTIONAL)
    return AskedTask(name=name, op=op, cases=1, examples=("(T([2], f32)), {}",), dtypes=("f32",))


def reply(op: str, comment: str) -> str:
    """What a model says whose kernel is worth what the comment tells the judge."""
    return f"Sure.\n```python\ndef {folder_name(op)}_kernel_impl(self):\n    return self  # {comment}\n```\n"


class ReadingSession:
    """Stands in for :class:`opsmith.session.Session`: ``right``, ``speed=2``, ``compose``, ``cheat`` are verdicts.

    Attributes:
        judged: sources, in the order in which they were judged.
        looked: hashes of kernels that were looked at.
    """

    def __init__(self, tasks: Sequence[str], *, timing: str = "off") -> None:
        self.tasks = {name: task(name) for name in tasks}
        self.options = Options(suite="opinfo", backend="x", device="cpu", dtypes=("f32",), timing=timing)
        self.environment = Environment(
            opsmith="0", python="3", torch="2", triton=None, platform="x", cpu="x", cpu_count=1, memory_gib=1.0,
            device="cpu", device_name="cpu",
        )  # fmt: skip
        self.judged: list[str] = []
        self.looked: list[str] = []

    def judge(self, task: str, source: Path) -> Judged:
        """As the session's own."""
        if task not in self.tasks:
            raise UnknownName("task", task, self.tasks)
        kernel = KernelFile(source).kernel_for(Task(name=task, op=self.tasks[task].op, suite="opinfo"))
        if kernel is None:
            raise BadInput(f"{source} defines no kernel for {task}")
        return self.judge_kernel(task, kernel, most_s=1.0)

    def judge_kernel(
        self, task: str, kernel: Kernel, *, most_s: float, told: Any = None, watch: Watch | None = None
    ) -> Judged:
        """The verdict that the source asks for."""
        assert most_s > 0
        assert kernel.root is not None
        source = (Path(kernel.root) / kernel.entry.partition(":")[0]).read_text()
        self.judged.append(source)
        words = {"cheat": Status.DISHONEST, "compose": Status.POLICY, "right": Status.PASSED}
        status = next((status for word, status in words.items() if word in source), Status.WRONG_VALUE)
        verdict = Verdict(
            op=task, case="c", content_hash="0", dtype="f32", kernel="k", status=status, detail=f"{status} it is",
            timings=_timings(source) if status is Status.PASSED else (), inputs="(T([2], f32)), {}",
        )  # fmt: skip
        planned = PlannedOp(op=task, schema="", cases=1, error_cases=0, kernel=kernel, kernel_hash="k")
        return Judged(
            task=task,
            kernel_hash=kernel.content_hash,
            dsl="torch",
            summary=summarise_op(planned, [verdict]),
            verdicts=(verdict,),
            device_s=0.25,
        )

    def look(self, task: str, kernel: Kernel, judged: Judged, *, most_s: float, watch: Watch | None = None) -> Evidence:
        """What a look at a kernel finds: a profile of a right one, a map of a wrong one."""
        self.looked.append(kernel.content_hash)
        if judged.accepted:
            profile = CallProfile(inputs="x", device="cpu", spans=(Span("aten::one", 0.0, 7.5), Span("two", 9.5, 2.5)))
            lines = LineTimes(file="kernel.py", us={2: 9.0})
            compiled = CompiledKernel(name="k", registers=255, spills=64, shared_bytes=0, warps=4)
            return Evidence(profile=profile, lines=lines, compiled=(compiled,))
        if judged.summary.dishonest:
            return Evidence()
        wrong = (0.0,) * 15 + (1.0,)
        errors = ErrorMap(
            inputs="x", result=0, shape=(4, 64), rows=2, columns=8, row_step=2, column_step=8, wrong=wrong, worst=None
        )
        return Evidence(errors=errors)


def _timings(source: str) -> tuple[Timing, ...]:
    speed, floor = _SPEED.search(source), _FLOOR.search(source)
    if speed is None:
        return ()
    ratio = float(speed[1])
    return (
        Timing(
            reference_us=10 * ratio, candidate_us=10.0, speedup=ratio, low=ratio, high=ratio, confidence=0.99, blocks=3,
            calls_per_block=1, quantity="K", label=Label.FASTER, noise=0.0,
            percent_of_floor=float(floor[1]) if floor else None,
        ),
    )  # fmt: skip


def campaign_options(**changes: Any) -> CampaignOptions:
    """Options of a small campaign."""
    fields: dict[str, Any] = {
        "judging": Options(suite="opinfo", backend="x", device="cpu", dtypes=("f32",)),
        "models": ("openai:m",),
        "strategy": "refine",
        "attempts": 3,
        "dsl": "torch",
        "contexts": ("cases", "failures", "profile"),
        "references": None,
        "temperature": None,
        "max_tokens": 200,
        "budget": Budget(),
        "most_judging_s": 5.0,
    }
    return CampaignOptions(**(fields | changes))


def run_campaign(
    out: Path,
    options: CampaignOptions,
    models: Sequence[ChatModel | TaskAuthor],
    session: ReadingSession,
    *,
    prices: Prices | None = None,
    offline: bool = False,
    exchanges_at_a_time: int = 4,
    open_journal: Callable[[Path], Journal] = Journal,
    advisor: ChatModel | None = None,
    background: Mapping[str, Background] | None = None,
) -> list[TaskHistory]:
    """Run a campaign, or take it up again, and close its journal."""
    out.mkdir(exist_ok=True)
    journal = open_journal(out / "journal.sqlite")
    try:
        journal.open_campaign(options.identity, seed=1)
        campaign = Campaign(
            options,
            models,
            session,  # type: ignore[arg-type]
            journal,
            prices=prices or Prices(),
            facts={},
            background=background or {},
            out=out,
            told=_nobody,
            advisor=advisor,
            offline=offline,
        )
        return campaign.run(tasks_at_a_time=4, exchanges_at_a_time=exchanges_at_a_time)
    finally:
        journal.close()


def judged_last(
    histories: Sequence[TaskHistory], journal: Journal, refused: Collection[str], *, low: float | None = None
) -> dict[str, LastJudged]:
    """What the last judging finds that refuses kernels by their comments, round by round as the real one.

    Args:
        histories: of the campaign.
        journal: of it.
        refused: comments.
        low: lower end of every interval; None for the speedup itself.
    """
    last: dict[str, LastJudged] = {}
    for history in histories:
        no: frozenset[str] = frozenset()
        for attempt in candidates(history.attempts):
            assert attempt.judged is not None
            assert attempt.source is not None
            ok = not any(f"# {comment}\n" in attempt.source for comment in refused)
            no = no if ok else no | {attempt.judged.kernel_hash}
            found = HeldOut(
                round="r", accepted=ok, summary=attempt.judged.summary, low=low or attempt.judged.speedup,
                reason=None if ok else "WRONG_VALUE: later",
            )  # fmt: skip
            journal.keep_held_out(history.task, attempt.judged.kernel_hash, found)
            last[history.task] = LastJudged(attempt=attempt, found=found, refused=no)
            if ok:
                break
    return last


def _nobody(_attempt: Attempt, _task: AskedTask) -> None:
    """Nobody watches."""


def run_by_http(out: str, tasks: Sequence[str], url: str) -> None:
    """Run a campaign with the server at ``url``, to the end of this process."""
    os.environ["OPENAI_BASE_URL"] = url
    options = campaign_options(attempts=4)
    run_campaign(Path(out), options, [author(name) for name in options.models], ReadingSession(tasks))
