"""Generated programs: passes leave what they return, write and share as it is in eager mode."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from tests.differential.faults import FAULTS, without_thresholds
from tests.differential.grammar import Program, program_at, programs, repro_of
from tests.differential.programs import Task, run_task
from tests.differential.running import check
from tests.differential.shrinking import shrunk
from tests.graphs import in_aten
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.slow

#: Of a seed: programs in which a fault shows that was put back.
SHOWN = {"outputs": (3, 26), "batch_norm": (3, 85)}


@settings(
    max_examples=16,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_a_program_is_with_passes_what_it_is_in_eager_mode(program: Program) -> None:
    """Results, gradients, arguments, parameters and buffers, also after somebody writes to the results."""
    with without_thresholds():
        verdict = check(program)
    assert "failed" != verdict.kind, f"{verdict.detail}\n{repro_of(program)}"


def test_nearly_all_programs_of_a_campaign_run_and_none_fails() -> None:
    """What the command runs by the thousand."""
    tally = run_task(Task(seed=0, first=0, count=24, way="aten", mutation=None))
    assert [] == [one.source for one in tally.failures]
    assert tally.kinds["passed"] >= 20
    assert len(tally.fired) >= 10


def test_what_last_digits_explain_is_no_failure() -> None:
    """Rows of equal elements: the gradient through a fused norm is 0 but for 300 times the rounding of a mean."""
    with without_thresholds():
        assert "passed" == check(program_at(2027, 19932)).kind


def test_a_seed_and_an_index_make_one_program() -> None:
    """So that a failure of a campaign is found again."""
    assert program_at(5, 7) == program_at(5, 7)
    assert 50 == len({repro_of(program_at(5, index)) for index in range(50)})


def test_an_argument_without_dimensions_has_aliases() -> None:
    """Here the second one is an element of the first, and the third one shares its memory."""
    assert ["x0[..., 0]", "x1"] == [one.text for one in program_at(51, 4744).given[1:]]


def test_programs_have_what_went_wrong_before() -> None:
    """Writes, aliases, other sizes and what changes nothing, each in more than one program of a hundred."""
    features = Counter(one for index in range(300) for one in program_at(1, index).features)
    wanted = ["writes", "neutral", "dynamic", "autocast", "training", "inference", "aliasing arguments", "buffers"]
    wanted += ["returned twice", "unbatched convolutions", "batch_norm", "attention", "same twice"]
    assert [] == [one for one in wanted if features[one] < 3]


@pytest.mark.parametrize("name", SHOWN)
def test_a_fault_that_was_found_once_is_found(name: str) -> None:
    """It is put back, and the program that shows it is printed so that it runs by itself."""
    seed, index = SHOWN[name]
    program = program_at(seed, index)
    with without_thresholds():
        assert "passed" == check(program).kind
        with FAULTS[name]():
            assert "failed" == check(program).kind
            small = shrunk(program, lambda one: check(one).kind == "failed", seconds=40)
    assert len(small.steps) <= min(3, len(program.steps))
    assert "torch.compile(" in repro_of(small)


def test_a_graph_refuses_sizes_that_it_was_not_made_for() -> None:
    """As Inductor's code does: torch 2.11 misses a guard where a buffer got a dimension, with and without passes."""
    given = torch.ones(1, 3, 1)
    run = in_aten(())(make_fx(lambda one: (one.view(1, 3, 1) * 2,))(given), [given])
    assert torch.equal(given * 2, *run(given))
    with pytest.raises(AssertionError, match="made for sizes"):
        run(given[None])


def test_a_printed_program_runs() -> None:
    """In a process of its own, which knows no test; here it is not compiled."""
    source = repro_of(program_at(3, 12)).replace("    show(compiled=True)\n", "")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    assert "tensor(" in done.stdout
