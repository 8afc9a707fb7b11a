"""The differential of enabled kernels and eager mode sees what it is made for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.differential.enabled import Kernels, record, refused, summary
from tests.differential.opinfo import Case, cases
from tests.dispatch_tables import kernel_file

SIGMOID = "def kernel(x):\n    return 1 / (1 + (-x).exp())"
BACKWARD = "def kernel(grad, y):\n    return grad * (1 - y) * y"


def first_sample(name: str) -> list[Case]:
    """The cases of an OpInfo's first sample: as a function, without gradients, as a method and in place."""
    return next(cases(name, torch.float32, "cpu", 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "source", "problem"),
    [
        ("sigmoid.default", SIGMOID, None),
        ("sigmoid.default", SIGMOID.replace("1 /", "1.001 /"), "output"),
        ("sigmoid.default", SIGMOID + ".double()", "instead of torch.float32"),
        ("sigmoid.default", "def kernel(x):\n    return x.sigmoid_()", "input"),
        ("sigmoid_backward.default", BACKWARD, None),
        ("sigmoid_backward.default", BACKWARD.replace("(1 - y) * y", "y"), "gradient"),
    ],
    ids=["right", "values", "dtype", "writes to its input", "right gradient", "gradient"],
)
def test_a_wrong_kernel_is_told(op: str, source: str, problem: str | None, tmp_path: Path) -> None:
    """With what is wrong about it; a right one is not."""
    kernels = Kernels(str(kernel_file(tmp_path, op, source)), "cpu")
    line = record(kernels, first_sample("sigmoid"))
    assert line["answered"] >= 2
    told = [what for one in line["problems"] for what in one["what"]]
    assert bool(told) == (problem is not None)
    assert problem is None or any(problem in what for what in told)
    found = summary([line], known={})
    assert bool(found["failures"]) == (problem is not None)
    assert not summary([line], known={"sigmoid": "it is wrong"})["failures"]


def test_what_is_no_worse_than_eager_mode_is_none(tmp_path: Path) -> None:
    """A sum in another order; float64 decides."""
    source = "def kernel(x, *, dtype=None):\n    return x.flip(0).double().sum().to(dtype or x.dtype)"
    kernels = Kernels(str(kernel_file(tmp_path, "sum.default", source)), "cpu")
    x = torch.randn(100_003) * 1e3
    line = record(kernels, [Case("sum", 0, "op", torch.sum, (x, (), {}), gradients=False, tolerance=(0.0, 1e-9))])
    assert (1, []) == (line["answered"] // 2, line["problems"])


def test_what_eager_refuses_has_to_be_refused(tmp_path: Path) -> None:
    """Inputs of that kind come with OpInfos."""
    source = "def kernel(x, dim):\n    return x"
    kernels = Kernels(str(kernel_file(tmp_path, "unsqueeze_copy.default", source)), "cpu")
    case = Case("x", 0, "refused", torch.unsqueeze_copy, (torch.ones(2), (7,), {}), gradients=False)
    line = record(kernels, [case])
    assert {"refusals": 1} == line["counts"]
    assert ["raises no IndexError"] == line["problems"][0]["what"]
    assert list(refused("kthvalue", torch.float32, "cpu", 0))
