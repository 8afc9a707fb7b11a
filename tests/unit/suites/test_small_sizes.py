"""Smaller sizes for problems that name none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.tasks.dependence import independent
from opsmith.tasks.problem import Problem, ProblemFile
from opsmith.tasks.size_constants import SizeConstants
from opsmith.tasks.small_sizes import FITTING, shrunk, steps
from opsmith.tasks.work import Work, work

HEAD = "import torch\nfrom torch import nn\n"
ATTENTION = """
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        assert width % heads == 0
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

batch_size = 128
seq_len = 1024
n_embd, n_head = 768, 12
def get_inputs(): return [torch.rand(batch_size, seq_len, n_embd)]
def get_init_inputs(): return [n_embd, n_head]
"""
FIXED = """
class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv, self.line = nn.Conv2d(3, 16, 3, stride=4, padding=1), nn.Linear(16 * 56 * 56, classes)
    def forward(self, x):
        return self.line(self.conv(x).relu().flatten(1))

def get_inputs(): return [torch.rand(1024, 3, 224, 224)]
def get_init_inputs(): return [10]
"""


def written(folder: Path, text: str) -> Path:
    """A problem file."""
    file = folder / "problem.py"
    file.write_text(HEAD + text)
    return file


def small(folder: Path, text: str) -> tuple[list[Any], list[Any]]:
    """The arguments of Model and the inputs at small sizes."""
    parts = ProblemFile(written(folder, text), small=True)
    return parts.init_inputs(0), parts.inputs(0)


def values(source: str) -> list[int]:
    """The size constants of a file, those of inputs only as negative numbers."""
    return [-each.value if each.inputs_only else each.value for each in SizeConstants(source, "p.py").constants]


# ---------------------------------------------------------------- constants


def test_terms_of_numbers_are_one_constant() -> None:
    """``2048 * 2`` is a size of 4096; of a shape with names only the numbers are constants."""
    source = "N = 2048 * 2\nM = (1 << 12) + 2 ** 3\ndef get_inputs(): return [N, M, N * 3, True, -5, 'a']"
    assert [-4096, -4104, -3, -5] == values(source)


def test_what_model_reads_is_no_size() -> None:
    """A solution has that number in its own file; neither in a default, nor through a function or another constant."""
    source = """
A = 100
B = A + 200
C = 300
D = 400
E = 500
def helper(x): return x + B
class Model:
    width = C
    def __init__(self, a, d=D):
        E = a
        self.e = E
    def forward(self, x): return helper(x)
def get_inputs(): return [A, B, C, D, E]
"""
    assert [-500] == values(source)


def test_constants_of_both_functions_are_told_apart() -> None:
    """What only inputs are made of is no part of the Model's structure."""
    source = """
rows = 64
def shape(): return (rows, 3 * width)
height = width = 32
unused = 7
def get_inputs(): return [shape(), height]
def get_init_inputs(): return [width, 11]
"""
    assert [-64, -3, 32, 11] == values(source)


def test_a_file_runs_with_other_numbers_in_its_places() -> None:
    """And everything else as it was."""
    found = SizeConstants("a = 8 * 8\nb = a + 64\ndef get_inputs(): return a, b, 64", "p.py")
    (first, *_, last) = found.constants
    names: dict[str, Any] = {}
    exec(found.code({first.place: 5, last.place: 7}), names)
    assert (5, 69, 7) == names["get_inputs"]()


# ---------------------------------------------------------------- the search


@pytest.mark.slow
def test_sizes_shrink_until_a_call_fits(tmp_path: Path) -> None:
    """Width stays a multiple of the heads, and what differed still differs."""
    (width, heads), (inputs,) = small(tmp_path, ATTENTION)
    assert 12 == heads
    assert 0 == width % heads
    assert 3 == len({*inputs.shape})
    model = ProblemFile(tmp_path / "problem.py", small=True).model([width, heads], 0)
    counted = work(lambda: model, lambda: [inputs])
    assert all(each <= most for each, most in zip(counted, FITTING, strict=True))


def test_a_problem_that_fits_stays_as_it_is(tmp_path: Path) -> None:
    """A solution of it may rely on its sizes."""
    text = """
class Model(nn.Module):
    def forward(self, x): return x.relu()
def get_inputs(): return [torch.rand(256, 512)]
"""
    assert shrunk(written(tmp_path, text), {}) is None


def test_sizes_that_a_problem_names_are_its_own(tmp_path: Path) -> None:
    """Nothing is searched beside ``SMALL``."""
    (_, _), (inputs,) = small(tmp_path, ATTENTION + "SMALL = {'batch_size': 77}\n")
    assert (77, 1024, 768) == tuple(inputs.shape)


def test_cases_that_a_file_names_have_its_own_sizes(tmp_path: Path) -> None:
    """They are what is asked, and no constants of ``get_inputs``."""
    text = """
class Model(nn.Module):
    def forward(self, x): return x.relu()
CASES = {"workload": [{"rows": 33}]}
def get_inputs(rows=65536): return [torch.rand(rows, 4096)]
"""
    assert (33, 4096) == tuple(ProblemFile(written(tmp_path, text), small=True).inputs(0)[0].shape)


