"""The page: one HTML file that needs no network and no other file.

What people see at first (the headline, the notes, the environment, the scores) is plain HTML. The
table of ops, the failing cases and the plots are drawn in the page from one gzip stream of json;
plotly.js is another one, so the page weighs about 2 MB instead of 5. Browsers inflate both
themselves (``DecompressionStream``: Chromium 80, Firefox 113, Safari 16.4).

Kernels supply some of the text. Three things keep it text: the template escapes, the page script
sets ``textContent`` only, and a content security policy admits no script without the page's nonce
and no connection to anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.case import digest
from opsmith.core.counts import counted
from opsmith.core.run import PlannedOp, write_atomically
from opsmith.core.timing import ControlPair
from opsmith.core.verdict import ErrorFigures, Status, Verdict
from opsmith.report.column_tables import case_table, column_tables
from opsmith.report.conventions import BASELINES
from opsmith.report.facts import Fact, clock_facts, environment_facts
from opsmith.report.level_tables import level_tables
from opsmith.report.outcome import INCOMPLETE, NO_KERNEL, NOT_ASKED, Group, group, outcome, urgency
from opsmith.report.page_parts import packed, packed_plotly, templates
from opsmith.report.points import POINTS, points, speedup_logs
from opsmith.report.results import Results
from opsmith.report.strangers import one_line
from opsmith.report.tables import refused_by_policy, review_counts, share, speedup

#: Failing cases that the page holds in full. Each op's first comes before any op's second.
FAILING_CASES = 2_000

#: A run of fewer ops leads with what fails, and has its charts below.
FEW_OPS = 5

_LEGEND = {
    Group.RIGHT: "correct",
    Group.WRONG: "wrong",
    Group.DIED: "failed to run",
    Group.POLICY: "not allowed by the policy",
    Group.DISHONEST: "dishonest",
    Group.OPEN: "no answer",
}


def write_page(results: Results, path: Path) -> None:
    """Write the page of a run.

    Raises:
        OSError: ``path`` cannot be written.
    """
    write_atomically(path, render(results).encode())


def render(results: Results) -> str:
    """The page as text. Equal runs give equal pages."""
    payload = msgspec.json.encode(_payload(results))
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            backend=one_line(results.summary.backend),
            suite=one_line(results.summary.suite),
            summary=results.summary,
            manifest=results.manifest,
            tiles=list(_tiles(results)),
            bar=list(_bar(results)),
            policy_remark=refused_by_policy(results),
            void=[(one_line(name), one_line(reason)) for name, reason in results.summary.void.items()],
            reviews=review_counts(results),
            level_tables=level_tables(results.summary.levels),
            column_tables=[*column_tables(results.summary.columns, results.columns), case_table(results.columns)]
            if results.columns
            else [],
            notes=[one_line(note) for note in results.summary.notes],
            facts=_shown(environment_facts(results)),
            clock=results.manifest.clock,
            clock_facts=_shown(clock_facts(results)),
            control=[(_control_call(pair), pair) for pair in results.manifest.clock.control]
            if results.manifest.clock
            else [],
            baseline=BASELINES[results.manifest.options.baseline],
            timed_count=sum(bool(verdict.timings) for verdict in results.verdicts),
            points_limit=POINTS,
            roofs=_roofs(results),
            failing_shown=min(results.failing_count, FAILING_CASES),
            failing_count=results.failing_count,
            failing_parts=", ".join(counted(number, kind) for kind, number in results.failing_parts.items()),
            few_ops=len(results.summary.per_op) < FEW_OPS,
            # Kernels are not told the digest of the verdicts about them, so they cannot guess the nonce.
            nonce=digest(payload),
            payload=packed(payload),
            plotly=packed_plotly(),
        )
    )


def _tiles(results: Results) -> Iterable[tuple[str, str, str]]:
    """The headline: (label, figure, what it is a figure of)."""
    summary = results.summary
    ops, cases, bad_calls = summary.ops, summary.cases, summary.error_cases
    yield "Ops correct", f"{ops['correct']:,}", f"{share(ops['correct'], ops['asked'])} of {ops['asked']:,} asked"
    yield "Ops answered", f"{ops['answered']:,}", f"{share(ops['answered'], ops['asked'])} of {ops['asked']:,} asked"
    yield (
        "Cases passed",
        f"{cases['passed']:,}",
        f"{share(cases['passed'], cases['asked'])} of {cases['asked']:,} asked",
    )
    if bad_calls["asked"]:
        raised = share(bad_calls["raised"], bad_calls["asked"])
        yield "Bad calls raised", f"{bad_calls['raised']:,}", f"{raised} of {bad_calls['asked']:,}; counted apart"
    for quantity, meaning in (("k", "kernel time"), ("e", "whole call")):
        if score := summary.scores.get(f"geomean_{quantity}"):
            figure = speedup(score.value)
            yield (
                f"Speedup {quantity.upper()}",
                figure,
                f"{meaning}, geomean over {counted(score.denominator, 'correct op')}",
            )


def _bar(results: Results) -> Iterable[tuple[str, str, int]]:
    """The bar under the headline: (group, its name, number of ops)."""
    counts = Counter(group(outcome(op)) for op in results.summary.per_op.values())
    return ((each.value, _LEGEND[each], counts[each]) for each in Group if counts[each])


def _shown(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    return [(name, one_line(str(value))) for name, value in facts if value not in {None, ""}]


def _control_call(pair: ControlPair) -> str:
    return one_line(pair.call if pair.ranks is None else f"{pair.call} on {pair.ranks} ranks")


def _roofs(results: Results) -> str:
    clock = results.manifest.clock
    if clock is None:
        return "What this device allows was not measured, so there is no roof."
    return "Lines are what this device was measured to reach."


def _payload(results: Results) -> dict[str, Any]:
    """What the page script draws from."""
    summary = results.summary
    worst = _worst_errors(results.verdicts)
    names = sorted(summary.per_op, key=lambda name: (urgency(summary.per_op[name]), name))
    planned = {op.op: op for op in results.plan.ops}
    return {
        "groups": {word: group(word) for word in (*Status, NO_KERNEL, NOT_ASKED, INCOMPLETE)},
        "legend": _LEGEND,
        "statuses": summary.statuses,
        "rtols": sorted({figures.rtol for figures in worst.values()}),
        "ops": [_op_row(planned[name], results, worst.get(name)) for name in names],
        "failing": results.failing(FAILING_CASES),
        "baseline": BASELINES[results.manifest.options.baseline],
        "points": points(results),
        "caseLogs": {quantity.lower(): speedup_logs(results, quantity) for quantity in ("K", "E")},
        "ceilings": results.manifest.clock.ceilings if results.manifest.clock else None,
    }


def _op_row(planned: PlannedOp, results: Results, worst: ErrorFigures | None) -> dict[str, Any]:
    op = results.summary.per_op[planned.op]
    return {
        "op": planned.op,
        "variant": variant(planned),
        "result": outcome(op),
        "dsl": op.dsl,
        "derived": op.derived,
        "cases": op.cases,
        "passed": op.passed,
        "statuses": op.statuses,
        "acceptedFor": op.accepted_for,
        "raised": op.error_cases["raised"],
        "badCalls": op.error_cases["asked"],
        "k": op.speedup_k,
        "e": op.speedup_e,
        "labelsK": op.labels_k,
        "labelsE": op.labels_e,
        "bound": op.percent_of_floor,
        "review": one_line(results.reviews[planned.op].text) if planned.op in results.reviews else None,
        "maxRel": None if worst is None or (worst.mismatched and not worst.max_rel) else worst.max_rel,
    }


def _worst_errors(verdicts: Iterable[Verdict]) -> dict[str, ErrorFigures]:
    """Op -> the figures of the case with the largest relative error."""
    worst: dict[str, ErrorFigures] = {}
    for verdict in verdicts:
        figures = verdict.figures
        if figures and (verdict.op not in worst or figures.max_rel > worst[verdict.op].max_rel):
            worst[verdict.op] = figures
    return worst


def variant(planned: PlannedOp) -> str:
    """Which family of overloads an op belongs to, as its name and its schema tell."""
    packet = planned.op.rpartition(".")[0]
    arguments, _, returns = planned.schema.rpartition(" -> ")
    if "_backward" in packet:
        return "backward"
    if "!" in arguments.partition("*,")[2]:
        return "out="
    if packet.endswith("_") and "!" in arguments:
        return "in-place"
    if "!" in arguments:
        return "mutable"
    return "view" if "(a" in returns else "functional"
