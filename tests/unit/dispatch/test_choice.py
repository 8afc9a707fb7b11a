"""Which calls a kernel answers: those of classes in which it was faster, found out by trials that take little time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.dispatch_tables import kernel_file
from tests.launch_stand_in import KERNELS, launched, stand_in_driver
from torch import Tensor

import opsmith
from opsmith.dispatch import entry
from opsmith.dispatch.activity import ServedOp
from opsmith.dispatch.choice import trial
from opsmith.dispatch.choice.choosing import EAGER, KERNEL, Allowance
from opsmith.dispatch.choice.classes import class_of
from opsmith.dispatch.override import FallbackWarning
from opsmith.dispatch.plans import native
from opsmith.dispatch.plans.mode import VARIABLE, LaunchMode
from opsmith.dispatch.plans.signature import signature_of
from opsmith.errors import BadInput
from opsmith.trials import book
from opsmith.trials.book import Trial

X = torch.linspace(-2, 2, 12).reshape(3, 4)
RELU = "calls = []\ndef kernel(x):\n    calls.append(1)\n    return x.clamp_min(0)"

Try = Callable[..., Trial | None]


@pytest.fixture(autouse=True)
def _own_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "cache_folder", lambda: tmp_path / "cache")


@pytest.fixture
def found_us(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What trials measure; they are held as always, however long they take on a busy machine."""
    monkeypatch.setattr(Allowance, "START_S", 60.0)
    us: dict[str, float] = {EAGER: 2.0, KERNEL: 1.0}

    def held(*args: Any, **kwargs: Any) -> Trial | None:
        found = trial.try_out(*args, **kwargs)
        assert found is not None
        return Trial(call=found.call, us={way: us[way] for way in found.us}, notes=found.notes)

    monkeypatch.setattr(entry, "try_out", held)
    return us


def served(op: str) -> ServedOp:
    """What is known of one op."""
    return next(one for one in opsmith.active().ops if one.op == op)


CLASSES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "f32[3,4]": ((X,), {}),
    "bf16[4096,128], bf16[128]": (
        (torch.empty(4000, 96, dtype=torch.bfloat16), torch.empty(128, dtype=torch.bfloat16)),
        {},
    ),
    "f32[16~,16]": ((torch.empty(9, 16),), {}),
    "f32[4,3]@1,0": ((X.t(),), {}),
    "f32[3,4]@0,1 expanded": ((torch.empty(3, 1).expand(3, 4),), {}),
    "f32[3,2]@0,1 gaps": ((X[:, ::2],), {}),
    "f32[1,8,4,4]@2,3,1": ((torch.empty(2, 8, 4, 4)[:1].to(memory_format=torch.channels_last),), {}),
    "f32[3,4], True, 0.0, float, 32, -1, None, dtype=torch.int64": (
        (X, True, 0.0, 0.5, 24, -1, None),
        {"dtype": torch.int64},
    ),
    "[f32[3,4],f32[3,4]], [1,2]": (([X, X], (1, 2)), {}),
    "[16~ of bf16,f32, 128 elements]": (([X] * 9 + [X.bfloat16()],), {}),
}


@pytest.mark.parametrize("text", CLASSES)
def test_a_class_tells_what_chooses_between_algorithms_and_rounds_sizes(text: str) -> None:
    """A transposed argument, an odd size or a flag may make the other kernel faster; 96 columns for 128 do not."""
    args, kwargs = CLASSES[text]
    assert text == class_of(args, kwargs)


def test_what_no_plan_knows_is_of_no_class() -> None:
    """A generator draws; a subclass is its own."""
    assert class_of((X, torch.Generator()), {}) is None
    assert class_of((X,), {"x": [X.as_subclass(type("Own", (Tensor,), {}))] * 2}) is None


def test_a_kernel_answers_from_the_second_call_of_a_class_in_which_it_is_faster(
    tmp_path: Path, found_us: dict[str, float]
) -> None:
    """What is called once is not tried; a size of another class is tried by itself."""
    kernel_file(tmp_path / "kernels", "relu.default", RELU)
    opsmith.enable(tmp_path / "kernels", choose="measured")
    for _ in range(4):
        assert torch.equal(X.clamp_min(0), torch.relu(X))
    assert (3, 1) == (served("relu.default").calls, served("relu.default").left)
    found_us[KERNEL] = 3.0
    for _ in range(4):
        torch.relu(torch.ones(100))
    relu = served("relu.default")
    assert (3, 5) == (relu.calls, relu.left)
    assert [("f32[3,4]", True, 2.0, 1.0), ("f32[128~]", False, 2.0, 3.0)] == [
        (one.text, one.served, one.eager_us, one.kernel_us) for one in relu.classes
    ]
    assert "1 of 2 classes, 2.00x" in str(opsmith.active())


