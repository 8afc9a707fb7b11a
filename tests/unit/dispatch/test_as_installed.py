"""Kernels as the judge's clock calls them: repeated from plans where they may be, else as they are judged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from tests.launch_stand_in import CAPTURING, KERNELS, launched, stand_in_driver

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.directory import KernelDirectory
from opsmith.core.kernel import Kernel
from opsmith.core.task import Task
from opsmith.dispatch.as_installed import as_installed
from opsmith.dispatch.entry import launch_recorder
from opsmith.dispatch.plans.mode import VARIABLE, LaunchMode
from opsmith.dispatch.plans.plan import Refusal
from opsmith.dispatch.plans.recorder import LaunchRecorder
from opsmith.runner.worker.loading import load_kernel

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


def test_plans_need_no_module_that_a_worker_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of opsmith's would make a second module, whose classes are not those of the first."""
    launch_recorder.cache_clear()
    _, timed = loaded("add.Tensor")
    for name in [name for name in sys.modules if name.partition(".")[0] == "opsmith"]:
        monkeypatch.delitem(sys.modules, name)
    before = [*sys.modules]
    for value in (1.0, 2.0, 3.0):
        launched.clear()
        x = torch.full((4,), value, dtype=torch.float64)
        assert torch.equal(x + 1, timed(x, torch.ones(4, dtype=torch.float64)))
    assert [PYTHON] == [*launched]
    assert before == [*sys.modules]


def test_an_elementwise_kernel_writes_over_its_argument() -> None:
    """One launch and no copy."""
    _, timed = loaded("relu_.default")
    for _ in range(4):
        launched.clear()
        x = torch.tensor([1.0, -2.0], dtype=torch.float64)
        assert timed(x) is x
        assert [1.0, 0.0] == x.tolist()
    assert [PYTHON] == [*launched]


def no_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on it is a mistake to make one."""

    def signature(*_: Any) -> None:
        raise AssertionError("a signature was made")

    monkeypatch.setattr("opsmith.dispatch.entry.signature_of", signature)


Lists = tuple[list[torch.Tensor], ...]
#: By overload: a call of lists, and what it gives.
LISTED: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "_foreach_mul.Scalar": (lambda timed, xs, _: timed(xs, 2.5), lambda x, _: 2.5 * x),
    "_foreach_mul_.Scalar": (lambda timed, xs, _: timed(xs, 2.5) or xs, lambda x, _: 2.5 * x),
    "_foreach_add_.List": (lambda timed, xs, ys: timed(xs, ys, alpha=1) or xs, torch.add),
}


@pytest.mark.parametrize("count", [2, 150])
@pytest.mark.parametrize("op", LISTED)
@pytest.mark.slow
def test_a_call_of_lists_is_made_again_without_a_signature(
    op: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other tensors each time, more than are remembered, and with the same ones: no pointer is a former call's."""
    _, timed = loaded(op)
    call, expected = LISTED[op]

    def lists(start: int) -> Lists:
        return tuple([torch.arange(4.0, dtype=torch.float64) + start + n for n in range(count)] for _ in range(2))

    for start in range(3):
        call(timed, *lists(start))
    no_signatures(monkeypatch)
    kept = [lists(start) for start in range(40)]
    for xs, ys in kept * 2:
        launched.clear()
        due = [expected(x, y) for x, y in zip(xs, ys, strict=True)]
        found = call(timed, xs, ys)
        assert torch.equal(torch.stack(due), torch.stack(found))
        assert [PYTHON] == [*launched]


def test_a_call_of_a_number_is_made_again_without_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """By position or by name."""
    _, timed = loaded("add.Tensor")
    for _ in range(3):
        timed(X, X.clone(), alpha=3)
    no_signatures(monkeypatch)
    assert [7.0] * 4 == timed(X, 2 * X, alpha=3).tolist()
    with pytest.raises(AssertionError, match="a signature"):
        timed(X, 2 * X, alpha=3.0)
    with pytest.raises(AssertionError, match="a signature"):
        timed(X, 2.0, alpha=3)


