"""Module problems through the whole pipeline: what is right is accepted, what is not says why."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes
from typer.testing import CliRunner

from opsmith import pipeline
from opsmith.cli.main import app
from opsmith.core.case import CaseRef
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files, problems_hash
from opsmith.core.run import Options, RunDirectory, Selection, Summary
from opsmith.core.verdict import Status
from opsmith.errors import BadInput
from opsmith.runner.protocol.call_files import Spool

ROOT = Path(__file__).parents[1] / "modules"
PROBLEMS = ROOT / "problems"
pytestmark = [pytest.mark.slow, pytest.mark.corpus]

#: Solution -> (its task, what its cases may get).
WRONG = {
    "missing_bias": ("L1/1_Linear_relu", {"UNSUPPORTED"}),
    "transposed_weight": ("L1/1_Linear_relu", {"UNSUPPORTED"}),
    "bfloat16": ("L1/1_Linear_relu", {"WRONG_VALUE"}),
    "baked_weights": ("L1/1_Linear_relu", {"WRONG_VALUE"}),
    "zeroes_input": ("L1/1_Linear_relu", {"MUTATED_INPUT"}),
    "zeroes_weight": ("L1/1_Linear_relu", {"MUTATED_INPUT"}),
    "first_result": ("L1/1_Linear_relu", {"PASSED", "WRONG_VALUE"}),
    "no_module": ("L1/1_Linear_relu", {"LOAD_FAILED"}),
    "still_statistics": ("L2/1_Conv_batch_norm", {"WRONG_VALUE"}),
    "one_of_two": ("L2/2_Layer_norm_softmax", {"WRONG_STRUCTURE"}),
    "other_key": ("L1/10_Argmax", {"WRONG_STRUCTURE"}),
    "identity_for_positive": ("L1/2_Softsign", {"PASSED", "WRONG_VALUE"}),
}


@pytest.fixture(scope="module", autouse=True)
def _shared() -> Iterator[None]:
    with shared_processes("modules"):
        yield


class Counting(pipeline.Silent):
    """Remembers how many cases there were to be judged, and how many were at last."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self._stage = ""

    def stage(self, name: str, total: int) -> None:
        self._stage = name
        self.totals[name] = total

    def advance(self, done: int, _note: str = "") -> None:
        self.done[self._stage] = done


def judge(
    backend: str | Path,
    out: Path,
    *,
    problems: Path = PROBLEMS,
    integrity: str = "auto",
    timing: str = "off",
    progress: pipeline.Progress | None = None,
) -> Summary:
    """Judge a backend whose solutions may compose ops."""
    options = Options(
        suite="modules",
        backend=str(backend),
        device="cpu",
        dtypes=("f32",),
        policy="any",
        integrity=integrity,
        timing=timing,
        selection=Selection(problems=str(problems), problems_hash=problems_hash(problems)),
    )
    return pipeline.evaluate(options, out, jobs=1, progress=progress)


def test_the_reference_solves_every_problem(tmp_path: Path) -> None:
    """Anything else would be a fault of the judge's."""
    summary = judge("aten", tmp_path / "run")
    assert summary.accepted
    assert set(problem_files(PROBLEMS)) == set(summary.per_op)
    assert {"module"} == {op.task_kind for op in summary.per_op.values()}
    with (tmp_path / "run" / "operator_summary.csv").open() as stream:
        assert len(summary.per_op) == len(list(csv.DictReader(stream)))
    assert ["L1", "L2", "L3", "all"] == [scores.level for scores in summary.levels]
    assert {"1": 1.0} == summary.levels[-1].pass_at
    exported = json.loads((tmp_path / "run" / "eval_results.json").read_text())
    assert set(problem_files(PROBLEMS)) == set(exported)


def test_honest_solutions_are_accepted(tmp_path: Path) -> None:
    """In C++ and in plain torch, in every layout of files, with other orders of summation."""
    summary = judge(ROOT / "honest", tmp_path / "run")
    assert {} == {name: op.statuses for name, op in summary.per_op.items() if not op.accepted}
    assert len(problem_files(PROBLEMS)) == summary.ops["correct"]


