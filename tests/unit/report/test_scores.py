"""Scores: what is divided by what, and what a failure counts as."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report_runs import manifest, planned, timed_case, timing, verdict

from opsmith.core.run import Options, RunPlan, Summary
from opsmith.core.timing import Label
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.errors import DamagedRun
from opsmith.report.conventions import BASELINES
from opsmith.report.outcome import INCOMPLETE, NO_KERNEL, Direction, direction, group, outcome
from opsmith.report.scores import summarise

PASSES = [verdict(number=0), verdict(number=1)]


def score(verdicts: list[Verdict], *ops: object) -> Summary:
    """Summarise a run of these ops, by default of one op with two cases."""
    return summarise(manifest(), RunPlan(ops=ops or (planned(),)), verdicts)  # type: ignore[arg-type]


def test_op_that_passes_every_case_is_correct() -> None:
    """All planned cases PASSED: correct, and with it the run is accepted."""
    summary = score(PASSES)
    assert {"asked": 1, "answered": 1, "correct": 1} == summary.ops
    assert {"asked": 2, "passed": 2} == summary.cases
    assert summary.accepted
    assert summary.per_op["relu.default"].accepted


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_no_status_but_passed_counts_as_correct(status: Status) -> None:
    """One case with any other status and the op is not correct."""
    summary = score([verdict(number=0), verdict(number=1, status=status)])
    assert 0 == summary.ops["correct"]
    assert not summary.accepted
    assert {"PASSED": 1, status.value: 1} == summary.per_op["relu.default"].statuses
    assert status == outcome(summary.per_op["relu.default"])


def test_case_without_a_verdict_is_not_passed() -> None:
    """An op with fewer verdicts than planned cases is not correct, though none of them failed."""
    summary = score(PASSES[:1])
    assert 0 == summary.ops["correct"]
    assert {"asked": 2, "passed": 1} == summary.cases
    assert INCOMPLETE == outcome(summary.per_op["relu.default"])


def test_what_ended_a_kernel_is_its_outcome_not_the_cases_that_followed() -> None:
    """NOT_RUN follows from time-outs and crashes, however many cases it holds for."""
    verdicts = [
        verdict("relu.default", 0, Status.TIMEOUT),
        *(verdict("relu.default", n, Status.NOT_RUN) for n in (1, 2)),
    ]
    assert Status.TIMEOUT == outcome(score(verdicts, planned(cases=3)).per_op["relu.default"])


def test_op_without_a_kernel_stays_in_the_denominators() -> None:
    """It is asked, not answered, not accepted, and its cases count as asked."""
    summary = score(PASSES, planned(), planned("tril.default", 5, answered=False))
    missing = summary.per_op["tril.default"]
    assert {"asked": 2, "answered": 1, "correct": 1} == summary.ops
    assert {"asked": 7, "passed": 2} == summary.cases
    assert (False, False, {}) == (missing.answered, missing.accepted, missing.statuses)
    assert 0.5 == summary.scores["correct_share"].value
    assert NO_KERNEL == outcome(missing)


def test_run_is_accepted_on_the_ops_that_are_answered() -> None:
    """Missing kernels cost the score, not the acceptance."""
    assert score(PASSES, planned(), planned("tril.default", 5, answered=False)).accepted


def test_run_without_any_answer_is_not_accepted() -> None:
    """Nothing answered, nothing accepted."""
    assert not score([], planned(answered=False)).accepted


def test_op_that_fails_to_load_is_answered_and_not_correct() -> None:
    """A kernel was found, even though it does not load."""
    summary = score([verdict(number=n, status=Status.LOAD_FAILED) for n in range(2)])
    assert {"asked": 1, "answered": 1, "correct": 0} == summary.ops


def test_bad_calls_are_counted_apart() -> None:
    """They change neither cases nor acceptance, whether they raised or not."""
    bad = [
        verdict(number=10, expects_error=True),
        verdict(number=11, status=Status.DID_NOT_RAISE, expects_error=True),
    ]
    summary = score(PASSES + bad, planned(error_cases=3))
    assert {"asked": 3, "raised": 1} == summary.error_cases
    assert {"asked": 3, "raised": 1} == summary.per_op["relu.default"].error_cases
    assert {"asked": 2, "passed": 2} == summary.cases
    assert {"PASSED": 2} == summary.statuses
    assert summary.accepted


def test_dishonest_bad_call_spoils_the_op() -> None:
    """Outside the counts, but a kernel that cheats anywhere is not accepted."""
    summary = score([*PASSES, verdict(number=10, status=Status.DISHONEST, expects_error=True)], planned(error_cases=1))
    assert not summary.accepted
    assert 0 == summary.ops["correct"]
    assert Status.DISHONEST == outcome(summary.per_op["relu.default"])


def test_what_breaks_the_policy_is_counted_by_itself() -> None:
    """In every denominator, not correct, no fraud; found in a bad call or of the kernel as a whole, it counts too."""
    conduct = verdict(number=9, status=Status.POLICY, part=Part.CONDUCT)
    composes = [verdict("exp.default", number, Status.POLICY) for number in range(2)]
    bad = verdict("tril.default", 9, Status.POLICY, expects_error=True)
    right = [verdict(op, number) for op in ("relu.default", "tril.default") for number in range(2)]
    ops = [planned(), planned("exp.default"), planned("tril.default", error_cases=1)]
    summary = score([*right, conduct, *composes, bad], *ops)
    assert {"asked": 3, "answered": 3, "correct": 0} == summary.ops
    assert (3, False) == (summary.policy, summary.accepted)
    counts = {"relu.default": 1, "exp.default": 2, "tril.default": 1}
    assert counts == {name: op.policy for name, op in summary.per_op.items()}
    assert not any(op.dishonest for op in summary.per_op.values())
    assert {"POLICY"} == {outcome(op) for op in summary.per_op.values()}


def test_fraud_and_wrong_answers_outweigh_a_policy() -> None:
    """One word for an op: what is graver, then what most of its cases are."""
    policy, wrong = verdict(number=0, status=Status.POLICY), verdict(number=1, status=Status.WRONG_VALUE)
    hidden = verdict(number=2, status=Status.DISHONEST)
    conduct = verdict(number=9, status=Status.POLICY, part=Part.CONDUCT)
    found = {
        Status.DISHONEST: score([policy, wrong, hidden], planned(cases=3)),
        Status.WRONG_VALUE: score([verdict(number=0), wrong, conduct]),
    }
    for expected, summary in found.items():
        assert expected == outcome(summary.per_op["relu.default"])
        assert 0 == summary.policy


def test_a_summary_of_before_there_was_a_policy_status_is_read() -> None:
    """Run directories are kept for years."""
    written = msgspec.to_builtins(score(PASSES))
    for record in (written, *written["per_op"].values()):
        del record["policy"]
    assert score(PASSES) == msgspec.convert(written, Summary)


def test_op_with_bad_calls_only_is_not_asked() -> None:
    """A kernel that raises on everything must not be correct; the bad calls count all the same."""
    verdicts = [*PASSES, verdict("eye.default", 0, expects_error=True)]
    summary = score(verdicts, planned(), planned("eye.default", 0, error_cases=1))
    assert 1 == summary.ops["asked"]
    assert {"asked": 1, "raised": 1} == summary.error_cases
    assert ["relu.default"] == list(summary.per_op)
    assert any("bad calls only" in note for note in summary.notes)


def test_untimed_run_has_no_speed_score() -> None:
    """Absence is absence: no key, no 1.0, and None for each op."""
    summary = score(PASSES)
    assert {"correct_share"} == set(summary.scores)
    assert summary.per_op["relu.default"].speedup_k is None
    assert summary.per_op["relu.default"].speedup_e is None


def test_k_and_e_are_never_mixed() -> None:
    """Each quantity has its own figures, and the other one none."""
    summary = score([verdict(number=0, timings=(timing(4.0, "K"),)), verdict(number=1, timings=(timing(9.0, "K"),))])
    assert pytest.approx(6.0) == summary.per_op["relu.default"].speedup_k
    assert summary.per_op["relu.default"].speedup_e is None
    assert pytest.approx(6.0) == summary.scores["geomean_k"].value
    assert not any(name.endswith("_e") for name in summary.scores)


@pytest.fixture
def mixed() -> Summary:
    """Five ops asked: 4x, 0.6x, 2.5x with a failing case, wrong and untimed, and no kernel."""
    ops = [planned(f"op{n}.default", 2, answered=n != 4) for n in range(5)]
    verdicts = [
        verdict("op0.default", 0, timings=(timing(4.0),), count=3),
        verdict("op0.default", 1),
        verdict("op1.default", 0, timings=(timing(0.6),), count=1),
        verdict("op1.default", 1, timings=(timing(0.6),), count=1),
        verdict("op2.default", 0, timings=(timing(2.5),), count=100),
        verdict("op2.default", 1, Status.WRONG_VALUE),
        verdict("op3.default", 0, Status.CRASHED),
        verdict("op3.default", 1, Status.NOT_RUN),
    ]
    return summarise(manifest(), RunPlan(ops=tuple(ops)), verdicts)


@pytest.mark.parametrize(
    ("name", "value", "denominator"),
    [
        ("correct_share", 2 / 5, 5),
        ("geomean_k", (4.0 * 0.6) ** (1 / 2), 2),
        ("median_k", 2.3, 2),
        ("perf@0_k", 2 / 4, 4),
        ("perf@0.5_k", 2 / 4, 4),
        ("perf@0.8_k", 1 / 4, 4),
        ("perf@2_k", 1 / 4, 4),
        ("fast_0_k", 2 / 5, 5),
        ("fast_0.5_k", 2 / 5, 5),
        ("fast_0.8_k", 1 / 5, 5),
        ("fast_1_k", 1 / 5, 5),
        ("fast_1.5_k", 1 / 5, 5),
        ("fast_2_k", 1 / 5, 5),
        # op2 has one case at 2.5 and a failed one at 1.0, op3 two failed ones.
        ("geomean_failures_as_one_k", (4.0 * 0.6 * 2.5**0.5 * 1.0) ** (1 / 4), 4),
        ("geomean_floored_at_one_k", 4.0 ** (1 / 5), 5),
        ("geomean_count_weighted_k", (4.0**3 * 0.6**2) ** (1 / 5), 5),
    ],
)
def test_published_conventions(mixed: Summary, name: str, value: float, denominator: int) -> None:
    """Every convention on one run, worked out by hand."""
    assert pytest.approx(value) == mixed.scores[name].value
    assert denominator == mixed.scores[name].denominator


LABELLED = [
    verdict("add.Tensor", 0, timings=(timing(2.0), timing(0.5, "E"))),
    verdict("add.Tensor", 1, timings=(timing(1.5), timing(1.0, "E"))),
    verdict("add.Tensor", 2, timings=(timing(1.0), timing(1.2, "E", label=Label.UNDECIDED))),
    # Timed, of an op with a failing case.
    verdict("relu.default", 0, timings=(timing(0.5),), count=50),
    verdict("relu.default", 1, Status.WRONG_VALUE),
]


def test_labels_of_an_op_are_counted_by_quantity() -> None:
    """K and E apart, in the order of the enum, and no label that does not occur."""
    op = score(LABELLED, planned("add.Tensor", 3), planned()).per_op["add.Tensor"]
    assert [("FASTER", 2), ("SAME", 1)] == list(op.labels_k.items())
    assert [("SLOWER", 1), ("SAME", 1), ("UNDECIDED", 1)] == list(op.labels_e.items())


@pytest.mark.parametrize(
    ("name", "value", "denominator"),
    [
        ("faster_k", 2 / 4, 4),
        ("slower_k", 1 / 4, 4),
        ("same_k", 1 / 4, 4),
        ("undecided_k", 0.0, 4),
        ("faster_e", 0.0, 3),
        ("slower_e", 1 / 3, 3),
        ("same_e", 1 / 3, 3),
        ("undecided_e", 1 / 3, 3),
    ],
)
def test_shares_of_labels_are_over_every_timed_case(name: str, value: float, denominator: int) -> None:
    """Ops that fail elsewhere included, each case once however often it occurs: what was claimed is counted."""
    found = score(LABELLED, planned("add.Tensor", 3), planned()).scores[name]
    assert pytest.approx(value) == found.value
    assert denominator == found.denominator
    assert name[:-2].upper() in found.convention


def test_percent_of_floor_is_the_median_of_the_cases_that_have_one() -> None:
    """A case without a roofline bound is left out, not counted as 0."""
    percents = (90.0, None, 30.0, 40.0)
    cases = [verdict(number=n, timings=(timing(1.0, percent_of_floor=p),)) for n, p in enumerate(percents)]
    summary = score(cases, planned(cases=4))
    assert 40.0 == summary.per_op["relu.default"].percent_of_floor
    assert (40.0, 3) == (summary.scores["percent_of_floor_k"].value, summary.scores["percent_of_floor_k"].denominator)


def test_percent_of_floor_is_of_k_where_k_has_one() -> None:
    """E holds the launch; it stands in where nothing is known of K."""
    both = (timing(1.0, "K", percent_of_floor=80.0), timing(1.0, "E", percent_of_floor=20.0))
    assert 80.0 == score([verdict(timings=both)]).per_op["relu.default"].percent_of_floor
    only_e = (timing(1.0, "K"), timing(1.0, "E", percent_of_floor=20.0))
    assert 20.0 == score([verdict(timings=only_e)]).per_op["relu.default"].percent_of_floor
    assert score(PASSES).per_op["relu.default"].percent_of_floor is None


def test_first_calls_of_an_op_are_added_up() -> None:
    """Compiling is no part of K or E, so it has a figure of its own; None where nobody measured it."""
    cases = [verdict(number=n, timings=(timing(1.0),)) for n in range(3)]
    timed = [timed_case(case, first_call_s=seconds) for case, seconds in zip(cases, (0.5, 2.0, None), strict=True)]
    plan = RunPlan(ops=(planned(cases=3), planned("add.Tensor", 1)))
    summary = summarise(manifest(), plan, cases, timed)
    assert 2.5 == summary.per_op["relu.default"].first_call_s
    assert summary.per_op["add.Tensor"].first_call_s is None


def test_scores_say_what_they_are_a_speedup_over() -> None:
    """A speedup over compiled code is another figure than one over eager, which needs no word."""
    options = Options(suite="smoke", backend="mine", device="cpu", dtypes=("f32",), baseline="compile")
    verdicts = [verdict(timings=(timing(2.0, percent_of_floor=50.0),))]
    scores = summarise(manifest(options=options), RunPlan(ops=(planned(cases=1),)), verdicts).scores
    assert scores["geomean_k"].convention.endswith("; speedup over torch.compile")
    assert scores["faster_k"].convention.endswith("; speedup over torch.compile")
    assert "speedup over" not in scores["percent_of_floor_k"].convention
    assert not any("speedup over" in found.convention for found in score(verdicts, planned(cases=1)).scores.values())


def test_every_baseline_has_words() -> None:
    """None of the four that a run can be timed against is missing."""
    assert {"eager", "compile", "max-autotune", "cudagraphs"} == set(BASELINES)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, Direction.NEITHER),
        ({"SAME": 3, "UNDECIDED": 2}, Direction.NEITHER),
        ({"FASTER": 1, "SAME": 9}, Direction.FASTER),
        ({"SLOWER": 1, "UNDECIDED": 9}, Direction.SLOWER),
        ({"FASTER": 1, "SLOWER": 1}, Direction.MIXED),
    ],
)
def test_direction_of_an_op_needs_certain_cases(labels: dict[str, int], expected: Direction) -> None:
    """Cases that are the same, or undecided, point nowhere."""
    assert expected is direction(labels)


def test_threshold_itself_is_not_above_it() -> None:
    """``fast_1`` wants more than 1, as published."""
    summary = score([verdict(number=n, timings=(timing(1.0),)) for n in range(2)])
    assert 0.0 == summary.scores["fast_1_k"].value
    assert 1.0 == summary.scores["fast_0.8_k"].value


def test_correct_op_without_a_timing_is_only_faster_than_nothing() -> None:
    """Among timed ops, it counts in ``fast_0`` (any speedup is more than 0) and in no other."""
    summary = score([*PASSES, verdict("add.Tensor", timings=(timing(3.0),))], planned(), planned("add.Tensor", 1))
    assert 1.0 == summary.scores["fast_0_k"].value
    assert 0.5 == summary.scores["fast_0.5_k"].value


def test_wrong_op_alone_gives_no_mean_of_correct_ops() -> None:
    """With a timing, but no correct op, there is nothing to take the mean of."""
    summary = score([verdict(number=0, timings=(timing(3.0),)), verdict(number=1, status=Status.ERROR)])
    assert "geomean_k" not in summary.scores
    assert 0.0 == summary.scores["fast_0_k"].value


@given(st.randoms(use_true_random=False))
def test_order_of_the_verdicts_changes_nothing(shuffler: random.Random) -> None:
    """A resumed run finds its verdicts in another order and must get the identical summary."""
    verdicts = [
        verdict(op, number, status, timings=(timing(1.0 + number / 7),) if status is Status.PASSED else ())
        for op in ("add.Tensor", "relu.default")
        for number, status in enumerate([Status.PASSED, Status.ERROR, Status.PASSED, Status.TIMEOUT])
    ]
    plan = RunPlan(ops=(planned("add.Tensor", 4), planned("relu.default", 4)))
    expected = summarise(manifest(), plan, verdicts)
    shuffler.shuffle(verdicts)
    actual = summarise(manifest(), plan, verdicts)
    assert expected == actual
    assert list(expected.statuses) == list(actual.statuses)


def test_unfinished_run_says_so() -> None:
    """Its figures are a lower bound; the reader has to know."""
    summary = summarise(manifest(finished_utc=None), RunPlan(ops=(planned(),)), PASSES)
    assert any("not finished" in note for note in summary.notes)


def test_verdict_on_an_op_that_nobody_asked_is_damage() -> None:
    """Plan and verdicts do not belong together; there is no honest score."""
    with pytest.raises(DamagedRun, match=r"tril\.default"):
        score([verdict("tril.default")])


def test_derived_answers_are_flagged() -> None:
    """An in-place op that the functional kernel answers says so."""
    assert score([verdict(derived=True)]).per_op["relu.default"].derived


def test_every_status_has_a_colour() -> None:
    """A status that is added later cannot be forgotten in tables and page."""
    assert len(Status) == len([group(status) for status in Status])


def test_most_frequent_failure_names_the_op() -> None:
    """With several kinds of failure the table shows the one that is met most."""
    statuses = [Status.ERROR, Status.WRONG_VALUE, Status.WRONG_VALUE]
    summary = score([verdict(number=n, status=s) for n, s in enumerate(statuses)], planned(cases=3))
    assert Status.WRONG_VALUE == outcome(summary.per_op["relu.default"])


OTHERS = "(T([2], f64), T([2], i64)), {'dtype': f32}"


@pytest.mark.parametrize(
    ("second", "accepted_for"),
    [
        # Another dtype's case, declined; a case of float32 with other tensors, declined; float32 itself, declined.
        (verdict(number=1, status=Status.UNSUPPORTED, dtype="bf16", inputs="(T([2], bf16)), {}"), ("f32",)),
        (verdict(number=1, status=Status.UNSUPPORTED, inputs=OTHERS), ("f32",)),
        (verdict(number=1, status=Status.UNSUPPORTED, inputs="(T([2], i64)), {}"), ("f32",)),
        (verdict(number=1, status=Status.UNSUPPORTED, inputs="(T([2], f32), T([2], i64)), {}"), ()),
        (verdict(number=1, status=Status.WRONG_VALUE, dtype="bf16"), ()),
        (verdict(number=1, status=Status.NOT_RUN, dtype="bf16"), ()),
        (verdict(number=1, status=Status.WRONG_VALUE, part=Part.VARIANT, variant="tiny"), ()),
    ],
)
def test_a_kernel_that_declines_and_is_right_elsewhere_is_accepted_for_its_dtypes(
    second: Verdict, accepted_for: tuple[str, ...]
) -> None:
    """It is not accepted, and not wrong either; the dtypes are those of the tensors, not of the suite's generator."""
    summary = score([verdict(), second], planned(cases=1 if second.part is Part.VARIANT else 2))
    assert not summary.accepted
    assert not summary.per_op["relu.default"].accepted
    assert accepted_for == summary.per_op["relu.default"].accepted_for == summary.accepted_for


def test_an_accepted_kernel_is_accepted_for_nothing_in_particular() -> None:
    """What stands beside `accepted` explains where it is false."""
    summary = score([verdict(), verdict(number=1)], planned())
    assert summary.accepted
    assert () == summary.per_op["relu.default"].accepted_for == summary.accepted_for


def test_a_run_is_accepted_for_what_all_of_its_ops_are() -> None:
    """An op that is wrong in a dtype, or declines it, takes the dtype from the run."""
    declined = verdict("relu.default", 1, Status.UNSUPPORTED, dtype="bf16", inputs="(T([2], bf16)), {}")
    found = [verdict("relu.default"), declined, verdict("exp.default", 2), verdict("exp.default", 3, dtype="bf16")]
    assert ("f32",) == score(found, planned("relu.default"), planned("exp.default")).accepted_for
    wrong = [*found[:3], verdict("exp.default", 3, Status.WRONG_VALUE)]
    assert () == score(wrong, planned("relu.default"), planned("exp.default")).accepted_for
