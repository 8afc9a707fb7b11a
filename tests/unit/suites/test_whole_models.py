from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

from opsmith.audit import sizes
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.tasks.problem import BrokenProblem, ProblemFile

MODELS = {task: file for task, file in problem_files(SHIPPED_PROBLEMS).items() if task.startswith("L4/")}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of torch.jit, and of transformers' own.


def test_there_are_twenty_of_them() -> None:
    """As the page on module problems says."""
    assert 20 == len(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("task", MODELS)
def test_a_whole_model_answers_the_same_twice(task: str) -> None:
    """With finite numbers, under the same seeds."""
    problem = ProblemFile(MODELS[task], small=True)
    with torch.no_grad():
        answers = [tree_leaves(problem.model(problem.init_inputs(0), 0)(*problem.inputs(1))) for _ in range(2)]
    assert all(bool(result.isfinite().all()) for result in answers[0])
    assert [[True] * len(answers[0])] == [[torch.equal(*pair) for pair in zip(*answers, strict=True)]]


@pytest.mark.slow
def test_a_model_that_reads_its_mask_is_counted() -> None:
    """Transformers looks into a mask where the mask has content."""
    figures = sizes.figures(MODELS["L4/12_BART"], small=False)
    assert [] == list(sizes.findings(figures))


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed opsmith alone has three levels of four."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    file = tmp_path / "problem.py"
    file.write_text("import transformers\n")
    with pytest.raises(BrokenProblem, match=r"pip install 'opsmith\[models\]'"):
        ProblemFile(file)
