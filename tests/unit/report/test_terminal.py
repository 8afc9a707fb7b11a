"""What stands in the terminal: tables of a run and of a comparison."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.report_runs import HOSTILE, clock, manifest, planned, timed_case, timing, verdict, write_run, write_timed_run

from opsmith.cli.compare import compare as compare_command
from opsmith.cli.report import report as report_command
from opsmith.core.fresh_values import Freshness
from opsmith.core.run import Options, PlannedOp
from opsmith.core.timing import Cause, Label, RankSpread, Undecided
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.errors import BadInput, UsageError
from opsmith.report.compare import ChangedCase, ChangedOp, Comparison, compare
from opsmith.report.compare_tables import print_comparison
from opsmith.report.facts import clock_facts
from opsmith.report.results import Results
from opsmith.report.strangers import one_line, printable
from opsmith.report.tables import percent, print_results, share


def results(path: Path, ops: Sequence[PlannedOp], verdicts: Sequence[Verdict], **changes: object) -> Results:
    """A run, written and read."""
    return Results.read(write_run(path, ops, verdicts, manifest(**changes)))


def printed(run: Results) -> str:
    """What the terminal shows, without colours."""
    stream = io.StringIO()
    print_results(run, Console(file=stream, width=140))
    return stream.getvalue()


def test_headline_has_every_figure_with_its_denominator(tmp_path: Path) -> None:
    """Asked, answered, correct; cases; device; and the remark that changes how to read it."""
    ops = [planned("add.Tensor", 1), planned("tril.default", 3, answered=False)]
    text = printed(
        results(tmp_path / "a", ops, [verdict("add.Tensor")], notes=("Triton interpreter: correctness only",))
    )
    assert "1 correct of 2 asked (50.0 %); 1 answered" in text
    assert "1 passed of 4 (25.0 %)" in text
    assert "! Triton interpreter: correctness only" in text
    assert "ACCEPTED" in text
    assert "speedup" not in text


@pytest.mark.parametrize("width", [20, 60, 80])
def test_the_verdict_comes_first_and_is_never_cut(tmp_path: Path, width: int) -> None:
    """In a narrow terminal it was a panel's title, and read "NOT"."""
    cases = [verdict(number=number, status=Status.WRONG_VALUE) for number in range(2)]
    run = results(tmp_path / "a", [planned(cases=2)], cases)
    stream = io.StringIO()
    print_results(run, Console(file=stream, width=width))
    assert " ".join(stream.getvalue().split()).startswith("NOT ACCEPTED relu.default: 2 of 2 cases did not pass")


def test_what_every_case_says_is_told_once(tmp_path: Path) -> None:
    """A file that does not load fails each case in the same words, and one command shows it again."""
    load = [verdict(number=number, status=Status.LOAD_FAILED, detail="SyntaxError: line 1") for number in range(5)]
    other = verdict(number=5, status=Status.ERROR, detail="another")
    text = printed(results(tmp_path / "a", [planned(cases=6)], [*load, other]))
    assert (1, 1, 2) == (text.count("SyntaxError"), text.count("and 4 more like it"), text.count("opsmith check"))
    assert "What fails: 6 cases\n" in text


def test_variants_are_counted_apart_from_cases(tmp_path: Path) -> None:
    """One count of all that fails stood beside one of cases, and they did not agree."""
    variants = [verdict(number=1, status=Status.WRONG_VALUE, part=Part.VARIANT, variant=f"v{n}") for n in range(3)]
    text = printed(results(tmp_path / "a", [planned(cases=1)], [verdict(), *variants]))
    assert "relu.default: all 1 cases" not in text
    assert "its case passed, and 3 of 3 variants did not" in text
    assert "0 passed of 3; not among the cases" in text
    assert "What fails: 3 variants" in text


def test_the_reference_beside_itself_counts_nothing_as_faster(tmp_path: Path) -> None:
    """1.0003x is above 1, by chance, and fast_1 = 1.000 is no finding about eager mode."""
    options = Options(suite="smoke", backend="aten", device="cpu", dtypes=("f32",))
    run = results(
        tmp_path / "a", [planned(cases=1)], [verdict(timings=(timing(1.0003),))], options=options, clock=clock()
    )
    assert "geomean_k" in run.summary.scores
    assert [] == [name for name in run.summary.scores if name.startswith(("fast_", "perf@"))]


