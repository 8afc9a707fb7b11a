"""The page of a campaign: one HTML file with its plots and tables."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from opsmith.core.case import digest
from opsmith.core.verdict import Status
from opsmith.generate.advisor.figures import Shown
from opsmith.generate.advisor.hints import HintFate, Result, Taken
from opsmith.generate.chat import Picture
from opsmith.generate.curves import AuthorFigures
from opsmith.generate.results import CampaignSummary, TaskResult
from opsmith.report.conventions import THRESHOLDS
from opsmith.report.page_parts import packed, packed_plotly, templates
from opsmith.report.strangers import one_line

#: How results of hints are marked.
_MARKS = {Result.FASTER: "right", Result.WRONG: "wrong", Result.SLOWER: "wrong"}


def campaign_page(
    summary: CampaignSummary,
    kinds: Mapping[str, Sequence[str]],
    seen: Mapping[str, Sequence[Shown]] | None = None,
    pictures: Mapping[str, Sequence[Picture]] | None = None,
) -> str:
    """The page as text. Equal campaigns give equal pages.

    Args:
        summary: of the campaign.
        kinds: task -> what became of its attempts, in their order (:func:`~opsmith.generate.results.attempt_kinds`).
        seen: task -> what an advisor was shown and said.
        pictures: task -> what was measured of its attempts.
    """
    payload = msgspec.json.encode(_payload(summary))
    options = summary.options
    outcomes = {task: _in_order(found) for task, found in kinds.items()}
    authors = options.models[0] if len(options.models) == 1 else f"{len(options.models)} models"
    return (
        templates()
        .get_template("campaign.html.j2")
        .render(
            title=one_line(f"{options.strategy} of {authors} on {options.judging.suite}"),
            where=one_line(f"{options.judging.device} · {', '.join(options.judging.dtypes)} · {options.dsl}"),
            tiles=list(_tiles(summary)),
            priced=_is_priced(summary),
            models=[(one_line(name), figures) for name, figures in summary.by_model.items()],
            thresholds=[f"{p:g}" for p in THRESHOLDS],
            tasks=[(one_line(name), _shown(task), outcomes[name]) for name, task in summary.tasks.items()],
            advice=[(one_line(task), list(map(_advice, shown))) for task, shown in (seen or {}).items()],
            pictures=[(one_line(task), list(map(_figure, own))) for task, own in (pictures or {}).items()],
            facts=list(_facts(summary)),
            nonce=digest(payload),
            payload=packed(payload),
            plotly=packed_plotly(),
        )
    )


def _mark(fate: HintFate) -> str:
    return "" if fate.taken is Taken.NO else _MARKS.get(fate.result, "")


def _advice(shown: Shown) -> dict[str, Any]:
    return {
        "attempt": shown.attempt + 1,
        "blind": shown.blind,
        "hints": [(one_line(fate.hint), fate.in_words, _mark(fate)) for fate in shown.fates],
        "pictures": list(map(_figure, shown.pictures)),
    }


def _figure(picture: Picture) -> tuple[str, str]:
    return one_line(picture.caption), f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"


def _shown(task: TaskResult) -> TaskResult:
    return msgspec.structs.replace(task, model=None if task.model is None else one_line(task.model))


def _in_order(kinds: Iterable[str]) -> str:
    """``ERROR, 3 WRONG_VALUE, accepted``."""
    runs = [(kind, len(list(run))) for kind, run in itertools.groupby(kinds)]
    return ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in runs)


def _tiles(summary: CampaignSummary) -> Iterator[tuple[str, str, str]]:
    tasks, spent = len(summary.tasks), summary.spent
    yield "Tasks solved", f"{summary.accepted:,}", f"of {tasks:,}, right again on values that chose no kernel"
    attempts = sum(summary.attempts.values())
    yield "Attempts", f"{attempts:,}", f"{summary.attempts.get('accepted', 0):,} of them right"
    if composed := summary.attempts.get(Status.POLICY, 0):
        yield "Against the policy", f"{composed:,}", "attempts that compose, in the open, what it does not allow"
    cheats = summary.attempts.get(Status.DISHONEST, 0)
    yield "Dishonest", f"{cheats:,}", "attempts that were caught"
    yield "Tokens", f"{spent.tokens:,}", f"${spent.usd:,.2f}" if _is_priced(summary) else "no price is known"
    yield "Judging", f"{spent.device_s:,.0f} s", "of the device"


def _is_priced(summary: CampaignSummary) -> bool:
    return summary.spent.usd > 0


def _facts(summary: CampaignSummary) -> Iterator[tuple[str, str]]:
    options = summary.options
    for task, reason in summary.void.items():
        yield "Void, not asked", one_line(f"{task}: {reason}")
    if summary.advisor is not None:
        yield "Advisor", one_line(f"{summary.advisor.model}; {summary.advisor.in_words}")
    for line in summary.overruns:
        yield "Overrun", line
    if summary.spent.lost_exchanges:
        yield "Lost", f"{summary.spent.lost_exchanges} exchanges were sent and not waited for; they count as reserved"
    if summary.spent.cut_off:
        yield "Judged anew", summary.spent.cut_off
    yield "Last judging", f"{summary.spent.last_judging_s:.0f} s, which no budget limits"
    yield "Policy", options.judging.policy
    yield "Timing", options.judging.timing
    yield "Baseline", options.judging.baseline
    yield "Attempts of a model", str(options.attempts)
    yield "Told", ", ".join(options.contexts) or "nothing but the task"
    limits = msgspec.structs.asdict(options.budget)
    yield "Budget", ", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None) or "none"
    if summary.replayed is not None:
        yield "Replayed", f"{summary.replayed['judged']} kernels judged again, {summary.replayed['differ']} differ"


def _payload(summary: CampaignSummary) -> dict[str, Any]:
    return {
        "models": [_model(one_line(name), figures) for name, figures in summary.by_model.items()],
        "outcomes": list(summary.attempts.items()),
        "spending": [msgspec.structs.asdict(point) for point in summary.spending],
        "priced": _is_priced(summary),
        "longest": max((len(figures.solved_after) for figures in summary.by_model.values()), default=0),
    }


def _model(name: str, figures: AuthorFigures) -> dict[str, Any]:
    return {
        "name": name,
        "wins": figures.wins,
        "solvedAfter": _numbered(figures.solved_after),
        "fast": [(p, figures.fast_p[f"{p:g}"]) for p in THRESHOLDS],
    }


def _numbered(values: Iterable[float]) -> list[tuple[int, float]]:
    return list(enumerate(values, start=1))
