"""What a campaign leaves: the kernels that were accepted, their run on values nobody has seen, and the figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from opsmith.backends.manifest import FORMAT, KernelEntry, Manifest
from opsmith.core.kernel import Provenance
from opsmith.core.op import TaskKind, version_file
from opsmith.core.run import Summary, write_atomically
from opsmith.core.verdict import Status
from opsmith.generate.attempt import Attempt, Outcome, best, unjudged
from opsmith.generate.campaign import CampaignOptions, TaskHistory
from opsmith.generate.curves import AuthorFigures, SpendPoint, author_figures, spending
from opsmith.generate.journal import Exchange, Spent
from opsmith.session import AskedTask


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one task.

    Attributes:
        accepted: a kernel was right on all cases, and again on those that it was not chosen by.
        attempts: that were made.
        first_accepted: index of the first that was right, or None.
        model: who wrote the best one that was right, or None.
        file: of it, in the campaign's directory.
        speedup_k: of it, of kernel time; None where that was not timed.
        speedup_e: the same of call time.
        percent_of_floor: of it.
        stopped: why the task was not pursued to the end of the strategy, or None.
        not_judged: why it has a kernel that was not judged, or None.
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


class CampaignSummary(msgspec.Struct, frozen=True, kw_only=True):
    """``summary.json`` of a campaign.

    Attributes:
        options: of the campaign.
        tasks: task -> what became of it.
        accepted: number of tasks with a kernel.
        attempts: outcome -> number; of those that were judged, ``accepted`` or the status that most cases had.
        by_model: model -> its figures; ``all`` for all together.
        spent: money, tokens, seconds.
        spending: after each exchange, in the order in which they were asked.
        void: task -> why it asks nothing; no model is asked for it, and it is in no figure.
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
    void: dict[str, str] = {}


def write_kernels(
    folder: Path, out: Path, tasks: Mapping[str, AskedTask], histories: Iterable[TaskHistory]
) -> list[str]:
    """Write the best accepted kernel of each task as a kernel directory, with its provenance.

    Args:
        folder: made anew.
        out: the campaign's directory, which attempts lie in.
        tasks: of the session.
        histories: of the tasks.

    Returns:
        the tasks that have a kernel.
    """
    tops = {history.task: best(history.attempts) for history in histories}
    chosen = {name: top for name, top in tops.items() if top is not None and top.accepted}
    _write_directory(folder, out, tasks, chosen)
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
        _write_directory(folder, out, tasks, chosen)
    return list(chosen)


def _write_directory(folder: Path, out: Path, tasks: Mapping[str, AskedTask], chosen: Mapping[str, Attempt]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    entries: dict[str, KernelEntry] = {}
    for name, attempt in chosen.items():
        assert attempt.file is not None
        task = tasks[name]
        target = folder / kernel_file(task, attempt.index)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / attempt.file, target)
        if task.op.kind is not TaskKind.MODULE:
            provenance = Provenance(model=attempt.model, prompt_hash=attempt.exchange, attempt=attempt.index)
            entries[name] = KernelEntry(best=attempt.index + 1, provenance=provenance)
    if entries:
        manifest = msgspec.json.format(msgspec.json.encode(Manifest(format=FORMAT, kernels=entries)))
        write_atomically(folder / "manifest.json", manifest)


def kernel_file(task: AskedTask, index: int) -> Path:
    """The place of a task's kernel in a directory of them."""
    if task.op.kind is TaskKind.MODULE:
        return Path(f"{task.name}.py")
    return Path(version_file(task.name, index + 1))


def summarise_campaign(
    options: CampaignOptions,
    histories: Sequence[TaskHistory],
    held_out: Summary | None,
    *,
    spent: Spent,
    exchanges: Iterable[Exchange],
    void: Mapping[str, str] | None = None,
) -> CampaignSummary:
    """The figures of a campaign.

    Args:
        options: of the campaign.
        histories: of its tasks.
        held_out: the run of the chosen kernels on values that chose none of them; None where there was no kernel.
        spent: by the campaign.
        exchanges: of its journal.
        void: tasks that ask nothing, with the reason.
    """
    tasks = {history.task: _result(history, held_out) for history in histories}
    attempts = [attempt for history in histories for attempt in history.attempts]
    outcomes: dict[str, int] = {}
    for kind in map(attempt_kind, attempts):
        outcomes[kind] = outcomes.get(kind, 0) + 1
    return CampaignSummary(
        options=options,
        tasks=tasks,
        accepted=sum(task.accepted for task in tasks.values()),
        attempts=dict(sorted(outcomes.items(), key=lambda pair: (-pair[1], pair[0]))),
        by_model={"all": author_figures(histories, None)}
        | {model: author_figures(histories, model) for model in options.models},
        spent=spent,
        spending=spending(histories, exchanges),
        void=dict(void or {}),
    )


def _result(history: TaskHistory, held_out: Summary | None) -> TaskResult:
    top = best(history.attempts)
    right = [attempt.index for attempt in history.attempts if attempt.accepted]
    chosen = top if top is not None and top.accepted else None
    run = held_out.per_op.get(history.task) if held_out is not None else None
    written = unjudged(history.attempts)
    return TaskResult(
        accepted=chosen is not None and run is not None and run.accepted,
        attempts=len(history.attempts),
        first_accepted=right[0] if right else None,
        model=chosen.model if chosen else None,
        file=chosen.file if chosen else None,
        speedup_k=run.speedup_k if run else None,
        speedup_e=run.speedup_e if run else None,
        percent_of_floor=run.percent_of_floor if run else None,
        stopped=history.stopped,
        not_judged=written.problem if written is not None else None,
    )


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
    return Status.POLICY if summary.policy else "wrong on variants"
