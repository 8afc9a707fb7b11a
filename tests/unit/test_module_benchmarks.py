"""The scripts about module problems: a run folder of every quality, its two tables of verdicts, and rates."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.modules.foreign_sizes import record
from benchmarks.modules.throughput import rates, write_solutions
from benchmarks.modules.verdicts import SOLUTIONS, markdown, rows

from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files, solution_files

EXAMPLES = Path(__file__).parents[2] / "examples" / "module_solutions"
TASKS = list(problem_files(SHIPPED_PROBLEMS))


@pytest.mark.parametrize(("folder", "least"), [(SOLUTIONS, 40), (EXAMPLES / "cpp", 6), (EXAMPLES / "triton", 6)])
def test_every_solution_belongs_to_a_problem(folder: Path, least: int) -> None:
    """A run finds each file in the folder, by its problem's number."""
    found = {file for task in TASKS for file in solution_files(folder, task).values()}
    assert set(folder.glob("*.py")) == found
    assert least <= len(found)


def test_varied_solutions_are_of_every_quality() -> None:
    """Each says in its first line what it is."""
    kinds = Counter(re.match(r'"""(\w+): ', file.read_text())[1] for file in SOLUTIONS.glob("*.py"))  # type: ignore[index]
    assert {"Right", "Inexact", "Half", "Leans", "Broken", "Cheats"} == set(kinds)
    assert 7 <= min(kinds.values())


def test_the_table_names_what_is_judged_otherwise(tmp_path: Path) -> None:
    """With the stricter judge's reason, apart from what is judged alike."""
    table = tmp_path / "verdicts.csv"
    lines = ["task,run,outcome,why", "L2/1_SwiGLU,kernelbench,PASSED,", "L2/1_SwiGLU,own,PASSED,"]
    lines += ["L1/25_LayerNorm@1,kernelbench,PASSED,", "L1/25_LayerNorm@1,own,WRONG_VALUE,inputs: 3 | 4 are off"]
    table.write_text("\n".join(lines))
    text = "\n".join(markdown(rows(table)))
    assert "Of 2 solutions 2 are accepted under `--tolerance kernelbench`, 1 under" in text
    differ, _, alike = text.partition("## Judged alike")
    assert r"| level_1_problem_25_sample_1 | Leans: on a weight of one" in differ
    assert r"| PASSED | WRONG_VALUE | inputs: 3 \| 4 are off |" in differ
    assert "level_2_problem_1_sample_0" in alike


def test_as_many_solutions_are_written_as_are_asked(tmp_path: Path) -> None:
    """And one that hangs; no two have the same text, and patterns name their problems alone."""
    patterns = write_solutions(tmp_path, 130).split(",")
    texts = [file.read_text() for file in tmp_path.glob("level_*_problem_*_sample_*_kernel.py")]
    assert (131, 131) == (len(texts), len(set(texts)))
    assert 1 == sum("while True" in text for text in texts)
    assert {"L1/1_*", "L2/1_*", "L2/99_*"} < set(patterns)
    assert len(patterns) == len(set(patterns))


def test_rates_are_told_in_all_and_by_minute() -> None:
    """A rate that falls off shows."""
    found = rates([(30.0, 0, 0), (59.0, 20, 4), (90.0, 25, 20), (120.0, 30, 30)])
    assert (15.0, 15.0) == (found["judged_a_minute"], found["judged_and_timed_a_minute"])
    assert [20, 10, 0] == found["judged_in_each_minute"]


@pytest.mark.parametrize("file", sorted((EXAMPLES / "triton").glob("*.py")), ids=lambda file: file.stem)
def test_kernels_of_the_examples_say_what_they_take(file: Path) -> None:
    """They are read as examples."""
    tree = ast.parse(file.read_text())
    functions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert all(ast.get_docstring(node) for node in [tree, *functions])


def test_every_problem_that_is_not_judged_has_a_reason() -> None:
    """Void ones, those that could not be asked, and those with a case that fails; each level has its count."""
    per_op: dict[str, dict[str, Any]] = {
        "L1/1_A": {"accepted": True, "not_asked": None},
        "L1/2_B": {"accepted": False, "not_asked": "no einops"},
        "L2/1_C": {"accepted": False, "not_asked": None},
    }
    failed = [{"op_name": "L2/1_C", "error_type": "TIMEOUT", "error_msg": "30 s"}]
    found = record(per_op, {"L2/2_D": "zero everywhere"}, failed)
    assert (4, 1, 1) == (found["problems"], found["judged"], found["void"])
    assert {"L1": {"problems": 2, "judged": 1}, "L2": {"problems": 2, "judged": 0}} == found["levels"]
    assert {"L1/2_B": "no einops", "L2/1_C": "TIMEOUT: 30 s", "L2/2_D": "zero everywhere"} == found["not_judged"]