def test_failing_ops_come_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    """A long table is cut, and one line says what is missing."""
    ops = [planned(f"op{n:02d}.default", 1, answered=n % 2 == 0) for n in range(60)]
    verdicts = [
        verdict(op.op, 0, Status.CRASHED if op.op == "op58.default" else Status.PASSED) for op in ops if op.kernel
    ]
    text = printed(results(tmp_path / "a", ops, verdicts))
    assert text.index("op58.default") < text.index("op00.default") < text.index("op01.default")
    assert "and 20 ops more: 0 failing, 0 correct, 20 without a kernel" in text


def test_speedup_that_no_case_bears_out_is_marked(tmp_path: Path) -> None:
    """1.20x without a single certain case must not read like 1.20x with one."""
    ops = [planned("sure.default", 1), planned("unsure.default", 1)]
    verdicts = [
        verdict("sure.default", timings=(timing(1.2),)),
        verdict("unsure.default", timings=(timing(1.3, label=Label.UNDECIDED),)),
    ]
    lines = printed(results(tmp_path / "a", ops, verdicts)).splitlines()
    row = {line.split()[0]: line for line in lines if ".default" in line}
    assert " 1.20x" in row["sure.default"]
    assert "~1.30x" in row["unsure.default"]
    assert any("~ no case of the op is faster or slower with certainty" in line for line in lines)


def test_headline_counts_labels_and_costs(tmp_path: Path) -> None:
    """What was claimed, how near the roofline bound, and what compiling and memory took beside K and E."""
    text = printed(Results.read(write_timed_run(tmp_path / "run")))
    assert "K: 125 faster, 43 slower, 169 same, 23 undecided" in text
    assert "E: 32 faster, 261 slower, 44 same, 23 undecided" in text
    assert "of what this device allows, median over 360 timed cases" in text
    assert "first calls took 77.4 s in all, compiling included; not in K or E" in text
    assert "more than 1.5x the reference's in 4 of 360 timed cases; worst move_07.default, 3.0x, 7,094 MiB" in text
    assert "roofline" in next(line for line in text.splitlines() if line.startswith("op "))


def test_headline_of_ordinary_timings_has_no_cost_and_no_roofline(tmp_path: Path) -> None:
    """What is not known, or not worth a line, has none."""
    case = verdict(timings=(timing(1.2),))
    run = write_run(tmp_path / "a", [planned(cases=1)], [case], timed=[timed_case(case, first_call_s=0.2)])
    text = printed(Results.read(run))
    assert "K: 1 faster, 0 slower, 0 same, 0 undecided" in text
    assert not any(word in text for word in ("roofline", "first calls", "memory", "suspect", "~"))


def test_headline_names_another_baseline_than_eager(tmp_path: Path) -> None:
    """1.2x against compiled code is not 1.2x against eager."""
    options = Options(suite="smoke", backend="mine", device="cpu", dtypes=("f32",), baseline="max-autotune")
    run = results(tmp_path / "a", [planned(cases=1)], [verdict(timings=(timing(1.2),))], options=options, clock=clock())
    assert "1.20x median against torch.compile in mode max-autotune over 1 correct op" in printed(run)


def test_suspect_timings_are_told(tmp_path: Path) -> None:
    """Faster than the device was ever measured: a reader has to know before quoting it."""
    run = results(tmp_path / "a", [planned(cases=1)], [verdict(timings=(timing(9.0, suspect=True),))])
    assert "1 timed case beats what this device was measured to reach; verified again" in printed(run)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([Freshness.FRESH, Freshness.FRESH], "new in every call"),
        (
            [Freshness.FRESH, Freshness.PARTLY, Freshness.FIXED, Freshness.FIXED],
            "new in every call, but for 1 of 4 cases that repeat some and 2 that repeat all",
        ),
        ([None], None),
    ],
)
def test_the_page_says_which_cases_were_timed_on_values_that_repeat(
    tmp_path: Path, values: Sequence[Freshness | None], said: str | None
) -> None:
    """A kernel may remember an answer there; older runs do not tell."""
    cases = [verdict(number=number, timings=(timing(1.2),)) for number in range(len(values))]
    timed = [timed_case(case, values=found) for case, found in zip(cases, values, strict=True)]
    run = write_run(tmp_path / "a", [planned(cases=len(cases))], cases, manifest(clock=clock()), timed=timed)
    assert dict(clock_facts(Results.read(run)))["Values"] == said