def test_calls_of_one_tensor_are_made_again_without_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place or not, with a number or without; other addresses, types and numbers are told apart."""
    calls = {op: loaded(op)[1] for op in ("relu.default", "relu_.default", "leaky_relu.default")}
    numbers = {"leaky_relu.default": (0.5,)}
    for op, timed in calls.items():
        for _ in range(3):
            timed(X.clone(), *numbers.get(op, ()))
    no_signatures(monkeypatch)
    for op, timed in calls.items():
        given = torch.tensor([4.0, -2.0, 0.0, -1.0], dtype=torch.float64)
        launched.clear()
        found = timed(given, *numbers.get(op, ()))
        assert [4.0, -1.0 if numbers.get(op) else 0.0, 0.0, -0.5 if numbers.get(op) else 0.0] == found.tolist()
        assert (found is given) is (op == "relu_.default")
        assert [PYTHON] == [*launched]
        for others in ((torch.ones(5, dtype=torch.float64)[1:],), (X.float(),), (X, 0.25), (2.0,), ()):
            with pytest.raises(AssertionError, match="a signature"):
                timed(*others)


@pytest.mark.parametrize("count", [2, 40])
def test_lists_that_overlap_are_not_taken_for_the_call_before(count: int) -> None:
    """Though everything that a guard sees is alike; once told apart, at each call."""
    _, timed = loaded("_foreach_mul_.Scalar")
    for _ in range(4):
        timed([X.clone() for _ in range(count)], 2.0)
    memory = torch.arange(4.0 * count, dtype=torch.float64)
    overlapping = [memory[:4], memory[2:6], *memory.split(4)[2:]]
    for _ in range(3):
        launched.clear()
        timed(overlapping, 2.0)
        assert PYTHON not in launched
    launched.clear()
    timed([*memory.split(4)], 2.0)
    assert [PYTHON] == [*launched]


def test_lists_in_which_a_tensor_is_given_twice_are_another_call() -> None:
    """Alike as they are."""
    _, timed = loaded("_foreach_add_.List")
    x, y = X.clone(), X.clone()
    for _ in range(4):
        timed([x, y], [X, X + 1])
    launched.clear()
    timed([x, x], [X, X + 1])
    assert PYTHON not in launched


# ---------------------------------------------------------------- calls without tensors


def test_a_new_tensor_of_a_number_is_made_from_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the call says where it is to be."""
    _, timed = loaded("full.default")
    options = {"dtype": torch.float64, "device": torch.device("cpu")}
    for _ in range(3):
        first = timed([2, 3], 1.5, **options)
    no_signatures(monkeypatch)
    launched.clear()
    second = timed([2, 3], 1.5, **options)
    assert [PYTHON] == [*launched]
    assert torch.equal(torch.full((2, 3), 1.5, dtype=torch.float64), second)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize(
    ("size", "value", "options"),
    [
        ([3], 2.5, {}),
        ([2, 3], 1.5, {}),
        ([2], -0.0, {}),
        ([2], 0, {}),
        ([2], 0.0, {"pin_memory": False}),
    ],
)
def test_new_tensors_that_differ_do_not_share_a_plan(size: list[int], value: float, options: dict[str, Any]) -> None:
    """In shape, value, or what else is asked for."""
    _, timed = loaded("full.default")
    given: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu")}
    for _ in range(4):
        timed([2], 0.0, **given)
    launched.clear()
    found = timed(size, value, **given, **options)
    assert PYTHON not in launched
    expected = torch.full(size, value, dtype=torch.float64)
    assert torch.equal(expected, found)
    assert torch.equal(expected.signbit(), found.signbit())


def test_new_tensors_of_the_default_type_have_a_plan_for_each() -> None:
    """It is a setting."""
    _, timed = loaded("full.default")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        for _ in range(4):
            launched.clear()
            timed([2], 0.5, device=torch.device("cpu"))
        assert [PYTHON] == [*launched]
    finally:
        torch.set_default_dtype(before)
    with pytest.raises(NotImplementedError):  # In float32, which the kernel does not serve.
        timed([2], 0.5, device=torch.device("cpu"))


def test_without_a_device_a_new_tensor_has_no_plan() -> None:
    """Torch's default device says where it is to be, and is in no signature."""
    _, timed = loaded("full.default")
    launched.clear()
    for _ in range(4):
        timed([2], 0.5, dtype=torch.float64)
    assert PYTHON not in launched


def test_new_tensors_are_made_from_plans_on_the_current_device_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan allocates and launches there."""
    current = {"index": -1}
    monkeypatch.setattr("tests.launch_stand_in.DEVICES", 2)
    monkeypatch.setattr("tests.launch_stand_in.CURRENT", current)
    _, timed = loaded("full.default")
    for _ in range(4):
        launched.clear()
        timed([2], 0.5, dtype=torch.float64, device=torch.device("cpu"))
    assert [PYTHON] == [*launched]
    current["index"] = 1
    launched.clear()
    timed([2], 0.5, dtype=torch.float64, device=torch.device("cpu"))
    assert PYTHON not in launched


# ---------------------------------------------------------------- what has no plans


def test_what_plans_do_not_take_goes_to_the_kernel_as_it_is_judged() -> None:
    """For example a tensor that is negated lazily: it declines there, and nothing of torch's answers for it."""
    judged, timed = loaded("add.Tensor")
    x = torch._neg_view(torch.ones(4, dtype=torch.float64))
    for _ in range(3):
        assert torch.equal(judged(x, x), timed(x, x))


def test_one_call_asks_the_kernel_once() -> None:
    """In whatever layout: a kernel that draws would otherwise draw twice, and be one call ahead from then on."""
    schema = aten_schemas()["relu.default"]
    record = KernelDirectory(KERNELS).kernel_for(Task(name=schema.name, op=schema, suite="opinfo"))
    assert isinstance(record, Kernel)
    judged = mock.Mock(side_effect=lambda x: torch.relu(x).t().contiguous().t())
    as_installed(judged, record, schema, "cpu")(torch.ones(3, 4, dtype=torch.float64).t())
    judged.assert_called_once()


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


def test_a_new_tensor_is_drawn_anew(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing of the call differs, and no signature is made."""
    _, timed = loaded("rand.default")
    options = {"dtype": torch.float64, "device": torch.device("cpu")}
    for _ in range(3):
        timed([4], **options)
    no_signatures(monkeypatch)
    launched.clear()
    first, second = (timed([4], **options) for _ in range(2))
    assert [PYTHON, PYTHON] == [*launched]
    assert [[5.0, 3.0], [6.0, 3.0]] == [first.tolist()[2:], second.tolist()[2:]]
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
    recorder, x = LaunchRecorder([X], [], elementwise=False), X

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
    monkeypatch.setenv(VARIABLE, LaunchMode.OFF)
    judged, timed = loaded("add.Tensor")
    assert judged is timed
