"""The last judging of a campaign: the best kernel of each task once more, on values that chose none of them.

A kernel that is refused there makes way for the next best one of its task, which is judged on those values too, until
one is accepted or none is left. What was found stands in the journal; the runs themselves lie in ``judged/held-out``,
one for each round, so that a kill costs the round that was under way. ``run/`` is put together from them: of each task
the run of the kernel that was judged last.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from opsmith.core.case import digest
from opsmith.core.run import OpSummary, Options, RunDirectory, Summary
from opsmith.errors import BadInput
from opsmith.generate.attempt import Attempt
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.journal import HeldOut, Journal
from opsmith.report.conventions import geometric_mean
from opsmith.report.publish import publish

ROUNDS = Path("judged") / "held-out"
RUN = "run"
_BY_TASK = ("verdicts.jsonl", "timings.jsonl", "visits.jsonl")


class Evaluate(Protocol):
    """Judges a kernel directory into a run directory: :func:`opsmith.pipeline.evaluate` with a campaign's seed."""

    def __call__(self, options: Options, out: Path, *, resume: bool) -> Summary: ...


#: Writes the kernels of some attempts as a kernel directory: folder, task -> attempt.
WriteDirectory = Callable[[Path, Mapping[str, Attempt]], None]


class LastJudged(msgspec.Struct, frozen=True, kw_only=True):
    """What the last judging found about a task.

    Attributes:
        attempt: whose kernel was judged last.
        found: about it.
        refused: kernels of the task that were refused, by the hash that their judgements have.
    """

    attempt: Attempt
    found: HeldOut
    refused: frozenset[str]


class _Line(msgspec.Struct):
    op: str


_LINE = msgspec.json.Decoder(_Line)


def judge_again(
    options: Options,
    out: Path,
    histories: Iterable[TaskHistory],
    journal: Journal,
    *,
    evaluate: Evaluate,
    write_directory: WriteDirectory,
) -> dict[str, LastJudged]:
    """Judge the best kernel of each task again, and the next best one where it is refused.

    Args:
        options: how strictly; those of the campaign.
        out: the campaign's directory; ``run/`` in it is made anew.
        histories: of the tasks.
        journal: of the campaign; what it holds is not judged again as long as its run is there.
        evaluate: judges a kernel directory.
        write_directory: makes one.

    Returns:
        task -> what was found last; tasks without an accepted attempt are not in it.
    """
    left = {history.task: ranked for history in histories if (ranked := candidates(history.attempts))}
    last: dict[str, LastJudged] = {}
    while left:
        chosen = {task: attempts.pop(0) for task, attempts in left.items()}
        unknown = {task: attempt for task, attempt in chosen.items() if _known(journal, out, task, attempt) is None}
        if unknown:
            _judge_round(options, out, unknown, journal, evaluate, write_directory)
        for task, attempt in chosen.items():
            found = _known(journal, out, task, attempt)
            assert found is not None, "a round tells of each of its kernels"
            before = last[task].refused if task in last else frozenset[str]()
            refused = before if found.accepted else before | {_kernel_of(attempt)}
            last[task] = LastJudged(attempt=attempt, found=found, refused=refused)
        left = {task: attempts for task, attempts in left.items() if attempts and not last[task].found.accepted}
    _publish(out, last)
    return last


