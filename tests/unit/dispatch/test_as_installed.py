"""Kernels as the judge's clock calls them: repeated from plans where they may be, else as they are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from tests.launch_stand_in import CAPTURING, KERNELS, launched, stand_in_driver

from opsmith.backends.directory import KernelDirectory
from opsmith.core.kernel import Kernel
from opsmith.core.task import Task
from opsmith.dispatch.as_installed import as_installed
from opsmith.dispatch.launcher import VARIABLE, Choice
from opsmith.dispatch.plans import Refusal
from opsmith.dispatch.recorder import Recorder
from opsmith.runner.loading import load_kernel
from opsmith.suites.aten_schemas import aten_schemas

#: Where the stand-in says that a launch came from a plan in Python.
PYTHON = 55
X = torch.ones(4, dtype=torch.float64)


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


class Generator:
    """What a generator of a GPU shows."""

    def __init__(self) -> None:
        self.seed, self.offset = 0x9000_0000_8000_0003, (3 << 34) + 8

    def initial_seed(self) -> int:
        """Of which both halves are negative as signed numbers."""
        return self.seed

    def get_offset(self) -> int:
        """In words."""
        return self.offset

    def set_offset(self, offset: int) -> None:
        """In words."""
        self.offset = offset


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Generator:
    """The only one."""
    found = Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", (found,))
    return found


def drawn(op: str, generator: Generator, calls: int) -> list[list[float]]:
    """What so many calls write, the seed being changed before the last one."""
    _, timed = loaded(op)
    found = []
    for call in range(calls):
        if call == calls - 1:
            generator.seed = 7
        launched.clear()
        x = torch.empty(4, dtype=torch.float64)
        assert timed(x, 0.5) is x
        found.append(x.tolist())
    return found


def test_a_repeated_call_draws_anew(generator: Generator) -> None:
    """With the seed and the offset of each call; the offset is moved on."""
    low, high = 0x8000_0003 - (1 << 32), 0x9000_0000 - (1 << 32)
    expected = [[low + 0.5, high, 2.0 + call, 3.0] for call in range(4)]
    assert [*expected, [7.5, 0.0, 6.0, 3.0]] == drawn("bernoulli_.float", generator, 5)
    assert [PYTHON] == [*launched]
    assert (3 << 34) + 8 + 5 * 4 == generator.offset


def test_a_call_that_draws_twice_is_not_repeated(generator: Generator) -> None:
    """A plan takes one counter."""
    drawn("uniform_.default", generator, 5)
    assert PYTHON not in launched
    assert (3 << 34) + 8 + 10 * 4 == generator.offset


def test_no_plan_draws_in_the_capture_of_a_graph(generator: Generator) -> None:
    """Its replays would all draw the same numbers; the kernel is asked, which may decline."""
    _, timed = loaded("bernoulli_.float")
    x = torch.empty(4, dtype=torch.float64)
    for _ in range(3):
        timed(x)
    with mock.patch.dict(CAPTURING, now=True):
        launched.clear()
        timed(x)
        assert PYTHON not in launched
    timed(x)
    assert [2.0 + 4, 3.0] == x.tolist()[2:]
    assert PYTHON in launched


def test_a_counter_that_no_launch_takes_is_refused(generator: Generator) -> None:
    """What became of it cannot be told."""
    recorder, x = Recorder([X], [], elementwise=False), X

    def kernel(x: torch.Tensor) -> torch.Tensor:
        own = torch.cuda.default_generators[0]
        first = own.get_offset()
        own.set_offset(first + 4)
        return torch.empty_like(x) if own.initial_seed() + first else x

    assert Refusal.RANDOM is recorder.plan(recorder.watching(kernel)(x))


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