def test_pairs_that_others_disturbed_are_told(tmp_path: Path) -> None:
    """How noisy the machine was; nothing where it was not."""
    kept = timing(1.2, "E", blocks=30, disturbed=10, disturbed_share=0.5)
    noisy = results(tmp_path / "a", [planned(cases=1)], [verdict(timings=(kept,))], clock=clock())
    said = "10 of 40 pairs measured again, others had the processor"
    assert ("Disturbed", said) in [*clock_facts(noisy)]
    quiet = results(tmp_path / "b", [planned(cases=1)], [verdict(timings=(timing(1.2, "E"),))], clock=clock())
    assert ("Disturbed", None) in [*clock_facts(quiet)]


def test_what_was_timed_and_is_undecided_is_told_with_its_reason(tmp_path: Path) -> None:
    """It counts as such, and has neither a speedup nor a percentage; the page says the same."""
    reason = "too short to be measured: the candidate's blocks of 9 calls, the most there may be, take less than 340 us"
    undecided = Undecided(quantity="E", cause=Cause.TOO_SHORT, reason=reason)
    cases = [verdict(undecided=(undecided,)), verdict("exp.default", timings=(timing(1.2, "E"),))]
    run = results(tmp_path / "a", [planned(cases=1), planned("exp.default", 1)], cases, clock=clock())
    text = printed(run)
    assert "E: 1 faster, 0 slower, 0 same, 1 undecided" in text
    said = (
        "1 without a time, counted as undecided: 1 in blocks too short to be measured; "
        f"for example E of relu.default is {reason}"
    )
    assert said in " ".join(text.replace("│", " ").split())
    op = run.summary.per_op["relu.default"]
    assert (None, {"UNDECIDED": 1}) == (op.speedup_e, op.labels_e)
    assert ("Undecided", said) in [*clock_facts(run)]
    row = next(line for line in text.splitlines() if line.startswith("relu.default"))
    assert "undecided" in row


@pytest.mark.parametrize(("value", "expected"), [(None, "-"), (0.2, "<1 %"), (87.4, "87 %"), (104.6, "105 %")])
def test_percent_of_floor_is_never_rounded_to_nothing(value: float | None, expected: str) -> None:
    """Something that was measured is not 0."""
    assert expected == percent(value)


def test_failing_case_comes_with_its_command(tmp_path: Path) -> None:
    """Status, inputs, message and, on a line of its own, the command."""
    case = verdict(status=Status.WRONG_SHAPE, detail="[2] instead of [3]")
    text = printed(results(tmp_path / "a", [planned(cases=1)], [case]))
    assert "What fails: 1 case" in text
    assert "WRONG_SHAPE relu.default (T([1, 3], f32),)" in text
    command = next(line for line in text.splitlines() if "opsmith check" in line)
    assert command.endswith("--seed 1234")


def test_hostile_message_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    """Neither escape sequences nor console markup of a kernel's message are obeyed."""
    case = verdict(status=Status.ERROR, detail=HOSTILE + " [bold]x[/bold]", inputs="\x1b]0;title\x07")
    text = printed(results(tmp_path / "a", [planned(cases=1)], [case]))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31m" in text
    assert "[bold]x[/bold]" in text


def test_long_message_keeps_beginning_and_end() -> None:
    """A traceback's last line is the one that matters."""
    text = printable("first" + "x" * 5000 + "last", 100)
    assert text.startswith("first")
    assert text.endswith("last")
    assert len(text) < 200


def test_one_line_has_one_line() -> None:
    """Newlines and tabs become blanks."""
    assert "a b c" == one_line("a\n\tb   c\n")


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(0, 0, "none asked"), (1, 2, "50.0 %"), (9_999, 10_000, "99.9 %"), (1, 100_000, "0.1 %"), (3, 3, "100.0 %")],
)
def test_share_says_100_percent_only_of_all(part: int, whole: int, expected: str) -> None:
    """Rounding must not hide the last failing case, nor the only passing one."""
    assert expected == share(part, whole)