def test_the_shipped_kernels_solve_problems_in_8_bits(tmp_path: Path) -> None:
    """By the classes that their manifest names: of a file that others import, of a product, with weights."""
    names = ("1_TokenQuantize", "12_MXFP4Linear", "15_NormQuantize")
    selection = Selection(
        problems=str(SHIPPED_PROBLEMS),
        problems_hash=problems_hash(SHIPPED_PROBLEMS),
        sizes="small",
    )
    ops = tuple([f"low_precision/{name}" for name in names])
    options = Options(suite="modules", backend="opsmith", device="cpu", ops=ops, dtypes=("f32",), selection=selection)
    summary = pipeline.evaluate(options, tmp_path / "run", jobs=1)
    assert set(ops) == {name for name, op in summary.per_op.items() if op.accepted}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of all wrong solutions, each on a copy of its problem that is called like it.

    Their values alone are judged: most of them make the calls of Model too, which is held against them.
    """
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "problems").mkdir()
    files = problem_files(PROBLEMS)
    for solution, (task, _) in WRONG.items():
        shutil.copy(files[task], folder / "problems" / f"{solution}.py")
    judge(ROOT / "wrong", folder / "run", problems=folder / "problems", integrity="off")
    return RunDirectory(folder / "run")


def test_inputs_too_large_for_a_message_reach_the_solution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker and referee read them from files, the second values of a case, too."""
    lent: list[Path] = []
    copy = Spool.copy

    def noted(spool: Spool, case: CaseRef, path: Path) -> None:
        lent.append(path)
        copy(spool, case, path)

    monkeypatch.setattr(Spool, "copy", noted)
    problems = tmp_path / "problems" / "level1"
    problems.mkdir(parents=True)
    (problems / "1_Relu.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(1100, 1000)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    summary = judge("aten", tmp_path / "run", problems=problems.parent)
    assert summary.accepted
    assert len(lent) >= 4
    assert not any(path.exists() for path in lent)


def test_every_sample_of_a_problem_is_counted(tmp_path: Path) -> None:
    """Their cases have the same names."""
    folder = tmp_path / "solutions"
    folder.mkdir()
    source = (ROOT / "honest" / "2_Softsign.py").read_text()
    for sample in range(3):
        (folder / f"level_1_problem_2_sample_{sample}_kernel.py").write_text(f"{source}# {sample}\n")
    counted = Counting()
    assert judge(folder, tmp_path / "run", progress=counted).accepted
    assert counted.totals["judging"] == counted.done["judging"] > 3


@pytest.mark.parametrize("solution", WRONG)
def test_a_wrong_solution_is_rejected_for_its_reason(wrong: RunDirectory, solution: str) -> None:
    """The status tells its author where to look."""
    found = wrong.summary().per_op[solution]
    assert not found.accepted
    assert WRONG[solution][1] == set(found.statuses)


def test_a_mismatch_names_the_keys(wrong: RunDirectory) -> None:
    """A solution whose layers are called otherwise is repaired in a minute by who knows which."""
    details = {verdict.detail for verdict in wrong.verdicts() if verdict.status is Status.UNSUPPORTED}
    assert any("linear.bias is missing" in detail for detail in details)
    assert any("linear.weight has shape [16, 24] instead of [24, 16]" in detail for detail in details)


def test_solutions_are_timed(tmp_path: Path) -> None:
    """By referees of the pairs' own, which have enumerated nothing; the level has its shares of them."""
    problem = PROBLEMS / "level1" / "2_Softsign.py"
    summary = judge(ROOT / "honest", tmp_path / "run", problems=problem, timing="quick")
    assert [] == [timed.problem for timed in RunDirectory(tmp_path / "run").timed_cases() if timed.problem]
    (speeds,) = summary.levels[-1].speeds
    assert ("E", 1, 1.0) == (speeds.quantity, speeds.timed, speeds.fast["0"])


def test_check_takes_a_problem_file_for_a_task(tmp_path: Path) -> None:
    """One solution and one problem, with an editor open."""
    words = ["check", str(ROOT / "honest" / "2_Softsign.py"), "--task", str(PROBLEMS / "level1" / "2_Softsign.py")]
    result = CliRunner().invoke(app, [*words, "--policy", "any", "--device", "cpu", "--json"], standalone_mode=False)
    assert 0 == result.return_value, result.output
    summary = json.loads(result.stdout)
    assert ["2_Softsign"] == list(summary["per_op"])


def test_a_broken_problem_costs_itself_only(tmp_path: Path) -> None:
    """Alone it ends the run with its one line, among others it is told of."""
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "broken.py").write_text("import nowhere\n")
    with pytest.raises(BadInput, match="broken.py:1: does not load: ModuleNotFoundError"):
        judge("aten", tmp_path / "alone", problems=tmp_path / "problems")
    shutil.copy(PROBLEMS / "level1" / "2_Softsign.py", tmp_path / "problems")
    assert 1 == judge("aten", tmp_path / "both", problems=tmp_path / "problems").ops["correct"]
    assert "broken.py:1: does not load" in str(RunDirectory(tmp_path / "both").plan().skipped)


def test_a_run_is_not_resumed_on_other_problems(tmp_path: Path) -> None:
    """Half its verdicts would be about another question."""
    problem = tmp_path / "problem.py"
    shutil.copy(PROBLEMS / "level1" / "2_Softsign.py", problem)
    judge("aten", tmp_path / "run", problems=problem)
    run = RunDirectory(tmp_path / "run")
    (run.path / "verdicts.jsonl").write_text('{"damaged"\n')
    problem.write_text(problem.read_text().replace("1 + x.abs()", "2 + x.abs()"))
    selection = Selection(problems=str(problem), problems_hash=problems_hash(problem))
    options = Options(suite="modules", backend="aten", device="cpu", dtypes=("f32",), policy="any", selection=selection)
    with pytest.raises(BadInput, match="started with other options"):
        pipeline.evaluate(options, run.path, resume=True)