def test_what_was_found_is_kept_for_the_next_process(tmp_path: Path, found_us: dict[str, float]) -> None:
    """The first call of a class is enough then, and no trial is needed; another kernel of the name is another one."""
    kernel_file(tmp_path / "kernels", "relu.default", RELU)
    opsmith.enable(tmp_path / "kernels", choose="measured")
    torch.relu(X), torch.relu(X)
    opsmith.enable(tmp_path / "kernels", choose="kept")
    torch.relu(X)
    assert (1, 0) == (served("relu.default").calls, served("relu.default").left)
    kernel_file(tmp_path / "others", "relu.default", RELU + " + 0")
    opsmith.enable(tmp_path / "others", choose="kept")
    for _ in range(3):
        torch.relu(X)
    assert (0, 3, ()) == (served("relu.default").calls, served("relu.default").left, served("relu.default").classes)
    assert found_us


def test_a_trial_writes_to_nothing_of_the_caller(tmp_path: Path, found_us: dict[str, float]) -> None:
    """Dozens of calls are made on copies; the caller's is made once, also where a tensor is given twice."""
    kernel_file(tmp_path / "kernels", "add_.Tensor", "def kernel(x, y, alpha=1):\n    return x.sub_(y, alpha=-alpha)")
    opsmith.enable(tmp_path / "kernels", choose="measured")
    for strided in (X.clone(), torch.stack([X, X])[0].t(), torch.stack([X, X], -1)[..., 0]):
        expected = strided.clone()
        for _ in range(3):
            assert strided is strided.add_(strided)
            expected = expected + expected
            assert torch.equal(expected, strided)
    assert (6, 3) == (served("add_.Tensor").calls, served("add_.Tensor").left)
    assert found_us


def test_what_a_kernel_declines_or_gets_wrong_is_left_alone(tmp_path: Path) -> None:
    """It is not called again for the class; the reason stands with it."""
    kernel_file(tmp_path / "kernels", "relu.default", "def kernel(x):\n    raise NotImplementedError('no')")
    kernel_file(tmp_path / "kernels", "abs.default", "def kernel(x):\n    return x.abs() + 1")
    opsmith.enable(tmp_path / "kernels", choose="measured")
    for _ in range(4):
        assert torch.equal(X.clamp_min(0), torch.relu(X))
        assert torch.equal(torch.where(X < 0, -X, X), torch.abs(X))
    relu, absolute = served("relu.default"), served("abs.default")
    assert (0, 4, {}) == (relu.calls, relu.left, relu.fallbacks)
    assert "declined" == relu.classes[0].note
    assert "off by" in absolute.classes[0].note


def test_a_really_slower_kernel_is_left_alone(tmp_path: Path) -> None:
    """Timed by the clock of the machine."""
    kernel_file(
        tmp_path / "kernels",
        "relu.default",
        "import time\ndef kernel(x):\n    time.sleep(1e-3)\n    return x.clamp_min(0)",
    )
    opsmith.enable(tmp_path / "kernels", choose="measured")
    for _ in range(3):
        torch.relu(X)
    (found,) = served("relu.default").classes
    assert not found.served
    assert found.kernel_us is not None
    assert found.kernel_us > 900


def test_trials_take_a_second_and_a_share_of_the_time_that_passes() -> None:
    """A trial begins while there is room, and may overrun it once."""
    now = [100.0]
    allowance = Allowance(lambda: now[0])
    assert allowance.has_room()
    allowance.spend(1.5)
    assert not allowance.has_room()
    now[0] += 9
    assert not allowance.has_room()
    now[0] += 2
    assert allowance.has_room()


