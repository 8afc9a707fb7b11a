"""What a program that writes kernels may ask of a judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.benches import ReadingBench, source

from opsmith.errors import BadInput, UnknownName


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReadingBench]:
    """Of a judge that reads verdicts."""
    with ReadingBench(["relu.default", "exp.default"], tmp_path / "bench") as opened:
        yield opened


def test_tasks_are_chosen_by_a_pattern(bench: ReadingBench) -> None:
    """As on the command line: a packet or a wildcard."""
    assert ["relu.default", "exp.default"] == [task.name for task in bench.tasks()]
    assert ["relu.default"] == [task.name for task in bench.tasks("relu")]


def test_a_statement_says_how_a_kernel_is_handed_in(bench: ReadingBench) -> None:
    """Tools and replies differ in that."""
    text = bench.statement("relu.default", answer="Carve it in stone.")
    assert "Carve it in stone." in text
    assert "relu__default_kernel_impl" in text
    assert "T([2], f32)" in text


def test_checking_does_not_time(bench: ReadingBench) -> None:
    """It is asked often, and timing takes long."""
    right = source("right speed=2")
    assert bench.check("relu.default", right).speedup is None
    assert 2.0 == bench.time("relu.default", right).speedup


def test_a_case_is_repeated_by_its_address(bench: ReadingBench) -> None:
    """A failure names it; another address is a mistake that is told."""
    assert "WRONG_VALUE" == bench.reproduce("relu.default", source("wrong"), "c").status
    with pytest.raises(BadInput, match="copy the address"):
        bench.reproduce("relu.default", source("wrong"), "d")


def test_the_best_kernel_is_the_fastest_that_the_last_word_accepted(bench: ReadingBench, tmp_path: Path) -> None:
    """A cheat, a wrong and a slower kernel leave it alone; the directory holds it."""
    assert "opsmith's own" in getattr(bench.best("exp.default"), "origin", "")
    accepted = [
        bench.submit("relu.default", source(words)).accepted
        for words in ("right speed=2", "cheat speed=9", "wrong speed=9", "right speed=1.5")
    ]
    assert [True, False, False, True] == accepted
    best = bench.best("relu.default")
    assert best is not None
    assert (2.0, source("right speed=2")) == (best.speedup, best.source)
    (file,) = (tmp_path / "bench/kernels").rglob("*.py")
    assert source("right speed=2") == file.read_text()
    assert ["0001", "0002", "0003", "0004"] == sorted(path.name for path in (tmp_path / "bench/runs").iterdir())


def test_a_refusal_says_why(bench: ReadingBench) -> None:
    """In one line."""
    submitted = bench.submit("relu.default", source("cheat"))
    assert (False, "DISHONEST: DISHONEST it is") == (submitted.accepted, submitted.detail)


def test_accepted_kernels_outlive_the_workbench(tmp_path: Path) -> None:
    """The same folder knows them again."""
    for _ in range(2):
        with ReadingBench(["relu.default"], tmp_path) as bench:
            before = bench.best("relu.default")
            bench.submit("relu.default", source("right speed=4"))
    assert before is not None
    assert 4.0 == before.speedup
    (tmp_path / "best.json").write_text("{")
    with pytest.raises(BadInput, match=r"best\.json is damaged"), ReadingBench(["relu.default"], tmp_path):
        pass


def test_mistakes_are_told(bench: ReadingBench) -> None:
    """They are the caller's, and no verdicts."""
    with pytest.raises(UnknownName, match="did you mean relu.default"):
        bench.check("rely.default", source("right"))
    with pytest.raises(BadInput, match="defines no kernel"):
        bench.check("relu.default", "pass\n")
    with pytest.raises(BadInput, match="not text in UTF-8"):
        bench.check("relu.default", "\ud800")


def test_without_timing_nothing_is_timed(tmp_path: Path) -> None:
    """And that is said."""
    with ReadingBench(["relu.default"], tmp_path, timing="off") as bench, pytest.raises(BadInput, match="--timing"):
        bench.time("relu.default", source("right"))
