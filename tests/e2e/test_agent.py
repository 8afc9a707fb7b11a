"""A scripted agent against the real judge."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsmith.agents.campaign import AgentCommand, AgentResult, agent_folder, work_on_tasks
from opsmith.agents.workbench import Workbench
from opsmith.core.run import Options
from opsmith.runner.sandbox.layers import Layer, probe

pytestmark = pytest.mark.corpus  # It judges kernels, hacks among them.

SCRIPT = Path(__file__).parents[1] / "scripted_agent.py"
FIVE = ("relu.default", "exp.default", "add.Tensor", "mm.default", "clamp.default")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workbench, Path]]:
    """A judge of five tasks on the CPU."""
    found = probe(tmp_path_factory.mktemp("probe"))
    if found[Layer.NETWORK] or found[Layer.FILES]:
        pytest.skip("no user namespaces, or no Landlock")
    out = tmp_path_factory.mktemp("agent")
    options = Options(suite="smoke", backend="x", device="cpu", dtypes=("f32",), ops=FIVE, policy="any", timing="off")
    with Workbench(options, out, dsl="torch", jobs=2) as opened:
        yield opened, out


def work(bench: tuple[Workbench, Path], what: str, *tasks: str) -> list[AgentResult]:
    """Have the script work on tasks, in a folder of its own."""
    opened, out = bench
    chosen = [task for task in opened.tasks() if task.name in tasks]
    command = AgentCommand(command=f"{sys.executable} {SCRIPT} {what}")
    return work_on_tasks(opened, chosen, command, out / what, at_a_time=2)


def test_an_agent_solves_five_tasks_by_itself(bench: tuple[Workbench, Path]) -> None:
    """With check alone; each is judged once more on values that nobody has seen."""
    results = work(bench, "solve_truly", *FIVE)
    said = {each.task: (agent_folder(bench[1] / "solve_truly", each.task) / "transcript.txt") for each in results}
    assert [True] * 5 == [each.accepted for each in results], [file.read_text() for file in said.values()]
    assert {(2, 1)} == {(each.judgements, each.submissions) for each in results}
    assert {True} == {(Path(each.run) / "summary.json").is_file() for each in results}


def test_a_kernel_that_reads_the_workspace_is_refused(bench: tuple[Workbench, Path]) -> None:
    """No kernel can: it runs where the workspace is not."""
    (result,) = work(bench, "read_workspace", "relu.default")
    said = (agent_folder(bench[1] / "read_workspace", "relu.default") / "transcript.txt").read_text()
    assert (False, 1, 0) == (result.accepted, result.judgements, result.submissions)
    assert "did not accept this file" in result.reason
    assert "Permission denied" in said
