"""The question to an advisor: the task, the kernel, what was measured of it, and what became of earlier hints."""

from __future__ import annotations

import importlib.resources
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from opsmith.core.evidence import CallProfile, CompiledKernel, ErrorMap, Evidence, LineTimes
from opsmith.generate.advisor.hints import MOST_HINTS, HintFate, fates
from opsmith.generate.attempt import Attempt
from opsmith.generate.chat import Message, Picture, Role
from opsmith.generate.contexts import Setting
from opsmith.generate.feedback import findings
from opsmith.generate.prompt import task_text

_TEMPLATE = importlib.resources.files("opsmith.generate").joinpath("templates", "advisor.md")
#: What an advisor is told of a task, beside what its writers are.
CONTEXTS = ("cases", "hardware", "profiler", "counters")
MOST_ROWS = 8
MOST_EARLIER = 20


def question(
    setting: Setting,
    contexts: Sequence[str],
    subject: Attempt | None,
    attempts: Sequence[Attempt],
    evidence: Evidence | None,
    pictures: Sequence[Picture] = (),
) -> tuple[Message, ...]:
    """What an advisor is asked.

    Args:
        setting: the task and what is known of it.
        contexts: names of what writers are told.
        subject: the attempt that is to be improved; None before the first one.
        attempts: all that were made.
        evidence: what was found by looking at the subject's kernel.
        pictures: that go with the question.
    """
    parts = [task_text(setting, tuple(dict.fromkeys((*contexts, *CONTEXTS))))]
    if subject is None:
        parts.append("Nothing is written yet: your hints are for the first attempt.")
        if setting.background.timeline is not None:
            parts.append(f"Of eager PyTorch, the largest call:\n\n{profile_text(setting.background.timeline)}")
    else:
        parts += _about(subject, evidence)
    parts += list(_earlier(list(fates(attempts))))
    if pictures:
        parts.append("\n".join(f"Picture {n}: {each.caption}" for n, each in enumerate(pictures, start=1)))
    system = _TEMPLATE.read_text().format(most=MOST_HINTS)
    return Message(Role.SYSTEM, system), Message(Role.USER, "\n\n".join(parts))


def _about(subject: Attempt, evidence: Evidence | None) -> Iterator[str]:
    if subject.source is not None:
        yield f"The kernel, attempt {subject.index + 1}:\n\n```python\n{subject.source}```"
    yield findings(subject)
    if evidence is None:
        return
    if evidence.profile is not None:
        yield f"Of its largest call:\n\n{profile_text(evidence.profile)}"
    if evidence.compiled:
        yield "\n".join(["Triton's compiler says:", *map(compiled_text, evidence.compiled)])
    if evidence.lines is not None:
        yield lines_text(evidence.lines, subject.source or "")
    if evidence.errors is not None:
        yield errors_text(evidence.errors)
    if evidence.problem:
        yield f"It could not be looked at further: {evidence.problem}."


def profile_text(profile: CallProfile) -> str:
    """A profile in words: how much of a call is busy, and with what."""
    times: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for span in profile.spans:
        times[span.name] += span.duration_us
        counts[span.name] += 1
    busy, whole = profile.busy_us, profile.whole_us
    on_device = profile.device.startswith("cuda")
    idle = f", {'idle' if on_device else 'outside of them'} for {whole - busy:.1f} us" if whole - busy > 0.05 else ""
    inputs = f" Inputs {profile.inputs}." if profile.inputs else ""
    kind = "kernels" if on_device else "torch ops"
    head = f"{len(profile.spans) + profile.left_out} {kind} in {whole:.1f} us{idle}.{inputs}"
    longest = sorted(times.items(), key=lambda item: -item[1])[:MOST_ROWS]
    rows = [f"- {name[:100]}: {us:.1f} us, {counts[name]} times" for name, us in longest]
    return "\n".join([head, *rows])


def compiled_text(kernel: CompiledKernel) -> str:
    """One line."""
    return (
        f"- {kernel.name}: {kernel.registers} registers a thread, {kernel.spills} bytes of a thread spilled, "
        f"{kernel.shared_bytes} bytes of shared memory, {kernel.warps} warps"
    )


def lines_text(lines: LineTimes, source: str) -> str:
    """The lines that took most of the time."""
    written = source.splitlines()
    whole = sum(lines.us.values()) or 1.0
    top = sorted(lines.us.items(), key=lambda item: -item[1])[:MOST_ROWS]
    rows = [
        f"- line {number}: {us:.1f} us, {100 * us / whole:.0f} %: "
        f"{written[number - 1].strip()[:120] if number <= len(written) else ''}"
        for number, us in top
    ]
    return "\n".join(["Where the time of that call goes, line by line:", *rows])


def errors_text(errors: ErrorMap) -> str:
    """Where a result is wrong, in words: the part of the index space that holds all errors, and how densely."""
    wrong = [place for place, share in enumerate(errors.wrong) if share > 0]
    if not wrong:
        return "No element of the result is off."
    rows = [place // errors.columns for place in wrong]
    columns = [place % errors.columns for place in wrong]
    height, width = _matrix(errors.shape)
    first_row, last_row = _span(min(rows), max(rows), errors.row_step, height)
    first_column, last_column = _span(min(columns), max(columns), errors.column_step, width)
    inside = (max(rows) - min(rows) + 1) * (max(columns) - min(columns) + 1)
    worst = "no finite number" if errors.worst is None else f"{errors.worst:.3g} times what is allowed"
    shape = ", ".join(map(str, errors.shape))
    return (
        f"Where result {errors.result} of shape ({shape}) is off, seen as {height} rows of {width}: rows {first_row} "
        f"to {last_row}, columns {first_column} to {last_column}, in {len(wrong)} of the {inside} cells of "
        f"{errors.row_step} x {errors.column_step} there; the largest error is {worst}. Inputs {errors.inputs}"
    )


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    width = shape[-1] if shape else 1
    height = 1
    for extent in shape[:-1]:
        height *= extent
    return height, width


def _span(first: int, last: int, step: int, extent: int) -> tuple[int, int]:
    """The indices that cells stand for."""
    return first * step, min((last + 1) * step, extent) - 1


def _earlier(given: Sequence[HintFate]) -> Iterator[str]:
    if given:
        rows = [f'- attempt {fate.attempt + 1}: "{fate.hint}": {fate.in_words}' for fate in given[-MOST_EARLIER:]]
        yield "\n".join(["What became of your hints so far:", *rows])
