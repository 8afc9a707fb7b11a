"""Figures of a study: what is in which denominator."""

from __future__ import annotations

from pathlib import Path

from opsmith.mutation.outcomes import EQUIVALENCE, OPSMITH, ORIGINAL, Book, Outcome, Result
from opsmith.mutation.tables import markdown, summarise

HARNESS = "BackendBench"


def outcome(mutant: str, judge: str, result: Result, *, operator: str = "strictness", why: str = "") -> Outcome:
    """One line of a book."""
    return Outcome(
        mutant=mutant,
        op="relu.default",
        origin="refs.py",
        operator=operator,
        dtype="f32",
        judge=judge,
        result=result,
        why=why,
        before="x < 0",
        after="x <= 0",
    )


OUTCOMES = [
    outcome("refs.py:relu.default", OPSMITH, Result.SURVIVED, operator=ORIGINAL),
    outcome("refs.py:relu.default", HARNESS, Result.SURVIVED, operator=ORIGINAL),
    outcome("killed", OPSMITH, Result.KILLED),
    outcome("killed", HARNESS, Result.SURVIVED),
    outcome("equal", OPSMITH, Result.SURVIVED),
    outcome("equal", HARNESS, Result.SURVIVED),
    outcome("equal", EQUIVALENCE, Result.EQUAL),
    outcome("survivor", OPSMITH, Result.SURVIVED, operator="direction"),
    outcome("survivor", HARNESS, Result.NOT_ASKED, operator="direction"),
    outcome("survivor", EQUIVALENCE, Result.DIFFERS, operator="direction", why="another result on f32[3]"),
    outcome("void", OPSMITH, Result.VOID),
]


def test_equivalent_and_void_mutants_are_in_no_score() -> None:
    """Nobody can kill what changes nothing."""
    study = summarise(OUTCOMES)
    total = study.total
    assert (3, 1, 1, 1) == (total.mutants, total.equivalent, total.killed, total.survived)
    assert 0.5 == total.score
    assert 1 == study.void
    assert 3 == study.distinct


def test_what_the_harness_has_no_test_of_it_does_not_kill() -> None:
    """An op that nobody asks has every fault."""
    total = summarise(OUTCOMES).total
    assert (0, 1, 1) == (total.harness_killed, total.harness_survived, total.harness_not_asked)
    assert 0.0 == total.harness_score


def test_each_survivor_is_listed_with_its_witness() -> None:
    """A figure alone mends nothing."""
    study = summarise(OUTCOMES)
    (survivor,) = study.survivors
    assert ("survivor", "differs", "another result on f32[3]") == (survivor.mutant, survivor.compared, survivor.witness)
    assert "another result on f32[3]" in markdown(study)
    assert ["direction", "strictness"] == list(study.by_operator)


def test_what_the_comparison_allows_is_told_from_what_no_input_showed() -> None:
    """Both survive; the second is a hole among the inputs."""
    allowed = outcome("allowed", EQUIVALENCE, Result.ALLOWED, operator="zero_sign_lost", why="the sign of a zero")
    study = summarise([*OUTCOMES, outcome("allowed", OPSMITH, Result.SURVIVED, operator="zero_sign_lost"), allowed])
    assert (1, 2, 1) == (study.total.killed, study.total.survived, study.total.allowed)
    assert (1 / 3, 1 / 2) == (study.total.score, study.total.input_score)
    page = markdown(study)
    assert "Without those that the comparison allows, 50.0 % are killed" in page
    _, _, sections = page.partition("## Survivors that no input told apart")
    unseen, _, listed = sections.partition("## Survivors that the comparison allows")
    assert "another result on f32[3]" in unseen
    assert "the sign of a zero" in listed
    assert "the sign of a zero" not in unseen


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    """A killed run is taken up again, and what it wrote half is judged again."""
    path = tmp_path / "outcomes.jsonl"
    book = Book(path)
    for each in OUTCOMES:
        book.add(each)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    again = Book(path)
    assert len(OUTCOMES) - 1 == len(again.outcomes)
    again.add(OUTCOMES[-1])
    assert whole == path.read_bytes()
