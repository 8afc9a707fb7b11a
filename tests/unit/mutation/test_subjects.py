"""Subjects: whose kernels are mutated, and what is written of a mutant."""

from __future__ import annotations

from pathlib import Path

from opsmith.loading import from_file
from opsmith.mutation.mutants import Source
from opsmith.mutation.operators import all_operators
from opsmith.mutation.study import draw
from opsmith.mutation.subjects import subjects_of, write

FOLDER = Path(__file__).parents[3] / "benchmarks" / "mutants" / "references"
OPERATORS = all_operators()
FILE = """
import torch
SCALE = 2


def _half(x):
    return x / SCALE


def square__default_kernel_impl(x):
    return 2 * _half(x) * x


def neg__default_kernel_impl(x):
    return x * -1


def helper(x):
    return x
"""


def test_the_references_are_of_many_ops() -> None:
    """What the judge is measured on."""
    subjects = subjects_of(str(FOLDER))
    ops = {each.op for each in subjects}
    assert len(ops) == len(subjects)
    assert len(ops) >= 150


def test_a_file_of_kernels(tmp_path: Path) -> None:
    """Each function of the naming is a subject, with its helpers and nothing else."""
    file = tmp_path / "kernels.py"
    file.write_text(FILE)
    subjects = {each.op: each for each in subjects_of(str(file))}
    assert {"square.default", "neg.default"} == subjects.keys()
    assert "_half" in subjects["square.default"].source
    assert "SCALE" in subjects["square.default"].source
    assert "_half" not in subjects["neg.default"].source
    assert ["neg.default"] == [each.op for each in subjects_of(str(file), ["neg.default"])]


def test_the_shipped_kernels_keep_the_files_that_they_import(tmp_path: Path) -> None:
    """A mutant of a family's file is loaded as the family is."""
    (subject,) = subjects_of("opsmith", ["relu.default"])
    assert any(name.startswith("common/") for name in subject.beside)
    mutant = next(Source(subject.source, subject.function, subject.op).mutants(OPERATORS))
    kernel = write(subject, tmp_path, mutant)
    assert kernel.root is not None
    assert callable(from_file(kernel, Path(kernel.root)))
    assert mutant.source == (Path(kernel.root) / subject.file).read_text()


def test_a_sample_is_spread_and_repeats(tmp_path: Path) -> None:
    """The same seed gives the same mutants, of all ops and of as many operators as there is room for."""
    file = tmp_path / "kernels.py"
    file.write_text(FILE)
    subjects = subjects_of(str(file))
    drawn = draw(subjects, OPERATORS, 12, 5)
    assert drawn == draw(subjects, OPERATORS, 12, 5)
    assert drawn != draw(subjects, OPERATORS, 12, 6)
    assert [6, 6] == [len(mutants) for mutants in drawn.values()]
    assert 12 == len({each.operator for mutants in drawn.values() for each in mutants})
