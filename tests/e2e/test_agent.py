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
TASK = "relu.default"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workbench, Path]]:
    """A judge of a task on the CPU."""
    found = probe(tmp_path_factory.mktemp("probe"))
    if found[Layer.NETWORK] or found[Layer.FILES]:
        pytest.skip("no user namespaces, or no Landlock")
    out = tmp_path_factory.mktemp("agent")
    options = Options(
        suite="smoke", backend="x", device="cpu", dtypes=("f32",), ops=(TASK,), policy="any", timing="off"
    )
    with Workbench(options, out, dsl="torch", jobs=1) as opened:
        yield opened, out


def work(bench: tuple[Workbench, Path], what: str) -> tuple[AgentResult, str]:
    """Have the script work, in a folder of its own; what came of it, and what it printed."""
    opened, out = bench
    command = AgentCommand(command=f"{sys.executable} {SCRIPT} {what}")
    [result] = work_on_tasks(opened, opened.tasks(), command, out / what, at_a_time=1)
    return result, (agent_folder(out / what, TASK) / "transcript.txt").read_text()


def test_an_agent_solves_a_task_by_itself(bench: tuple[Workbench, Path]) -> None:
    """With check alone; the kernel is judged once more on values that nobody has seen."""
    result, said = work(bench, "solve_truly")
    assert (True, 2, 1) == (result.accepted, result.judgements, result.submissions), said
    assert (Path(result.run) / "summary.json").is_file()


def test_a_kernel_that_reads_the_workspace_is_refused(bench: tuple[Workbench, Path]) -> None:
    """No kernel can: it runs where the workspace is not."""
    result, said = work(bench, "read_workspace")
    assert (False, 1, 0) == (result.accepted, result.judgements, result.submissions)
    assert "did not accept this file" in result.reason
    assert "Permission denied" in said
