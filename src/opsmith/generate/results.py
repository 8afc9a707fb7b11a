"""What a campaign leaves: the kernels that were accepted, their run on values nobody has seen, and the figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from opsmith.backends.manifest import FORMAT, KernelEntry, Manifest
from opsmith.core.kernel import Provenance
from opsmith.core.op import version_file
from opsmith.core.run import write_atomically
from opsmith.core.verdict import Part, Status
from opsmith.generate.advisor.figures import AdvisorFigures, advisor_figures
from opsmith.generate.attempt import Attempt, Outcome, unjudged
from opsmith.generate.campaign import CampaignOptions, TaskHistory
from opsmith.generate.curves import AuthorFigures, SpendPoint, author_figures, kept, right, spending
from opsmith.generate.feedback import telling
from opsmith.generate.held_out import LastJudged
from opsmith.generate.journal import Exchange, Journal, Spent
from opsmith.report.strangers import one_line
from opsmith.reviews.book import ReviewBook
from opsmith.session import AskedTask

#: The outcome of an attempt that was accepted, and refused when it was judged once more on other values.
REFUSED_LAST = "refused in run/"


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one task.

    Attributes:
        accepted: a kernel was right on all cases, and again on those that it was not chosen by: it is in ``kernels/``.
        attempts: that were made.
        first_accepted: index of the first that was right and not refused when it was judged last, or None.
        model: who wrote the kernel in ``kernels/``, or None.
        file: of it, in the campaign's directory.
        speedup_k: of it, of kernel time; None where that was not timed.
        speedup_e: the same of call time.
        percent_of_floor: of it.
        stopped: why the task was not pursued to the end of the strategy, or None.
        not_judged: why it has a kernel that was not judged, or None.
        reason: why it has no kernel, in one line; None of one that has.
    """

    accepted: bool
    attempts: int
    first_accepted: int | None
    model: str | None
    file: str | None
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None
    stopped: str | None
    not_judged: str | None = None
    reason: str | None = None


class CampaignSummary(msgspec.Struct, frozen=True, kw_only=True):
    """``summary.json`` of a campaign.

    Attributes:
        options: of the campaign.
        tasks: task -> what became of it.
        accepted: number of tasks with a kernel.
        attempts: outcome -> number; of those that were judged, ``accepted``, :data:`REFUSED_LAST` or the status that
            most cases had.
        by_model: model -> its figures; ``all`` for all together.
        spent: money, tokens, seconds.
        overruns: what took more than it may, each in one line.
        spending: after each exchange, in the order in which they were asked.
        void: task -> why it asks nothing; no model is asked for it, and it is in no figure.
        advisor: what it said and what became of that; None without one.
        replayed: of a replay how many kernels were ``judged`` again, and how many of them ``differ`` in a status.
    """

    options: CampaignOptions
    tasks: dict[str, TaskResult]
    accepted: int
    attempts: dict[str, int]
    by_model: dict[str, AuthorFigures]
    spent: Spent
    spending: tuple[SpendPoint, ...]
    replayed: dict[str, int] | None = None
    overruns: tuple[str, ...] = ()
    void: dict[str, str] = {}
    advisor: AdvisorFigures | None = None


def write_kernels(folder: Path, out: Path, tasks: Mapping[str, AskedTask], last: Mapping[str, LastJudged]) -> list[str]:
    """Write the kernels that the last judging accepted as a kernel directory, with their provenance.

    Args:
        folder: made anew.
        out: the campaign's directory, which attempts lie in.
        tasks: of the session.
        last: what the last judging found.

    Returns:
        the tasks that have a kernel.
    """
    chosen = {task: judged.attempt for task, judged in last.items() if judged.found.accepted}
    write_directory(folder, out, tasks, chosen)
    return list(chosen)


def write_unjudged(
    folder: Path, out: Path, tasks: Mapping[str, AskedTask], histories: Iterable[TaskHistory]
) -> list[str]:
    """Write the last kernel of each task that cannot be judged here, as :func:`write_kernels` does; no folder without.

    Returns:
        the tasks that have one.
    """
    lasts = {history.task: unjudged(history.attempts) for history in histories}
    chosen = {name: last for name, last in lasts.items() if last is not None}
    if chosen:
        write_directory(folder, out, tasks, chosen)
    return list(chosen)


def write_directory(folder: Path, out: Path, tasks: Mapping[str, AskedTask], chosen: Mapping[str, Attempt]) -> None:
    """Write the kernels of attempts as a kernel directory, with their provenance; see :func:`write_kernels`.

    The folder is there whole, or as it was before.
    """
    staging = folder.with_name(f".{folder.name}.new")
    reviews = ReviewBook(folder).reviews()
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    entries: dict[str, KernelEntry] = {}
    for name, attempt in chosen.items():
        assert attempt.file is not None
        task = tasks[name]
        target = staging / kernel_file(task, attempt.index)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / attempt.file, target)
        if not task.op.kind.of_problems:
            provenance = Provenance(model=attempt.model, prompt_hash=attempt.exchange, attempt=attempt.index)
            entries[name] = KernelEntry(best=attempt.index + 1, provenance=provenance)
    if entries:
        manifest = msgspec.json.format(msgspec.json.encode(Manifest(format=FORMAT, kernels=entries)))
        write_atomically(staging / "manifest.json", manifest)
    if reviews:
        ReviewBook(staging).append(reviews)
    shutil.rmtree(folder, ignore_errors=True)
    staging.rename(folder)


