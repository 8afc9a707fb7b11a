"""Times of a problem's own Model, under one baseline after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from opsmith.baselines.measuring import time_baseline
from opsmith.core.baseline_times import BaselineRequest, BaselineTime

PROBLEMS = Path(__file__).parents[2] / "modules" / "problems"
LINEAR = PROBLEMS / "level1" / "1_Linear_relu.py"
CONV = PROBLEMS / "level2" / "1_Conv_batch_norm.py"

#: Says what it is called with.
TELLING = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 3, 1, 1))
    def forward(self, x, n):
        turned = x.is_contiguous(memory_format=torch.channels_last)
        raise ValueError(f"{x.dtype} {self.weight.dtype} {n.dtype} {turned}")
def get_inputs():
    return [torch.rand(4, 3, 5, 5), torch.arange(3)]
"""


def timed(file: Path, baseline: str = "eager", **changes: object) -> BaselineTime:
    """What is found of a problem on the CPU, with few trials."""
    request = BaselineRequest(task=f"L1/{file.stem}", file=str(file), baseline=baseline, device="cpu", trials=4)
    return time_baseline(
        BaselineRequest(**{name: getattr(request, name) for name in request.__struct_fields__} | changes),
        lambda: None,
    )


def test_every_trial_counts() -> None:
    """On a CPU there is E alone; the figures are milliseconds in their order."""
    found = timed(LINEAR)
    assert {"E"} == found.times.keys()
    times = found.times["E"]
    assert 4 == times.num_trials
    assert 0 < times.min <= times.mean <= times.max < 1_000
    assert times.mean == found.mean_ms


@pytest.mark.parametrize("file", sorted(PROBLEMS.glob("*/*.py")), ids=lambda file: file.stem)
def test_every_kind_of_problem_is_timed(file: Path) -> None:
    """Integers, buffers that change, several results, dropout, arguments written in place."""
    assert timed(file).problem is None


@pytest.mark.slow
def test_compiled_models_are_timed() -> None:
    """Compiling is over before the clock runs."""
    found = timed(LINEAR, "compile")
    assert found.problem is None
    assert found.times["E"].max < 1_000


def test_channels_last_needs_channels() -> None:
    """A model without images has no such baseline."""
    assert timed(CONV, "channels_last").times
    assert "no input has four dimensions" in str(timed(LINEAR, "channels_last").problem)


def test_floats_are_converted_and_laid_out_as_asked(tmp_path: Path) -> None:
    """Weights like inputs; integers stay."""
    (tmp_path / "telling.py").write_text(TELLING)
    found = timed(tmp_path / "telling.py", "channels_last", dtype="bf16")
    assert "ValueError: torch.bfloat16 torch.bfloat16 torch.int64 True" == found.problem
    assert str(timed(tmp_path / "telling.py").problem).endswith("torch.float32 torch.float32 torch.int64 False")


def test_a_broken_problem_has_no_time(tmp_path: Path) -> None:
    """It is told in one line, and ends nothing."""
    (tmp_path / "broken.py").write_text("import nowhere\n")
    found = timed(tmp_path / "broken.py")
    assert ({}, None) == (found.times, found.mean_ms)
    assert "broken.py:1: does not load" in str(found.problem)


@pytest.fixture
def without_tf32() -> Iterator[None]:
    """Both settings off, and as they were afterwards.

    Torch's test suite, if another test has imported it, lets nobody set them but within a context.
    """
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        yield
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("without_tf32")
def test_tf32_is_set_as_asked() -> None:
    """For products and convolutions; by default torch's own settings hold."""
    timed(LINEAR)
    assert not torch.backends.cuda.matmul.allow_tf32
    timed(LINEAR, tf32="on")
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