def candidates(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The accepted attempts, the best first, each kernel once."""
    accepted = sorted((a for a in attempts if a.accepted), key=lambda attempt: attempt.rank, reverse=True)
    distinct: dict[str, Attempt] = {}
    for attempt in accepted:
        distinct.setdefault(_kernel_of(attempt), attempt)
    return list(distinct.values())


def _kernel_of(attempt: Attempt) -> str:
    assert attempt.judged is not None
    return attempt.judged.kernel_hash


def _known(journal: Journal, out: Path, task: str, attempt: Attempt) -> HeldOut | None:
    found = journal.held_out(task, _kernel_of(attempt))
    return found if found is not None and _is_finished(out / ROUNDS / found.round / RUN) else None


def _is_finished(run: Path) -> bool:
    try:
        return RunDirectory.open(run).manifest().finished_utc is not None and (run / "summary.json").is_file()
    except BadInput:
        return False


def _judge_round(
    options: Options,
    out: Path,
    chosen: Mapping[str, Attempt],
    journal: Journal,
    evaluate: Evaluate,
    write_directory: WriteDirectory,
) -> None:
    name = digest(repr(sorted((task, _kernel_of(attempt)) for task, attempt in chosen.items())).encode())
    folder = out / ROUNDS / name
    kernels, run = folder / "kernels", folder / RUN
    judging = msgspec.structs.replace(options, backend=str(kernels), ops=tuple(chosen), isolation="kernel")
    write_directory(kernels, chosen)
    began = time.monotonic()
    summary = _evaluated(judging, run, evaluate)
    took_s = (time.monotonic() - began) / len(chosen)
    speeds = _lowest_speedups(RunDirectory(run))
    for task, attempt in chosen.items():
        found = summary.per_op.get(task)
        low = speeds.get(task, {})
        assert found is not None or task in summary.void, "a run tells of each op that it was asked"
        journal.keep_held_out(
            task,
            _kernel_of(attempt),
            HeldOut(
                round=name,
                accepted=found is not None and found.accepted,
                summary=found,
                low=low.get("K", low.get("E")),
                reason=None if found is not None and found.accepted else _why_refused(RunDirectory(run), task, found),
                took_s=took_s,
            ),
        )


def _evaluated(judging: Options, run: Path, evaluate: Evaluate) -> Summary:
    """Judge, or go on where a kill left it; what cannot be gone on with is judged from its beginning."""
    if _is_finished(run):
        return RunDirectory(run).summary()
    if (run / "run.json").is_file():
        try:
            return evaluate(judging, run, resume=True)
        except BadInput:
            pass  # Damaged, or made where the campaign lay before it was moved.
    shutil.rmtree(run, ignore_errors=True)
    return evaluate(judging, run, resume=False)


def _why_refused(run: RunDirectory, task: str, found: OpSummary | None) -> str:
    against = (verdict for verdict in run.verdicts() if verdict.op == task and verdict.counts_against)
    first = next(against, None)
    if first is not None:
        return f"{first.status}: {first.detail}"
    return "not every case ran" if found is not None else "the task asks nothing"


def _lowest_speedups(run: RunDirectory) -> dict[str, dict[str, float]]:
    """Task -> quantity -> geometric mean of the lower ends of the intervals of its timed cases."""
    lows: dict[str, dict[str, list[float]]] = {}
    for timed in run.timed_cases():
        for timing in timed.timings:
            lows.setdefault(timed.op, {}).setdefault(timing.quantity, []).append(timing.low)
    return {
        task: {quantity: geometric_mean(values) for quantity, values in by_quantity.items()}
        for task, by_quantity in lows.items()
    }


def _publish(out: Path, last: Mapping[str, LastJudged]) -> None:
    """Make ``run/`` anew from the runs of the rounds; none where nothing was judged."""
    target, staging = out / RUN, out / ".run.new"
    shutil.rmtree(staging, ignore_errors=True)
    rounds = {task: out / ROUNDS / judged.found.round / RUN for task, judged in last.items()}
    folders = list(dict.fromkeys(rounds.values()))
    if folders:
        shutil.copytree(folders[0], staging)
        for other in folders[1:]:
            shutil.copytree(other / "kernels", staging / "kernels", dirs_exist_ok=True)
        merged = RunDirectory(staging)
        plans = {folder: RunDirectory(folder).plan() for folder in folders}
        ops = [op for folder in folders for op in plans[folder].ops if rounds.get(op.op) == folder]
        ops.sort(key=lambda op: op.op)
        merged.write("plan.json", msgspec.structs.replace(plans[folders[0]], ops=tuple(ops)))
        for name in _BY_TASK:
            lines = b"".join(_lines_of(folder / name, rounds, folder) for folder in folders)
            if lines or (staging / name).exists():
                (staging / name).write_bytes(lines)
        manifest = merged.manifest()
        judging = msgspec.structs.replace(manifest.options, backend=str(out / "kernels"), ops=tuple(sorted(rounds)))
        merged.write("run.json", msgspec.structs.replace(manifest, options=judging))
        publish(merged)
    shutil.rmtree(target, ignore_errors=True)
    if folders:
        staging.rename(target)


def _lines_of(file: Path, rounds: Mapping[str, Path], folder: Path) -> bytes:
    """The lines of a round's file about the tasks whose last round it is."""
    if not file.exists():
        return b""
    lines = file.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if rounds.get(_LINE.decode(line).op) == folder)