def kernel_file(task: AskedTask, index: int) -> Path:
    """The place of a task's kernel in a directory of them."""
    if task.op.kind.of_problems:
        return Path(f"{task.name}.py")
    return Path(version_file(task.name, index + 1))


def summarise_campaign(
    options: CampaignOptions,
    histories: Sequence[TaskHistory],
    last: Mapping[str, LastJudged],
    journal: Journal,
    *,
    void: Mapping[str, str] | None = None,
) -> CampaignSummary:
    """The figures of a campaign.

    Args:
        options: of the campaign.
        histories: of its tasks.
        last: what the judging of the chosen kernels on values that chose none of them found.
        journal: of the campaign.
        void: tasks that ask nothing, with the reason.
    """
    exchanges = journal.exchanges()
    tasks = {history.task: _result(history, last) for history in histories}
    outcomes: dict[str, int] = {}
    for history in histories:
        for kind in attempt_kinds(history, last):
            outcomes[kind] = outcomes.get(kind, 0) + 1
    return CampaignSummary(
        options=options,
        tasks=tasks,
        accepted=sum(task.accepted for task in tasks.values()),
        attempts=dict(sorted(outcomes.items(), key=lambda pair: (-pair[1], pair[0]))),
        by_model={"all": author_figures(histories, last, None)}
        | {model: author_figures(histories, last, model) for model in options.models},
        spent=journal.spent,
        spending=spending(histories, last, exchanges),
        overruns=tuple(_overruns(options, journal.spent, exchanges, journal.judging_overruns())),
        void=dict(void or {}),
        advisor=None if options.advisor is None else advisor_figures(histories, journal, options.advisor.model),
    )


def _result(history: TaskHistory, last: Mapping[str, LastJudged]) -> TaskResult:
    works, winner = right(history, last), kept(history, last)
    judged = last.get(history.task)
    run = judged.found.summary if judged is not None else None
    written = unjudged(history.attempts)
    return TaskResult(
        accepted=winner is not None,
        attempts=len(history.attempts),
        first_accepted=works[0].index if works else None,
        model=winner.attempt.model if winner else None,
        file=winner.attempt.file if winner else None,
        speedup_k=run.speedup_k if run and winner else None,
        speedup_e=run.speedup_e if run and winner else None,
        percent_of_floor=run.percent_of_floor if run and winner else None,
        stopped=history.stopped,
        not_judged=written.problem if written is not None else None,
        reason=None if winner is not None else _why_none(history, judged),
    )


def _why_none(history: TaskHistory, judged: LastJudged | None) -> str:
    """Why a task has no kernel: what ended it, or else what the last attempt that says something came to."""
    if judged is not None:
        return one_line(f"right at first, refused when judged again: {judged.found.reason}")
    if history.stopped is not None:
        return one_line(f"stopped: {history.stopped}")
    if not history.attempts:
        return "nothing was asked"
    [*_, attempt] = sorted(history.attempts, key=lambda each: (each.judged is not None, each.index))
    if attempt.judged is None:
        return one_line(attempt.problem or attempt.outcome)
    first = next(iter(telling(attempt.judged.verdicts)), None)
    return one_line(f"{first.status}: {first.detail}") if first is not None else attempt_kind(attempt)


def _overruns(
    options: CampaignOptions, spent: Spent, exchanges: Iterable[Exchange], judgings: Iterable[tuple[str, float, float]]
) -> Iterator[str]:
    """What took more than it was reserved, and which limits were exceeded by that."""
    for name, value, limit in spent.exceeds(options.budget):
        cut_off = f", {spent.lost_device_s:.1f} of them by kills" if name == "device_s" and spent.lost_device_s else ""
        yield f"{name}: {value:.6g} of {limit:.6g} are spent{cut_off}, more than the budget"
    for exchange in exchanges:
        if exchange.overran:
            yield one_line(
                f"{exchange.request.model} says that an exchange took {exchange.tokens:,} tokens, where "
                f"{exchange.most.tokens:,} were the most"
            )
    for task, took_s, most_s in judgings:
        yield one_line(f"judging a kernel for {task} took {took_s:.1f} s, where {most_s:g} s were the most")


def attempt_kinds(history: TaskHistory, last: Mapping[str, LastJudged]) -> list[str]:
    """:func:`attempt_kind` of a task's attempts, with :data:`REFUSED_LAST` for those that were refused last."""
    works = {attempt.index for attempt in right(history, last)}
    return [
        REFUSED_LAST if attempt.accepted and attempt.index not in works else attempt_kind(attempt)
        for attempt in history.attempts
    ]


def attempt_kind(attempt: Attempt) -> str:
    """``accepted``, the outcome of what was not judged, or the status that most cases had."""
    if attempt.outcome is not Outcome.JUDGED or attempt.judged is None:
        return attempt.outcome.value
    summary = attempt.judged.summary
    if summary.accepted:
        return "accepted"
    if summary.dishonest:
        return Status.DISHONEST
    wrong = {status: number for status, number in summary.statuses.items() if status != "PASSED"}
    if wrong:
        return max(wrong, key=lambda status: wrong[status])
    if any(verdict.part is Part.CONDUCT and verdict.status is Status.TIMEOUT for verdict in attempt.judged.verdicts):
        return Status.TIMEOUT
    return Status.POLICY if summary.policy else "wrong on variants"
