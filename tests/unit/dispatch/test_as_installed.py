"""Kernels as the judge's clock calls them: repeated from plans where they may be, else as they are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.launch_stand_in import KERNELS, launched, stand_in_driver

from opsmith.backends.directory import KernelDirectory
from opsmith.core.kernel import Kernel
from opsmith.core.task import Task
from opsmith.dispatch.as_installed import as_installed
from opsmith.dispatch.launcher import VARIABLE, Choice
from opsmith.runner.loading import load_kernel
from opsmith.suites.aten_schemas import aten_schemas

#: Where the stand-in says that a launch came from a plan in Python.
PYTHON = 55


@pytest.fixture(autouse=True)
def _stand_in() -> Iterator[None]:
    """A CPU that carries plans out."""
    with stand_in_driver():
        yield


def loaded(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A kernel of the stand-in's as it is judged, and as it is timed."""
    schema = aten_schemas()[op]
    record = KernelDirectory(KERNELS).kernel_for(Task(name=op, op=schema, suite="opinfo"))
    assert isinstance(record, Kernel)
    judged = load_kernel(record, KERNELS, schema)
    return judged, as_installed(judged, record, schema, "cpu")


def test_a_call_is_repeated_from_its_plan() -> None:
    """With the values of then, and as soon as it was seen twice."""
    _, timed = loaded("add.Tensor")
    for value in (1.0, 2.0, 3.0, 4.0):
        launched.clear()
        x = torch.full((4,), value, dtype=torch.float64)
        assert torch.equal(x + 1, timed(x, torch.ones(4, dtype=torch.float64)))
    assert [PYTHON] == [*launched]


def test_an_elementwise_kernel_writes_over_its_argument() -> None:
    """One launch and no copy."""
    _, timed = loaded("relu_.default")
    for _ in range(4):
        launched.clear()
        x = torch.tensor([1.0, -2.0], dtype=torch.float64)
        assert timed(x) is x
        assert [1.0, 0.0] == x.tolist()
    assert [PYTHON] == [*launched]


def test_what_plans_do_not_take_goes_to_the_kernel_as_it_is_judged() -> None:
    """For example a tensor that is negated lazily: it declines there, and nothing of torch's answers for it."""
    judged, timed = loaded("add.Tensor")
    x = torch._neg_view(torch.ones(4, dtype=torch.float64))
    for _ in range(3):
        assert torch.equal(judged(x, x), timed(x, x))


@pytest.mark.parametrize("op", ["sub.Tensor", "sub_.Tensor"])
def test_a_kernel_without_plans_is_timed_as_it_is_judged(op: str) -> None:
    """Nothing stands before it."""
    judged, timed = loaded(op)
    assert judged is timed


def test_so_are_all_where_plans_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for installed kernels."""
    monkeypatch.setenv(VARIABLE, Choice.OFF)
    judged, timed = loaded("add.Tensor")
    assert judged is timed