def test_only_what_the_model_allows_becomes_smaller(tmp_path: Path) -> None:
    """An image that a linear layer was sized for keeps its pixels, and the batch shrinks."""
    _, (inputs,) = small(tmp_path, FIXED)
    assert (3, 224, 224) == tuple(inputs.shape[1:])
    assert inputs.shape[0] < 64


def test_numbers_that_belong_together_shrink_together(tmp_path: Path) -> None:
    """A width that is written out twice, and a sum of widths."""
    text = """
class Model(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.line = nn.Linear(first + second, 512)
    def forward(self, x): return self.line(x)
def get_inputs(): return [torch.rand(4096, 16384 + 0)]
def get_init_inputs(): return [16384 // 2, 4096 * 2]
"""
    (first, second), (inputs,) = small(tmp_path, text)
    assert first + second == inputs.shape[1] < 16384


@pytest.mark.slow
def test_every_process_finds_the_same_sizes(tmp_path: Path) -> None:
    """The one that enumerates, and the one that judges."""
    file = written(tmp_path, ATTENTION)
    first, second = (shrunk(file, {}).get_inputs()[0].shape for _ in range(2))  # type: ignore[union-attr]
    assert first == second


@pytest.mark.slow
def test_a_model_that_reads_values_is_counted_with_real_ones(tmp_path: Path) -> None:
    """``nonzero`` and ``item`` have no answer without content."""
    text = """
class Model(nn.Module):
    def forward(self, x):
        kept = x[x.sum(1) > 0]
        return kept * float(x.max())
def get_inputs(): return [torch.randn(16384, 8192)]
"""
    _, (inputs,) = small(tmp_path, text)
    assert inputs.numel() * 4 <= FITTING.case_bytes


def test_a_size_at_which_nothing_matters_is_too_small(tmp_path: Path) -> None:
    """Here the answer is a constant as soon as a row is short."""
    text = """
class Model(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[1] > 1200 else torch.zeros_like(x)
def get_inputs(): return [torch.rand(4096, 16384)]
"""
    _, (inputs,) = small(tmp_path, text)
    assert 1200 < inputs.shape[1] < 16384


def test_small_sizes_stay_in_blocks() -> None:
    """What is a multiple of sixteen stays one, and what is one more stays one more."""
    constants = SizeConstants("def get_inputs(): return 4096, 1025, 24", "p.py").constants

    def count(sizes: tuple[int, ...]) -> Work:
        return Work(0, 0, sizes[0] * sizes[1] * 64, 0)

    *_, (first, second, third) = steps(constants, count)
    assert (0, 1, 24) == (first % 16, second % 16, third)
    assert first * second * 64 <= FITTING.case_bytes


def test_a_problem_at_small_sizes_is_judged_as_any_other(tmp_path: Path) -> None:
    """It has a state, inputs of each draw, and arguments for a solution."""
    problem = Problem("p", written(tmp_path, ATTENTION), torch.device("cpu"), small=True)
    assert {"qkv.weight", "qkv.bias"} == set(problem.state())
    (first,), (second,) = problem.inputs(1), problem.inputs(2)
    assert first.shape == second.shape
    assert not torch.equal(first, second)
    assert problem.call(first).shape[0] == first.shape[0]


def test_tensors_at_the_top_of_a_file_are_no_obstacle(tmp_path: Path) -> None:
    """They are as large as the inputs, and made once for real: at small sizes."""
    text = """
class Model(nn.Module):
    def forward(self, x, y): return x + y
SIZE = 2 ** 17
TABLE = torch.ones(1, 1).expand(SIZE, SIZE)
def get_inputs(): return [TABLE.contiguous(), torch.rand(SIZE, SIZE)]
"""
    _, inputs = small(tmp_path, text)
    assert inputs[0].shape == inputs[1].shape
    assert inputs[0].numel() * 8 <= FITTING.case_bytes


# ---------------------------------------------------------------- work and dependence


def test_work_is_counted_without_doing_it() -> None:
    """Eight terabytes are no reason to begin."""
    counted = work(lambda: torch.nn.Linear(1 << 20, 1 << 20), lambda: [torch.rand(8, 1 << 20)])
    assert 2 * 8 << 40 == counted.flops
    assert 4 << 40 < counted.case_bytes


class _Halves(torch.nn.Module):
    """Reads its first input and one of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Parameter(torch.randn(4)), torch.nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * self.used + 0 * (y + self.unused)


def test_what_makes_no_difference_is_named() -> None:
    """And the model is left as it was."""
    model = _Halves()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    draws = [[torch.randn(3, 4), torch.randn(3, 4)] for _ in range(2)]
    assert {"input 1", "unused"} == independent(model, *draws)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_are_no_unused_weights(training: bool) -> None:  # noqa: FBT001 - of the module
    """In training mode a batch norm writes them and reads others."""
    model = torch.nn.BatchNorm1d(4).train(training)
    assert not independent(model, [torch.randn(8, 4)], [torch.randn(8, 4)])
