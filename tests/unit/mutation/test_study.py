"""A study that is interrupted leaves its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.cli.mutants import mutants
from opsmith.mutation import study
from opsmith.mutation.outcomes import Book, Outcome, Result
from opsmith.mutation.subjects import subjects_of

KERNEL = "def relu__default_kernel_impl(x):\n    return x.clamp(min=0)\n"
KILLED = Outcome(
    mutant="m", op="relu.default", origin="o", operator="direction", dtype="f32", judge="opsmith", result=Result.KILLED
)


def test_tables_are_written_where_a_study_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is lent for an hour takes what was not written with it."""

    def interrupted(self: study.Study) -> None:
        self._book.add(KILLED)
        raise KeyboardInterrupt

    monkeypatch.setattr(study.Study, "run", interrupted)
    kernel = tmp_path / "relu.py"
    kernel.write_text(KERNEL)
    with pytest.raises(KeyboardInterrupt):
        mutants([str(kernel)], tmp_path / "record")
    assert "| direction | 1 |" in (tmp_path / "record" / "table.md").read_text()
    assert (tmp_path / "record" / "summary.json").exists()


def test_tables_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is killed by force leaves those of a minute ago."""
    monkeypatch.setattr(study, "WRITTEN_EVERY_S", 0.0)
    told: list[int] = []
    book = Book(tmp_path / "outcomes.jsonl")
    kernel = tmp_path / "relu.py"
    kernel.write_text(KERNEL)
    (subject,) = subjects_of(str(kernel))
    asked = study.Asked(dtypes=("f32",))
    work = study.Study(asked, [subject], book, tmp_path, written=lambda: told.append(len(book.outcomes)))
    work._note(subject, "f32", "opsmith", Result.SURVIVED)
    assert [1] == told