def test_report_prints_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` prints summary.json and nothing else, and writes the page where it is told to."""
    run = write_run(tmp_path / "run", [planned(cases=1)], [verdict()])
    report_command(run.path, html=tmp_path / "page.html", json_output=True)
    output = capsys.readouterr().out
    assert json.loads(output) == json.loads((run.path / "summary.json").read_text())
    assert (tmp_path / "page.html").is_file()
    assert not (run.path / "report.html").exists()


def test_report_prints_the_table_and_where_the_page_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without options: for people, and the page goes into the run."""
    run = write_run(tmp_path / "run", [planned(cases=1)], [verdict()])
    report_command(run.path)
    assert f"page: {run.path / 'report.html'}" in capsys.readouterr().out
    assert (run.path / "report.html").is_file()


def test_report_of_something_else_is_bad_input(tmp_path: Path) -> None:
    """A folder without a run is the user's mistake."""
    with pytest.raises(BadInput, match="not a run directory"):
        report_command(tmp_path)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """``a`` breaks, ``b`` gets right, ``c`` fails otherwise, ``d`` gets twice as fast, ``e`` is new."""
    before = results(
        tmp_path / "before",
        [planned(f"{name}.default", 1) for name in "abcd"],
        [
            verdict("a.default"),
            verdict("b.default", 0, Status.ERROR),
            verdict("c.default", 0, Status.ERROR),
            verdict("d.default", timings=(timing(2.0, "K"), timing(1.0, "E"))),
        ],
    )
    after = results(
        tmp_path / "after",
        [planned(f"{name}.default", 1) for name in "abcde"],
        [
            verdict("a.default", 0, Status.TIMEOUT),
            verdict("b.default"),
            verdict("c.default", 0, Status.CRASHED),
            verdict("d.default", timings=(timing(4.0, "K"),)),
            verdict("e.default"),
        ],
        environment=msgspec.structs.replace(manifest().environment, torch="2.12.0"),
    )
    return compare(before, after)


def test_comparison_tells_gained_from_lost(comparison: Comparison) -> None:
    """Each op is in the one list that fits it; an op that is new and correct is gained."""
    assert (ChangedOp(op="a.default", before="PASSED", after="TIMEOUT"),) == comparison.lost
    assert ["b.default", "e.default"] == [op.op for op in comparison.gained]
    assert (ChangedOp(op="c.default", before="ERROR", after="CRASHED"),) == comparison.changed
    assert {"asked": (4, 5), "answered": (4, 5), "correct": (2, 3)} == comparison.ops


def test_comparison_lists_every_changed_case(comparison: Comparison) -> None:
    """By op and address; None where a run has no verdict."""
    assert ["a.default", "b.default", "c.default", "e.default"] == [case.op for case in comparison.changed_cases]
    new = ChangedCase(op="e.default", case="opinfo:e.default:f32:sample:0:0", before=None, after=Status.PASSED)
    assert new == comparison.changed_cases[-1]


def test_comparison_compares_speed_by_quantity(comparison: Comparison) -> None:
    """K against K; E was timed in one run only and is not compared."""
    (speed,) = comparison.speeds
    assert ("d.default", "K", 2.0) == (speed.op, speed.quantity, speed.ratio)


def test_comparison_names_what_else_differs(comparison: Comparison) -> None:
    """Another torch is no change of the kernels."""
    assert ("torch: 2.13.0 before, 2.12.0 after",) == comparison.differences


def test_comparison_prints_lost_ops_first(comparison: Comparison) -> None:
    """What broke comes before what was gained."""
    stream = io.StringIO()
    print_comparison(comparison, Console(file=stream, width=100))
    text = stream.getvalue()
    assert text.index("lost (1)") < text.index("gained (2)")
    assert "a.default  PASSED -> TIMEOUT" in text
    assert "2.000x geomean over 1 op" in text


def test_comparison_lists_the_largest_changes_of_speed_either_way(tmp_path: Path) -> None:
    """Forty ops got faster or slower: the extremes are listed, those that stayed the same are not."""
    ops = [planned(f"op{n:02d}.default", 1) for n in range(41)]
    before = [verdict(op.op, timings=(timing(1.0),)) for op in ops]
    after = [verdict(op.op, timings=(timing(2.0 ** (n - 20)),)) for n, op in enumerate(ops)]
    stream = io.StringIO()
    pair = results(tmp_path / "before", ops, before), results(tmp_path / "after", ops, after)
    print_comparison(compare(*pair), Console(file=stream, width=100))
    listed = [line.split()[1] for line in stream.getvalue().splitlines() if "->" in line]
    assert [f"op{n:02d}.default" for n in (*range(15), *range(26, 41))] == listed


def test_comparison_counts_ops_whose_direction_turned(tmp_path: Path) -> None:
    """From certainly slower to certainly faster counts; to or from undecided does not, whatever the ratio."""
    ops = [planned(f"{name}.default", 1) for name in ("turns", "fades", "rises", "back")]
    before = [
        verdict("turns.default", timings=(timing(0.5),)),
        verdict("fades.default", timings=(timing(0.5),)),
        verdict("rises.default", timings=(timing(0.5, label=Label.UNDECIDED),)),
        verdict("back.default", timings=(timing(1.5),)),
    ]
    after = [
        verdict("rises.default", timings=(timing(1.5),)),
        verdict("turns.default", timings=(timing(1.5),)),
        verdict("fades.default", timings=(timing(1.5, label=Label.UNDECIDED),)),
        verdict("back.default", timings=(timing(0.5),)),
    ]
    both = compare(results(tmp_path / "before", ops, before), results(tmp_path / "after", ops, after))
    turns = next(speed for speed in both.speeds if speed.op == "turns.default")
    assert ("slower", "faster") == (turns.direction_before, turns.direction_after)
    stream = io.StringIO()
    print_comparison(both, Console(file=stream, width=100))
    assert "turned with certainty: 1 from slower to faster, 1 the other way" in stream.getvalue()


def test_comparison_tells_another_way_of_timing(tmp_path: Path) -> None:
    """Speedups over compiled code, or from a warm cache, are not comparable with the usual ones."""
    warm = msgspec.structs.replace(manifest().options, timing="quick", baseline="compile", warm=True)
    cold = msgspec.structs.replace(warm, baseline="eager", warm=False)
    case = verdict(timings=(timing(1.0),))
    before = results(tmp_path / "before", [planned(cases=1)], [case], options=cold)
    after = results(tmp_path / "after", [planned(cases=1)], [case], options=warm)
    assert ("timed: quick against eager, caches cold before, quick against compile, caches warm after",) == compare(
        before, after
    ).differences


def test_run_compared_with_itself_changes_nothing(tmp_path: Path) -> None:
    """No op, no case, no difference; every ratio is 1."""
    run = results(tmp_path / "a", [planned(cases=1)], [verdict(timings=(timing(1.3),))])
    same = compare(run, run)
    assert ((), (), (), (), ()) == (same.gained, same.lost, same.changed, same.changed_cases, same.differences)
    assert [1.0] == [speed.ratio for speed in same.speeds]


def test_compare_prints_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One comparison for each further run, in the order given."""
    runs = [write_run(tmp_path / name, [planned(cases=1)], [verdict()]).path for name in ("a", "b", "c")]
    compare_command(runs, json_output=True)
    assert [str(runs[1]), str(runs[2])] == [entry["after"] for entry in json.loads(capsys.readouterr().out)]


def test_comparison_takes_two_runs(tmp_path: Path) -> None:
    """One run is wrong usage."""
    with pytest.raises(UsageError, match="two runs"):
        compare_command([tmp_path])


def test_how_far_apart_ranks_were_is_shown_where_it_is_known(tmp_path: Path) -> None:
    """Of the kernel and of the reference, in the terminal, on the page, and in ``summary.json``."""
    spreads = [(RankSpread(30.0, 15.0), RankSpread(2_000.0, 1_000.0)), (RankSpread(50.0, 25.0), RankSpread(90.0, 45.0))]
    cases = [
        verdict(number=n, timings=(timing(1.0, "E", reference_spread=ours, candidate_spread=theirs),))
        for n, (ours, theirs) in enumerate(spreads)
    ]
    of_ranks = clock(noise_of_ranks={2: 0.031, 4: 0.12})
    run = results(tmp_path / "a", [planned(cases=2)], cases, clock=of_ranks)
    said = (
        "the first one is done 1,045 us before the last one, and 40 us where the reference runs; median over 2 timed "
        "cases"
    )
    assert said in " ".join(printed(run).split())
    facts = dict(clock_facts(run))
    assert ("2: 3.1 %, 4: 12.0 %", said) == (facts["Noise of ranks"], facts["Ranks"])
    assert 1_045.0 == run.summary.per_op["relu.default"].rank_spread_us
    alone = results(tmp_path / "b", [planned()], [verdict(timings=(timing(1.0, "E"),))], clock=clock())
    assert (None, None) == (dict(clock_facts(alone))["Ranks"], alone.summary.per_op["relu.default"].rank_spread_us)
