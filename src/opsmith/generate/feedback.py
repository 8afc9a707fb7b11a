"""What a model is told about its kernel: the point, in few words.

A compiler's complaint is cut to its errors, a wrong kernel is told its smallest failing case with the values, a right
one how fast it is, how far from what the device can do, and what that suggests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from opsmith.core.call_text import size_in
from opsmith.core.timing import Label, Timing
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.generate.attempt import Attempt, Outcome
from opsmith.session import Judged

MOST_FAILURES = 3
MOST_EVIDENCE_LINES = 25
MOST_TIMED_CASES = 6
#: A kernel under this share of what the device can do leaves something to win.
WORTH_A_HINT_PERCENT = 70.0
#: Launches of one call from which fusing them is worth a hint.
MANY_LAUNCHES = 3
#: A model cannot choose its policy.
_POLICY_ADVICE = (
    "That is no cheating, and not what was asked for either: the policy is not yours to choose. Compute this with your "
    "own kernel code."
)
_COMPILER_ERROR = re.compile(r"\b(error|undefined|cannot|CompilationError|expected)\b", re.IGNORECASE)


def findings(attempt: Attempt, *, profile: bool = True) -> str:
    """What was found about an attempt, as its model reads it.

    Args:
        attempt: the attempt.
        profile: say how fast it is and what the clock suggests.
    """
    judged = attempt.judged
    if judged is None:
        if attempt.outcome is Outcome.NO_CODE:
            return f"There was no kernel in the reply: {attempt.problem}."
        return "There was no reply."
    found = judged_findings(judged, profile=profile)
    return found if attempt.review is None else f"{found}\n\n{attempt.review.text}"


def judged_findings(judged: Judged, *, profile: bool = True) -> str:
    """As :func:`findings`, of a kernel that was judged."""
    if not judged.accepted:
        return "\n\n".join(_failures(judged))
    text = f"The kernel is right: all {judged.summary.cases} cases pass."
    return "\n\n".join([text, *_speed(judged)]) if profile else text


def _failures(judged: Judged) -> Iterator[str]:
    summary = judged.summary
    counts = ", ".join(f"{count} {status}" for status, count in summary.statuses.items())
    varied = {status: number for status, number in summary.variants.items() if status != Status.PASSED}
    others = ", ".join(f"{number} {status}" for status, number in varied.items())
    of_variants = f" Of {sum(summary.variants.values())} variants of them: {others}." if varied else ""
    yield f"The kernel is not accepted. Of {summary.cases} cases: {counts or 'none ran'}.{of_variants}"
    for verdict in telling(judged.verdicts):
        yield failure(verdict)


def telling(verdicts: Iterable[Verdict]) -> Sequence[Verdict]:
    """One failure of each kind, what is dishonest first, each the one with the fewest elements, then bytes."""
    order = {Status.DISHONEST: 0, Status.POLICY: 1, Status.LOAD_FAILED: 2}
    smallest: dict[Status, Verdict] = {}
    for verdict in verdicts:
        if not verdict.is_failure:
            continue
        known = smallest.get(verdict.status)
        if known is None or size_in(verdict.inputs) < size_in(known.inputs):
            smallest[verdict.status] = verdict
    return sorted(smallest.values(), key=lambda verdict: order.get(verdict.status, len(order)))[:MOST_FAILURES]


def failure(verdict: Verdict) -> str:
    """A verdict that says something: what is wrong, with which inputs, the evidence."""
    what = {Part.CASE: "case", Part.VARIANT: "varied case", Part.CONDUCT: "conduct"}[verdict.part]
    lines = [f"{verdict.status} ({what}): {verdict.detail}"]
    if verdict.inputs:
        lines.append(f"inputs: {verdict.inputs}")
    if verdict.status is Status.POLICY:
        lines.append(_POLICY_ADVICE)
    evidence = list(_to_the_point(verdict.evidence))
    if evidence:
        lines += ["```", *evidence, "```"]
    return "\n".join(lines)


def _to_the_point(evidence: Sequence[str]) -> Iterable[str]:
    """The lines of a long output that name errors, with the line that follows each; else its end."""
    lines = [line.rstrip() for text in evidence for line in text.splitlines()]
    if len(lines) <= MOST_EVIDENCE_LINES:
        return lines
    named = {i for i, line in enumerate(lines) if _COMPILER_ERROR.search(line)}
    wanted = sorted(named | {i + 1 for i in named if i + 1 < len(lines)})
    return [lines[i] for i in wanted[:MOST_EVIDENCE_LINES]] if wanted else lines[-MOST_EVIDENCE_LINES:]


def _speed(judged: Judged) -> Iterator[str]:
    timed = [verdict for verdict in judged.verdicts if verdict.timings or verdict.undecided]
    if not timed:
        return
    rows = [row for verdict in timed[:MOST_TIMED_CASES] for row in timing_rows(verdict)]
    yield "\n".join(["Measured against PyTorch (K: kernel time on the device, E: a whole call):", *rows])
    hints = list(_hints([timing for verdict in timed for timing in verdict.timings]))
    if hints:
        yield "\n".join(["What the clock suggests:", *hints])


def timing_rows(verdict: Verdict) -> Iterator[str]:
    """A line for each time of a case, and for each that nothing can be said of."""
    for timing in verdict.timings:
        near = "" if timing.percent_of_floor is None else f", {timing.percent_of_floor:.0f} % of what the device can do"
        yield (
            f"- {timing.quantity} {timing.candidate_us:.1f} us, PyTorch {timing.reference_us:.1f} us: "
            f"{timing.speedup:.2f}x [{timing.low:.2f}, {timing.high:.2f}] {timing.label}{near}; "
            f"inputs {verdict.inputs}"
        )
    for undecided in verdict.undecided:
        yield f"- {undecided.quantity} {Label.UNDECIDED}: {undecided.reason}; inputs {verdict.inputs}"


def _hints(timings: Sequence[Timing]) -> Iterator[str]:
    kernel = [timing for timing in timings if timing.quantity == "K"]
    call = [timing for timing in timings if timing.quantity == "E"]
    far = [t for t in kernel if t.percent_of_floor is not None and t.percent_of_floor < WORTH_A_HINT_PERCENT]
    if far:
        yield (
            "- The device is not busy with the data it has to move: read each element once, in wide coalesced "
            "accesses, write once, and give every multiprocessor enough work."
        )
    if any(t.candidate_nodes is not None and t.candidate_nodes >= MANY_LAUNCHES for t in kernel):
        most = max(t.candidate_nodes or 0 for t in kernel)
        yield f"- One call launches {most:.0f} kernels; fuse them."
    if (
        call
        and kernel
        and all(t.label is not Label.SLOWER for t in kernel)
        and any(t.label is Label.SLOWER for t in call)
    ):
        yield "- The kernel itself is no slower, the call is: do less on the host, and allocate once."
