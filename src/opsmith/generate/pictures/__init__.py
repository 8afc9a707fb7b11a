"""Pictures of what was measured, for advisors and people: PNG files of 1024 x 768 pixels at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from opsmith.core.case import digest
from opsmith.core.evidence import CallProfile, Evidence
from opsmith.generate.attempt import Attempt
from opsmith.generate.pictures.error_places import ErrorPlaces
from opsmith.generate.pictures.roofline import Roofline, RoofPoint
from opsmith.generate.pictures.source_heat import SourceHeat
from opsmith.generate.pictures.timeline import Timeline

Subject: TypeAlias = Timeline | Roofline | SourceHeat | ErrorPlaces
#: Attempts in one roofline, the best ones of those that were timed.
MOST_ATTEMPTS = 5
#: An author of this name is torch's compiler.
COMPILER = "inductor"


def key_of(subject: Subject) -> str:
    """Names what is drawn: equal subjects are one picture."""
    return digest(msgspec.msgpack.encode(subject))


def pictured(
    task: str,
    eager: CallProfile | None,
    about: Attempt | None,
    attempts: Sequence[Attempt],
    evidence: Evidence | None,
) -> Iterator[Subject]:
    """What can be drawn before an attempt.

    Args:
        task: its name.
        eager: profile of eager's largest call.
        about: the attempt that is to be improved; None before the first one.
        attempts: all of the task.
        evidence: what was found by looking at the kernel of ``about``.
    """
    if about is None and eager is not None and eager.spans:
        yield Timeline(title=f"{task}: eager PyTorch", profile=eager)
    if (points := tuple(roof_points(attempts, about))) and len({point.by for point in points}) > 1:
        yield Roofline(title=f"{task}: roofline", points=points)
    if about is None or evidence is None:
        return
    name = f"{task}: attempt {about.index + 1}"
    if evidence.profile is not None and evidence.profile.spans:
        yield Timeline(title=name, profile=evidence.profile)
    if evidence.lines is not None and evidence.lines.us:
        yield SourceHeat(title=name, source=about.source or "", lines=evidence.lines)
    if evidence.errors is not None:
        yield ErrorPlaces(title=name, errors=evidence.errors)


def roof_points(attempts: Sequence[Attempt], last: Attempt | None) -> Iterator[RoofPoint]:
    """Eager's points, then the compiler's and those of the best attempts, ``last`` at the end."""
    timed = [attempt for attempt in attempts if attempt.accepted]
    best = sorted(timed, key=lambda attempt: attempt.rank, reverse=True)[:MOST_ATTEMPTS]
    chosen = sorted((a for a in best if a is not last), key=lambda attempt: attempt.index)
    if last is not None and last.accepted:
        chosen.append(last)
    eager: dict[str, RoofPoint] = {}
    own: list[RoofPoint] = []
    for attempt in chosen:
        by = "compiler" if attempt.model == COMPILER else f"attempt {attempt.index + 1}"
        for case, least_us, reference_us, candidate_us in _timed(attempt):
            eager.setdefault(case, RoofPoint(by="PyTorch", least_us=least_us, took_us=reference_us))
            own.append(RoofPoint(by=by, least_us=least_us, took_us=candidate_us))
    yield from eager.values()
    yield from own


def _timed(attempt: Attempt) -> Iterator[tuple[str, float, float, float]]:
    """Case, bound, eager's and the attempt's time of each, of kernel time where there is one, else of call time."""
    assert attempt.judged is not None
    found = [
        (verdict.case, timing)
        for verdict in attempt.judged.verdicts
        for timing in verdict.timings
        if timing.percent_of_floor
    ]
    quantity = "K" if any(timing.quantity == "K" for _, timing in found) else "E"
    for case, timing in found:
        if timing.quantity == quantity:
            least_us = timing.candidate_us * (timing.percent_of_floor or 0.0) / 100
            yield case, least_us, timing.reference_us, timing.candidate_us