def test_without_room_and_with_kept_choices_alone_eager_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is tried."""
    monkeypatch.setattr(Allowance, "START_S", -1.0)
    kernel_file(tmp_path / "kernels", "relu.default", RELU)
    for choose in ("measured", "kept"):
        opsmith.enable(tmp_path / "kernels", choose=choose)
        for _ in range(3):
            torch.relu(X)
        assert (0, 3, ()) == (served("relu.default").calls, served("relu.default").left, served("relu.default").classes)


def test_a_cache_that_cannot_be_written_to_costs_only_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_us: dict[str, float]
) -> None:
    """Trials decide for the process."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(book, "cache_folder", lambda: tmp_path / "file")
    kernel_file(tmp_path / "kernels", "relu.default", RELU)
    opsmith.enable(tmp_path / "kernels", choose="measured")
    for _ in range(3):
        torch.relu(X)
    assert 2 == served("relu.default").calls
    assert found_us


def test_a_wrong_choice_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the argument, or by the environment."""
    kernel_file(tmp_path, "relu.default", RELU)
    with pytest.raises(BadInput, match="choose='fastest' is none of measured, kept, all"):
        opsmith.enable(tmp_path, choose="fastest")
    monkeypatch.setenv("OPSMITH_CHOOSE", "fastest")
    with pytest.raises(BadInput, match="OPSMITH_CHOOSE=fastest is none of"):
        opsmith.enable(tmp_path)


@pytest.mark.parametrize("mode", [LaunchMode.PYTHON, LaunchMode.NATIVE])
def test_launch_plans_serve_what_was_chosen_and_cpp_leaves_the_rest(
    mode: LaunchMode, monkeypatch: pytest.MonkeyPatch, found_us: dict[str, float]
) -> None:
    """A call that is left alone does not reach Python, and a trial times plans as they are used."""
    monkeypatch.setenv(VARIABLE, mode)
    x, y = torch.ones(4, dtype=torch.float64), torch.arange(4, dtype=torch.float64)
    stream = 77 if mode is LaunchMode.NATIVE else 55
    with stand_in_driver():
        opsmith.enable(KERNELS, ops="add.Tensor,mul.Tensor", choose="measured")
        for _ in range(2):
            x + y
        assert stream == launched[-2]  # The last one is the call itself.
        found_us[KERNEL] = 2.0
        for _ in range(2):
            x * 2.5
        launched.clear()
        for _ in range(5):
            assert torch.equal(x * 2.5, torch.full_like(x, 2.5))
        assert [] == [*launched]
        for _ in range(5):
            assert [1, 2, 3, 4] == (x + y).tolist()
        assert [stream] * 5 == [*launched]
        add, mul = served("add.Tensor"), served("mul.Tensor")
        assert (6, 1) == (add.calls, add.left)
        assert (0, 7) == (mul.calls, mul.left)
        assert (native.library() is not None) == (mode is LaunchMode.NATIVE)
        opsmith.disable()


@pytest.fixture
def _mul_through_cpp(monkeypatch: pytest.MonkeyPatch, found_us: dict[str, float]) -> Iterator[None]:
    """The launcher in C++ stands before a kernel of ``mul.Tensor``, whose classes are tried out."""
    assert found_us
    monkeypatch.setenv(VARIABLE, LaunchMode.NATIVE)
    with stand_in_driver():
        opsmith.enable(KERNELS, ops="mul.Tensor", choose="measured")
        yield
        opsmith.disable()


@pytest.mark.usefixtures("_mul_through_cpp")
def test_an_op_whose_calls_are_all_left_is_looked_at_now_and_then(found_us: dict[str, float]) -> None:
    """A new class is found all the same, and once a kernel answers every call is looked at again."""
    x, y = torch.ones(4, dtype=torch.float64), torch.ones(16, dtype=torch.float64)
    found_us[KERNEL] = 2.0
    for _ in range(3000):
        x * 2.5
    assert 3000 - 16 < served("mul.Tensor").left <= 3000
    found_us[KERNEL] = 1.0
    calls = 0
    while not served("mul.Tensor").calls:
        y * 2.5
        calls += 1
        assert calls <= 4 * 16
    before = served("mul.Tensor").calls
    for _ in range(20):
        y * 2.5
    assert before + 20 == served("mul.Tensor").calls


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of calls that reached Python."""
    seen: list[tuple[Any, ...]] = []
    read = signature_of

    def noted(args: tuple[Any, ...], *more: Any) -> Any:
        seen.append(args)
        return read(args, *more)

    monkeypatch.setattr(entry, "signature_of", noted)
    return seen


