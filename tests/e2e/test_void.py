"""A problem that asks nothing, and one that nearly does, through every way to judge a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes
from typer.testing import CliRunner

from opsmith.cli.main import app
from opsmith.core.run import Options, RunDirectory, Selection
from opsmith.errors import BadInput, VoidTask
from opsmith.generate.reward import Rewards
from opsmith.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.corpus]

HEAD = "import torch\nfrom torch import nn\n\n\nclass {name}(nn.Module):\n"
INIT = "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(16, 12)\n\n"
#: The mean over a dimension of one element is taken from that element; of two elements it is not.
FORWARD = "    def forward(self, x):\n        y = self.linear(x).view(8, -1, {groups}).amax(1)\n"
ANSWER = "        return torch.relu(y - y.mean(1, keepdim=True))\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(8, 16)]\n"
ZEROS = "    def forward(self, x):\n        return torch.zeros(8, {groups})\n"
COMPOSED = "        return (y - y.sum(1, keepdim=True) / y.shape[1]).clamp(min=0)\n"


def model(name: str, *parts: str, groups: int) -> str:
    """The source of a module."""
    return HEAD.format(name=name) + INIT + "".join(parts).format(groups=groups)


@pytest.fixture(scope="module", autouse=True)
def _shared() -> Iterator[None]:
    with shared_processes("void"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two problems, and three solutions of each: one returns zeros, one computes, and one does not load."""
    root = tmp_path_factory.mktemp("void")
    for task, groups in {"1_Nothing": 1, "2_Nearly": 2}.items():
        for kind, source in {
            "problems": model("Model", FORWARD, ANSWER, groups=groups) + INPUTS,
            "zeros": model("ModelNew", ZEROS, groups=groups),
            "computes": model("ModelNew", FORWARD, COMPOSED, groups=groups),
        }.items():
            (root / kind / "level1").mkdir(parents=True, exist_ok=True)
            (root / kind / "level1" / f"{task}.py").write_text(source)
    return root


def run(folder: Path, solutions: str, out: Path, *more: str) -> tuple[int, dict[str, object]]:
    """The exit status and the summary of a run on the CPU under policy any."""
    words = ["run", "--suite", "modules", "--problems", str(folder / "problems"), "--backend", str(folder / solutions)]
    words += ["--device", "cpu", "--policy", "any", "--timing", "off", "--json", "-o", str(out), *more]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    return result.return_value, json.loads(result.stdout)


@pytest.mark.parametrize(("solutions", "correct"), [("zeros", 0), ("computes", 1)])
@pytest.mark.parametrize("harness", ["strict", "kernelbench"])
def test_a_degenerate_problem_is_void_whatever_answers_it(
    folder: Path, tmp_path: Path, solutions: str, correct: int, harness: str
) -> None:
    """Its neighbour, which is nearly the same, is judged as ever."""
    status, summary = run(folder, solutions, tmp_path / "run", "--tolerance", harness)
    assert ["L1/1_Nothing"] == list(summary["void"])  # type: ignore[call-overload]
    assert {"asked": 1, "answered": 1, "correct": correct} == summary["ops"]
    assert (1 - correct, bool(correct)) == (status, summary["accepted"])
    found: dict[str, set[str]] = {verdict.op: set() for verdict in RunDirectory(tmp_path / "run").verdicts()}
    for verdict in RunDirectory(tmp_path / "run").verdicts():
        found[verdict.op].add(verdict.status)
    assert {"VOID"} == found["L1/1_Nothing"]
    assert ({"PASSED"} == found["L1/2_Nearly"]) is bool(correct)
    assert 1 == summary["levels"][0]["problems"]  # type: ignore[index]


def test_a_check_of_a_void_problem_says_so(folder: Path) -> None:
    """It is no success, and the kernel is not said to be wrong."""
    problem, kernel = (folder / kind / "level1" / "1_Nothing.py" for kind in ("problems", "zeros"))
    words = ["check", str(kernel), "--task", str(problem), "--device", "cpu", "--timing", "off", "--json"]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    summary = json.loads(result.stdout)
    assert (1, False, {}) == (result.return_value, summary["accepted"], summary["per_op"])
    [reason] = summary["void"].values()
    assert reason.startswith("constant: the answer is zero everywhere")


def test_a_session_judges_no_kernel_on_a_void_problem(folder: Path, tmp_path: Path) -> None:
    """No model is asked, no service takes a kernel, no reward is earned."""
    options = Options(
        suite="modules",
        backend="session",
        device="cpu",
        dtypes=("f32",),
        policy="any",
        selection=Selection(problems=str(folder / "problems"), problems_hash="0"),
    )
    with Session(options, tmp_path / "judged") as session:
        assert (["L1/2_Nearly"], ["L1/1_Nothing"]) == (list(session.tasks), list(session.void))
        with pytest.raises(VoidTask, match="L1/1_Nothing is void: constant: the answer is zero everywhere"):
            session.judge("L1/1_Nothing", folder / "zeros" / "level1" / "1_Nothing.py")
        rewards = Rewards(session, tmp_path / "sources")
        source = (folder / "zeros" / "level1" / "1_Nothing.py").read_text()
        assert (0.0, False) == ((reward := rewards.of("L1/1_Nothing", source)).value, reward.accepted)
        assert "is void" in reward.detail
    only = options.selection
    alone = Options(suite="modules", backend="s", device="cpu", dtypes=("f32",), ops=("L1/1_Nothing",), selection=only)
    with pytest.raises(BadInput, match="is void"), Session(alone, tmp_path / "alone"):
        pass


def test_ops_lists_what_is_void(folder: Path) -> None:
    """Before anything is judged."""
    words = ["ops", "--suite", "modules", "--problems", str(folder / "problems"), "--device", "cpu", "--json"]
    rows = json.loads(CliRunner().invoke(app, words, standalone_mode=False).stdout)
    assert [True, False] == [bool(row["void"]) for row in rows]