@pytest.mark.usefixtures("_mul_through_cpp")
def test_a_call_that_cannot_be_tried_now_is_left_for_a_while_without_python(
    monkeypatch: pytest.MonkeyPatch, found_us: dict[str, float], in_python: list[tuple[Any, ...]]
) -> None:
    """Each of a model's thousand calls would pay for being asked about; once there is room the class is tried."""
    monkeypatch.setattr(Allowance, "START_S", -1.0)
    x = torch.ones(4, dtype=torch.float64)
    began = time.monotonic()
    for _ in range(500):
        x * 2.5
    assert len(in_python) <= 2 + (time.monotonic() - began) / (entry.PATIENCE_MS / 1000)
    assert 500 == served("mul.Tensor").left
    monkeypatch.setattr(Allowance, "START_S", 60.0)
    time.sleep(entry.PATIENCE_MS / 1000)
    for _ in range(3):
        x * 2.5
    assert found_us
    assert 3 == served("mul.Tensor").calls


@pytest.mark.usefixtures("_mul_through_cpp")
def test_what_no_kernel_is_asked_for_reaches_python_once(
    found_us: dict[str, float], in_python: list[tuple[Any, ...]]
) -> None:
    """A dtype that kernels are not asked for is one for every call like it."""
    x, y = torch.ones(4, dtype=torch.complex64), torch.ones(4, dtype=torch.float64)
    for _ in range(10):
        assert torch.equal(torch.full_like(x, 2), x * 2)
    assert 1 == len(in_python)
    mul = served("mul.Tensor")
    assert ({"dtype": 1}, 9) == (dict(mul.fallbacks), mul.left)
    for _ in range(3):
        y * 2.5
    assert found_us
    assert 2 == served("mul.Tensor").calls


@pytest.mark.usefixtures("_mul_through_cpp")
def test_shapes_without_end_are_not_all_kept(
    monkeypatch: pytest.MonkeyPatch, found_us: dict[str, float], in_python: list[tuple[Any, ...]]
) -> None:
    """What C++ has forgotten of a call Python tells it again."""
    monkeypatch.setattr(trial, "try_out", lambda text, *_args, **_kwargs: Trial(call=text, us=dict(found_us)))
    found_us[KERNEL] = 3.0
    x = torch.ones(5_000, dtype=torch.float64)
    for size in (7, 7, 7):
        x[:size] * 2.5
    before = len(in_python)
    x[:7] * 2.5
    assert before == len(in_python)
    for size in range(100, 4_400):
        x[:size] * 2.5
    before = len(in_python)
    for _ in range(2):
        x[:7] * 2.5
    assert before + 1 == len(in_python)


def test_a_composite_op_without_a_gradient_is_tried_too(tmp_path: Path, found_us: dict[str, float]) -> None:
    """Both ways are made below autograd."""
    kernel_file(tmp_path / "kernels", "relu6.default", "def kernel(x):\n    return x.clamp(0, 6)")
    opsmith.enable(tmp_path / "kernels", choose="measured")
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(X.clamp(0, 6), torch.nn.functional.relu6(X))
    assert 2 == served("relu6.default").calls
    assert found_us


def test_a_trial_of_an_op_that_falls_back_holds_no_trial_of_what_it_consists_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_us: dict[str, float]
) -> None:
    """The one would wait for the other, for ever."""
    within: list[object] = []

    def held(*args: Any, **kwargs: Any) -> Trial | None:
        within.append(entry.THREAD.trying)
        found = trial.try_out(*args, **kwargs)
        return found and Trial(call=found.call, us={way: found_us[way] for way in found.us}, notes=found.notes)

    monkeypatch.setattr(entry, "try_out", held)
    kernel_file(tmp_path / "kernels", "relu6.default", "def kernel(x):\n    raise ValueError('no')")
    kernel_file(
        tmp_path / "kernels", "hardtanh.default", "def kernel(x, low=-1, high=1):\n    return x.clamp(low, high)"
    )
    opsmith.enable(tmp_path / "kernels", choose="measured")
    with torch.no_grad():
        torch.ops.aten.relu6.default(X)
        with pytest.warns(FallbackWarning, match="no"):
            torch.ops.aten.relu6.default(X)
        for _ in range(2):
            torch.ops.aten.relu6.default(X)
    assert not served("relu6.default").classes[0].served
    assert served("hardtanh.default").classes[0].served
    assert [None, None] == within
