"""Launch plans: calls repeated without the kernel's host code give the same results, or are not repeated."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.dispatch_tables import tables
from tests.launch_stand_in import CAPTURING, KERNELS, error, launched, overlapped, stand_in_driver
from torch import Tensor

import opsmith
from opsmith.dispatch import install, launcher, recorder
from opsmith.dispatch.activity import ServedOp
from opsmith.dispatch.launcher import VARIABLE, Choice, chosen
from opsmith.dispatch.plans import Copy, Launch, Precision, Refusal
from opsmith.dispatch.precisions import in_force, watched_precisions
from opsmith.kernels.convolution import implicit_gemm
from opsmith.kernels.matmul import matmul

#: The stand-in's streams tell who launched: a kernel's host code, a plan in Python, a plan in C++.
HOST, PYTHON, CPP = 0, 55, 77


def doubles(*values: float) -> Tensor:
    """A vector."""
    return torch.tensor(values, dtype=torch.float64)


X, Y = doubles(1, -2, 3, -4), doubles(5, 6, 7, 8)


@pytest.fixture(autouse=True)
def _stand_in() -> Iterator[None]:
    """A CPU that carries plans out."""
    with stand_in_driver():
        yield


@pytest.fixture(params=[Choice.PYTHON, Choice.NATIVE])
def choice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Choice:
    """Both ways to carry plans out."""
    found: Choice = request.param
    monkeypatch.setenv(VARIABLE, found)
    return found


@pytest.fixture
def replayed(choice: Choice) -> Iterator[Callable[[Callable[[], Any]], bool]]:
    """With the stand-in's kernels enabled: whether a call was repeated by a plan, in the way that is chosen."""
    stream = CPP if choice is Choice.NATIVE else PYTHON

    def by_plan(call: Callable[[], Any]) -> bool:
        launched.clear()
        call()
        return [stream] == [*{*launched}]

    opsmith.enable(KERNELS)
    yield by_plan
    opsmith.disable()


def settle(call: Callable[[], Any]) -> None:
    """Noted, recorded, told to C++."""
    for _ in range(3):
        call()


def served(op: str) -> ServedOp:
    """What is known of one op."""
    return next(one for one in opsmith.active().ops if one.op == op)


Replayed = Callable[[Callable[[], Any]], bool]


def test_a_signature_is_recorded_at_its_second_call_and_repeated_from_the_third(replayed: Replayed) -> None:
    """What is called once costs no recording; what is called often costs no host code."""
    cpp = CPP if chosen() is Choice.NATIVE else PYTHON
    by: list[int] = []
    for _ in range(5):
        launched.clear()
        assert torch.equal(doubles(6, 4, 10, 4), X + Y)
        by += launched
    assert [HOST, HOST, PYTHON, cpp, cpp] == by
    assert (5, 3, {}) == (served("add.Tensor").calls, served("add.Tensor").planned, served("add.Tensor").refused)


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "functional": torch.add,
    "scalar in the signature": lambda x, y: torch.add(x, y, alpha=3),
    "number": lambda x, _: x * 2.5,
    "list": lambda x, y: torch.cat([x, y, x]),
    "tuple result": lambda x, _: torch.aminmax(x),
    "in-place": lambda x, y: x.clone().add_(y),
    "in-place, element by element": lambda x, _: x.clone().relu_(),
    "in-place and strided": lambda x, _: x.clone().reshape(2, 2).t().relu_(),
    "out": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "in-place by a number": lambda x, _: x.clone().mul_(2.5),
    "the same tensor twice": lambda x, _: x * x,
    "strided": lambda x, y: torch.relu(torch.stack([x, y]).t()),
    "empty": lambda x, y: torch.add(x[:0], y[:0]),
    "Parameter": lambda x, y: torch.add(torch.nn.Parameter(x), y),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_repeated_call_gives_what_eager_gives(form: str, replayed: Replayed) -> None:
    """Values, shapes, strides and types, with arguments that differ from those that were recorded."""
    call = FORMS[form]
    others = [(doubles(9, 8, -7, 6) * n, doubles(-1, 0, 1, 2) - n) for n in range(1, 4)]
    settle(lambda: call(X, Y))
    with torch.no_grad():
        found = []
        for x, y in others:
            assert replayed(lambda: found.append(call(x, y))) or form == "empty"  # noqa: B023 - called at once
    opsmith.disable()
    for (x, y), result in zip(others, found, strict=True):
        expected = call(x, y)
        several = isinstance(expected, tuple)
        for one, other in zip(expected if several else (expected,), result if several else (result,), strict=True):
            assert torch.equal(one, other)
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())


@pytest.mark.parametrize("on_host", [False, True])
def test_numbers_and_absent_tensors_are_returned_again(
    *, on_host: bool, monkeypatch: pytest.MonkeyPatch, replayed: Replayed
) -> None:
    """As attention returns sizes, nothing for a padded batch's bounds, and the state of no dropout on the host."""
    monkeypatch.setattr(recorder, "_is_host_scalar", lambda tensor, _device: on_host and tensor.dtype == torch.int32)

    def normalized() -> Any:
        return torch._batch_norm_impl_index(X[None], None, None, None, None, False, 0.1, 1e-5, False)

    settle(normalized)
    found: list[Any] = []
    assert replayed(lambda: found.extend(normalized()))
    copied, mean, deviation, state, number = found
    assert torch.equal(copied, X[None])
    assert [None, None, 3] == [mean, deviation, number]
    assert (torch.int32, torch.Size(), "cpu") == (state.dtype, state.shape, state.device.type)
    assert state is not normalized()[3]


def test_only_a_tensor_without_dimensions_is_made_anew_on_the_host() -> None:
    """And only where the call is on a device."""
    scalar, vector, device = torch.empty(()), torch.empty(3), torch.device("meta")
    assert recorder._is_host_scalar(scalar, device)
    assert not recorder._is_host_scalar(vector, device)
    assert not recorder._is_host_scalar(scalar, torch.device("cpu"))


def test_what_is_written_is_what_is_returned(replayed: Replayed) -> None:
    """``x.add_(y) is x`` and ``out=`` comes back, also when repeated."""
    x, out = X.clone(), torch.empty_like(X)
    settle(lambda: x.add_(Y))
    settle(lambda: torch.add(X, Y, out=out))
    assert replayed(lambda: None) is False
    assert x is x.add_(Y)
    assert out is torch.add(X, Y, out=out)
    assert torch.equal(X + Y, out)
    assert torch.equal(X + 4 * Y, x)


def test_a_destination_is_written_to_without_a_copy(replayed: Replayed) -> None:
    """Where the result only went into an ``out=`` argument, that is where the kernel writes."""
    settle(lambda: torch.add(X, Y, out=torch.empty_like(X)))
    settle(lambda: X.clone().add_(Y))
    settle(lambda: torch.relu_(X.clone()))
    assert ([], [Launch]) == forms_of_steps("add.out")
    # A kernel may read an argument after it has begun to write, unless its manifest says that it does not.
    assert ([X.shape], [Launch, Copy]) == forms_of_steps("add_.Tensor")
    assert ([], [Launch]) == forms_of_steps("relu_.default")


@pytest.mark.parametrize("strides", [(1, 3), (8, 2), (2, 8)])
def test_a_strided_argument_is_written_to_without_a_copy(strides: tuple[int, int], replayed: Replayed) -> None:
    """It has other strides than the result would have; what lies between its elements stays."""

    def absolute(numbers: Tensor) -> tuple[Tensor, Tensor]:
        matrix = numbers.as_strided((3, 2), strides)
        return matrix, torch.abs_(matrix)

    numbers = torch.arange(32, dtype=torch.float64) - 9
    settle(lambda: absolute(numbers.clone()))
    assert ([], [Launch]) == forms_of_steps("abs_.default")
    found = numbers + 0.5
    assert replayed(lambda: absolute(found))
    opsmith.disable()
    expected = numbers + 0.5
    absolute(expected)
    assert torch.equal(expected, found)


def test_an_argument_of_which_most_is_gaps_is_written_to_without_a_copy(choice: Choice) -> None:
    """As a mask is filled in a band of scores: an eighth of the memory that it spans."""
    opsmith.enable(KERNELS)
    numbers = torch.arange(-(1 << 9), 1 << 9, dtype=torch.float64)
    band = numbers.view(1 << 6, 16)[:, :2]
    settle(lambda: torch.abs_(band))
    assert ([], [Launch]) == forms_of_steps("abs_.default")
    opsmith.disable()
    assert band.min() >= 0 > numbers.min()


@pytest.mark.parametrize(("shape", "strides"), [((2, 2), (1, 1)), ((2, 1), (1 << 23, 1))])
def test_a_scattered_argument_is_copied_to(shape: tuple[int, int], strides: tuple[int, int], choice: Choice) -> None:
    """Its elements share memory, or lie so far apart that to record the call would take more memory than it has."""
    opsmith.enable(KERNELS)
    numbers = torch.zeros((1 << 23) + 4, dtype=torch.float64)
    settle(lambda: torch.abs_(numbers.as_strided(shape, strides)))
    assert ([torch.Size(shape)], [Launch, Copy]) == forms_of_steps("abs_.default")
    opsmith.disable()


ANOTHER_FORM = {
    "bits": "out = torch.empty_like(x, dtype=torch.int64); COPY[1,](out, x, x.numel()); return out.view(x.dtype)",
    "a batch of one": "out = torch.empty_like(x.expand(1, -1)); COPY[1,](out, x, x.numel()); return out.squeeze(0)",
}


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("form", ANOTHER_FORM)
def test_a_result_that_was_computed_in_another_form_is_written_where_it_goes(
    form: str, *, elementwise: bool, tmp_path: Path, choice: Choice
) -> None:
    """Its memory is allocated as integers, say, and seen as numbers: what is copied is what is seen."""
    enable_relu(tmp_path, ANOTHER_FORM[form], elementwise=elementwise)
    settle(lambda: torch.relu_(X.clone()))
    assert (([], [Launch]) if elementwise else ([X.shape], [Launch, Copy])) == forms_of_steps("relu_.default")
    x = Y.clone()
    assert x is torch.relu_(x)
    assert torch.equal(Y, x)
    assert (4, 2, {}) == (
        served("relu_.default").calls,
        served("relu_.default").planned,
        served("relu_.default").refused,
    )


def test_bits_that_are_copied_and_returned_as_numbers_are_not_repeated(tmp_path: Path, choice: Choice) -> None:
    """A plan allocates memory in one form only."""
    source = (
        "out, to = torch.empty_like(x, dtype=torch.int64), torch.empty_like(x, dtype=torch.int64); "
        "COPY[1,](out, x, x.numel()); to.copy_(out); return out.view(x.dtype)"
    )
    enable_relu(tmp_path, source)
    settle(lambda: torch.relu(X))
    assert {Refusal.RESULT: 1} == served("relu.default").refused


@pytest.mark.parametrize("count", [2, 150])
def test_lists_of_tensors_are_repeated(count: int, replayed: Replayed) -> None:
    """As a list of results or as none, also where a launch has more parameters than torch's own launcher takes."""
    found: list[Tensor] = []
    written = [X + n for n in range(count)]

    def scaled() -> None:
        found[:] = torch._foreach_mul([X + n for n in range(count)], 2.0)

    settle(scaled)
    assert replayed(scaled)
    assert torch.equal(torch.stack([2 * (X + n) for n in range(count)]), torch.stack(found))
    settle(lambda: torch._foreach_mul_(written, 2.0))
    assert replayed(lambda: torch._foreach_mul_(written, 2.0))
    assert torch.equal(torch.stack([16 * (X + n) for n in range(count)]), torch.stack(written))


@pytest.mark.parametrize("op", ["among what is written", "of what is written with what is read"])
def test_lists_of_tensors_that_overlap_are_not_the_plans(op: str, replayed: Replayed) -> None:
    """What only is read may overlap what else is read."""
    settle(lambda: torch._foreach_add_([X.clone(), Y.clone()], [X, Y]))
    base, other = torch.cat([X, Y]), X.clone()
    lists = ([base[:4], base[2:6]], [X, Y]) if op == "among what is written" else ([base[:4], other], [X, base[2:6]])
    assert not replayed(lambda: torch._foreach_add_(*lists))
    assert replayed(lambda: torch._foreach_add_([X.clone(), other], [base[:4], base[2:6]]))


def test_a_kernel_that_returns_a_list_for_two_tensors_is_repeated_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch takes it from Python; what a plan in C++ puts on torch's stack is as the schema says."""
    monkeypatch.setenv(VARIABLE, Choice.NATIVE)
    source = (
        "(x, *, dim=None, keepdim=False): low, high = torch.empty_like(x), torch.empty_like(x); "
        "COPY[1,](low, x, x.numel()); COPY[1,](high, x, x.numel()); return [low, high]"
    )
    enable_copying(tmp_path, "aminmax.default", source)
    settle(lambda: torch.aminmax(X))
    launched.clear()
    low, high = torch.aminmax(X)
    assert torch.equal(low, X)
    assert torch.equal(high, X)
    assert {PYTHON} == {*launched}


def forms_of_steps(op: str) -> tuple[list[Any], list[type]]:
    """What the only plan of an op allocates, and the types of its steps."""
    serving = install._installed.registry.overrides[op, "cpu"].serving
    assert serving is not None
    assert serving.plans is not None
    ((replay,),) = serving.plans._replays.values()
    return [memory.shape for memory in replay.plan.allocations], [type(step) for step in replay.plan.steps]


def overlapping(call: Callable[[Tensor, Tensor], None]) -> Tensor:
    """The memory after a call on two tensors that overlap by half."""
    memory = torch.arange(6, dtype=torch.float64)
    call(memory[:4], memory[2:])
    return memory


@pytest.mark.parametrize(
    "call", [lambda x, y: torch.add(x, x, out=y), lambda x, y: y.add_(x), lambda x, y: torch.add(y, x, out=x)]
)
def test_arguments_that_overlap_are_not_the_plans(call: Callable[[Tensor, Tensor], Any], replayed: Replayed) -> None:
    """The same signature with other addresses: eager raises, or has its own idea of the order."""
    settle(lambda: call(X.clone(), Y.clone()))
    assert replayed(lambda: call(X.clone(), Y.clone()))

    def outcome() -> Any:
        try:
            return overlapping(call).tolist()
        except RuntimeError as exc:
            return str(exc)

    with_kernels = outcome()
    opsmith.disable()
    assert outcome() == with_kernels


def scaled_in_place(tensors: list[Tensor], factor: float, at: int = 0) -> Tensor:
    """Copies of them, that begin so many elements after an aligned address, scaled; one after another."""
    copies = [torch.cat([x[:at], x])[at:] for x in tensors]
    torch._foreach_mul_(copies, factor)
    return torch.cat(copies)


#: Pairs of calls that differ in one thing that a signature has to tell.
DISTINCT: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "size": (lambda: X + Y, lambda: X[:3] + Y[:3]),
    "number of dimensions": (lambda: X + Y, lambda: X[None] + Y[None]),
    "strides": (lambda: torch.relu(X.reshape(2, 2)), lambda: torch.relu(X.reshape(2, 2).t())),
    "dtype": (lambda: torch.relu(X), lambda: torch.relu(X.long())),
    "alignment": (lambda: X + Y, lambda: torch.cat([X, X])[1:5] + Y),
    "scalar": (lambda: torch.add(X, Y, alpha=1), lambda: torch.add(X, Y, alpha=2)),
    "type of a scalar": (lambda: torch.add(X, Y, alpha=1), lambda: torch.add(X, Y, alpha=1.0)),
    "sign of a zero": (lambda: torch.add(X, Y, alpha=0.0), lambda: torch.add(X, Y, alpha=-0.0)),
    "number": (lambda: X * 2.0, lambda: X * 3.0),
    "number or tensor": (lambda: X * 2.0, lambda: X * doubles(2, 2, 2, 2)),
    "type of a number": (lambda: X * 2.0, lambda: X * 2),
    "length of a list": (lambda: torch.cat([X, Y]), lambda: torch.cat([X, Y, X])),
    "argument given twice": (lambda: X * X, lambda: X * Y),
    "argument in a list given twice": (lambda: torch.cat([X, X]), lambda: torch.cat([X, Y])),
    "size in a list": (lambda: torch._foreach_mul([X, Y], 2.0), lambda: torch._foreach_mul([X, Y[:3]], 2.0)),
    "tensors of a list in place": (lambda: scaled_in_place([X, Y], 2.0), lambda: scaled_in_place([X, Y, X], 2.0)),
    "number of a list in place": (lambda: scaled_in_place([X, Y], 2.0), lambda: scaled_in_place([X, Y], 3.0)),
    "alignment of many": (lambda: scaled_in_place([X] * 40, 2.0), lambda: scaled_in_place([X] * 40, 2.0, at=1)),
    "optional argument": (lambda: torch.aminmax(X), lambda: torch.aminmax(X, dim=0)),
    "number after one tensor": (
        lambda: torch.nn.functional.leaky_relu(X),
        lambda: torch.nn.functional.leaky_relu(X, 0.5),
    ),
}


@pytest.mark.parametrize("difference", DISTINCT)
def test_calls_that_differ_do_not_share_a_plan(difference: str, replayed: Replayed) -> None:
    """In each direction: the plan of one never answers the other."""
    for first, second in (DISTINCT[difference], DISTINCT[difference][::-1]):
        opsmith.enable(KERNELS)
        expected = first()
        settle(first)
        if difference not in {"dtype", "optional argument"}:
            assert replayed(first)
        assert not replayed(second)
        assert str(expected) == str(first())


@pytest.mark.parametrize(
    ("switch", "off", "on"),
    [
        (torch.set_default_dtype, torch.float32, torch.float64),
        (torch.use_deterministic_algorithms, False, True),
    ],
)
def test_global_settings_are_in_the_signature(
    switch: Callable[[Any], None], off: object, on: object, replayed: Replayed
) -> None:
    """A kernel may ask for them."""
    settle(lambda: X + Y)
    assert replayed(lambda: X + Y)
    switch(on)
    try:
        assert not replayed(lambda: X + Y)
    finally:
        switch(off)
    assert replayed(lambda: X + Y)


@pytest.fixture
def precision() -> Iterator[Any]:
    """Whose ``fp32_precision`` allows TF32 in products, or does not; it is as before after the test."""
    cublas = torch.backends.cuda.matmul
    before = cublas.fp32_precision
    yield cublas
    cublas.fp32_precision = before


A, B = doubles(0.25, -1.75, 3.125, 0.0625).reshape(2, 2), doubles(0.125, 2.25, -0.75, 1.375).reshape(2, 2)
#: Tenths are what the stand-in makes of TF32.
EXACT, ROUNDED = A @ B, A.round(decimals=1) @ B.round(decimals=1)


@pytest.mark.parametrize("settings", [("tf32", "ieee"), ("ieee", "tf32")])
def test_a_plan_is_used_only_while_a_setting_that_host_code_read_is_as_it_was(
    settings: tuple[str, str], replayed: Replayed, precision: Any
) -> None:
    """Else products would go on in TF32 after the user has forbidden it. Each value has a plan, recorded once."""
    products: list[Tensor] = []

    def product() -> None:
        products.append(torch.mm(A, B))

    precision.fp32_precision = settings[0]
    settle(product)
    assert replayed(product)
    precision.fp32_precision = settings[1]
    assert not replayed(product)
    settle(product)
    for setting in (*settings, *settings):
        precision.fp32_precision = setting
        product()  # Python tells C++ of the other plan.
        assert replayed(product)
        assert all(torch.allclose(ROUNDED if setting == "tf32" else EXACT, one) for one in products[-2:])
    assert (16, 13, {}) == (served("mm.default").calls, served("mm.default").planned, served("mm.default").refused)


@pytest.mark.usefixtures("precision")
def test_a_setting_that_is_changed_in_another_way_is_noticed(replayed: Replayed) -> None:
    """There are older switches for the same setting."""
    settle(lambda: torch.mm(A, B))
    torch.set_float32_matmul_precision("high")
    try:
        assert not replayed(lambda: torch.mm(A, B))
        assert torch.allclose(ROUNDED, torch.mm(A, B))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.allclose(EXACT, torch.mm(A, B))


def test_signatures_whose_host_code_reads_no_setting_keep_their_plans(replayed: Replayed, precision: Any) -> None:
    """Only what depends on it is recorded again."""
    settle(lambda: X + Y)
    precision.fp32_precision = "tf32"
    assert replayed(lambda: X + Y)


def test_recordings_see_which_setting_the_shipped_products_read() -> None:
    """Those of matrices ask torch whether TF32 is allowed; convolutions are in float32 whatever is."""
    seen: list[Precision] = []
    with watched_precisions(seen.append):
        matmul.dot_precision(torch.float32, 8)
        implicit_gemm.dot_precision(torch.float32, 8)
    assert [("cuda", "matmul")] == [(one.backend, one.op) for one in seen]
    assert in_force(seen)
    assert not in_force([seen[0]._replace(value="bf16")])


def test_an_inference_tensor_has_a_plan_of_its_own_and_results_are_what_eager_returns(replayed: Replayed) -> None:
    """Results of inference mode are inference tensors, those outside are not, with the same signature."""
    settle(lambda: X + Y)
    with torch.inference_mode():
        settle(lambda: X + Y)
        assert replayed(lambda: X + Y)
        assert (X + Y).is_inference()
    assert replayed(lambda: X + Y)
    assert not (X + Y).is_inference()


def test_gradients_flow_through_repeated_calls(replayed: Replayed) -> None:
    """Plans are below autograd."""
    leaf = X.clone().requires_grad_()
    settle(lambda: leaf * Y)
    assert replayed(lambda: leaf * Y)
    (leaf * Y).sum().backward()
    assert leaf.grad is not None
    assert torch.equal(Y, leaf.grad)


def test_ops_that_a_kernel_calls_are_pytorchs_though_they_have_plans(replayed: Replayed) -> None:
    """``sub`` here is written with ``add`` and ``mul``, whose calls inside are not the model's."""
    negative = X - Y
    settle(lambda: torch.add(X, negative))
    settle(lambda: Y * -1.0)
    before = (served("add.Tensor").calls, served("mul.Tensor").calls)
    launched.clear()
    assert torch.equal(negative, X - Y)
    assert not launched
    assert before == (served("add.Tensor").calls, served("mul.Tensor").calls)


def test_switching_off_and_on_takes_and_brings_the_plans(replayed: Replayed) -> None:
    """At once, and with the counts of the choice that is back."""
    settle(lambda: X + Y)
    with opsmith.enabled(KERNELS, ops="relu"):
        launched.clear()
        assert torch.equal(doubles(6, 4, 10, 4), X + Y)
        assert not launched
    assert replayed(lambda: X + Y)
    planned = served("add.Tensor").planned
    opsmith.disable()
    assert not replayed(lambda: X + Y)
    assert 2 == planned


def test_disable_leaves_the_tables_as_before(choice: Choice) -> None:
    """With what is put before the Python functions, too."""
    before = tables()
    opsmith.enable(KERNELS)
    settle(lambda: X + Y)
    opsmith.disable()
    assert before == tables()


def test_a_thread_of_its_own_uses_the_plans(replayed: Replayed) -> None:
    """They are the process's."""
    settle(lambda: X + Y)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(replayed(lambda: X + Y)))
    thread.start()
    thread.join()
    assert [True] == found


def test_with_several_devices_only_calls_on_the_current_one_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan launches on the current device's stream; the kernel's own path makes the tensors' device current."""
    monkeypatch.setenv(VARIABLE, Choice.PYTHON)  # C++ asks torch, for which a CPU is always the current one.
    current = {"index": -1}
    monkeypatch.setattr("tests.launch_stand_in.DEVICES", 2)
    monkeypatch.setattr("tests.launch_stand_in.CURRENT", current)
    opsmith.enable(KERNELS)
    settle(lambda: X + Y)
    launched.clear()
    assert torch.equal(doubles(6, 4, 10, 4), X + Y)
    current["index"] = 1
    assert torch.equal(doubles(6, 4, 10, 4), X + Y)
    assert [PYTHON, HOST] == [*launched]


def test_a_thread_that_cannot_launch_yet_is_helped_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has not used the device has no context; torch's launcher in Python makes one."""
    monkeypatch.setenv(VARIABLE, Choice.NATIVE)
    opsmith.enable(KERNELS)
    settle(lambda: X + Y)
    launched.clear()
    monkeypatch.setattr(error, "code", 201)
    assert torch.equal(doubles(6, 4, 10, 4), X + Y)
    assert [PYTHON] == [*launched]
    monkeypatch.setattr(error, "code", 700)
    with pytest.raises(RuntimeError, match="CUDA error 700"):
        X + Y


def test_a_thread_that_cannot_launch_many_parameters_yet_makes_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's launcher does so for the others."""
    monkeypatch.setenv(VARIABLE, Choice.PYTHON)
    opsmith.enable(KERNELS)
    tensors = [X + n for n in range(150)]
    settle(lambda: torch._foreach_mul(tensors, 2.0))
    monkeypatch.setattr(error, "code", 201)
    launched.clear()
    assert torch.equal(doubles(16, 10, 20, 6), torch._foreach_mul(tensors, 2.0)[7])
    assert [PYTHON] == [*launched]
    monkeypatch.setattr(error, "code", 700)
    with pytest.raises(RuntimeError, match="CUDA error 700"):
        torch._foreach_mul(tensors, 2.0)


def test_more_signatures_than_are_kept_are_forgotten_and_learned_again(
    replayed: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with dynamic shapes does not fill the memory."""
    monkeypatch.setattr("opsmith.dispatch.plan_cache._KEPT", 4)
    for size in range(1, 20):
        x = torch.arange(size, dtype=torch.float64)
        settle(lambda: torch.relu(x))  # noqa: B023 - called at once
        assert replayed(lambda: torch.relu(x))  # noqa: B023 - as above
        assert torch.equal(x, torch.relu(x))
    serving = install._installed.registry.overrides["relu.default", "cpu"].serving
    assert serving is not None
    plans = serving.plans
    assert plans is not None
    assert len(plans._replays) <= 4
    assert len(plans._seen) <= 4


# ---------------------------------------------------------------- what is not repeated


def test_a_call_that_the_kernel_declines_is_not_recorded_again(replayed: Replayed) -> None:
    """PyTorch answers it, as before, and the reason is kept."""
    for _ in range(4):
        assert torch.equal(X.long().clamp(0), torch.relu(X.long()))
    assert {Refusal.FALLBACK: 1} == served("relu.default").refused
    assert {"declined": 4} == served("relu.default").fallbacks


REFUSED = {
    Refusal.OPERATION: "out = torch.empty_like(x); COPY[1,](out, x.clone(), x.numel()); return out",
    Refusal.LAUNCH: "out = torch.empty_like(x); COPY.unseen((1,), out, x, x.numel()); return out",
    Refusal.ARGUMENT: "out = torch.empty_like(x); COPY[1,](out.data_ptr(), x, x.numel()); return out",
    Refusal.RESULT: "out = torch.empty_like(x); COPY[1,](out, x, x.numel()); return out[:2]",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_host_code_that_a_plan_cannot_repeat_is_run_each_time(reason: Refusal, tmp_path: Path, choice: Choice) -> None:
    """It was promised too much; the results are right all the same."""
    enable_relu(tmp_path, REFUSED[reason])
    for n in range(4):
        assert torch.equal(X[:2] + n if reason is Refusal.RESULT else X + n, torch.relu(X + n))
    assert {reason: 1} == served("relu.default").refused
    assert (4, 0) == (served("relu.default").calls, served("relu.default").planned)


def test_a_tensor_without_memory_may_tell_strides(tmp_path: Path, choice: Choice) -> None:
    """Nothing is allocated for it when the call is repeated."""
    enable_relu(tmp_path, f"x.t() if torch.empty(2, 3, device='meta').t().stride() != (1, 3) else None; {COPIES}")
    settle(lambda: torch.relu(X))
    assert (1, {}) == (served("relu.default").planned, served("relu.default").refused)


def test_a_result_that_is_laid_out_anew_is_not_repeated(tmp_path: Path, choice: Choice) -> None:
    """The kernel returns rows where eager keeps columns; dispatch copies, which no plan knows."""
    source = (
        "out = torch.empty(x.shape, dtype=x.dtype); rows = torch.empty_strided(x.t().shape, x.t().stride(), "
        "dtype=x.dtype); COPY[1,](rows, x, x.numel()); return out"
    )
    enable_relu(tmp_path, source)
    x = X.reshape(2, 2).t()
    for _ in range(3):
        assert (1, 2) == torch.relu(x).stride()
    assert {Refusal.LAYOUT: 1} == served("relu.default").refused


@pytest.mark.parametrize(
    "metadata",
    [
        "num_ctas=2",
        "launch_cooperative_grid=True",
        "global_scratch_size=8",
        "profile_scratch_size=8",
    ],
)
def test_a_kernel_that_needs_more_than_its_parameters_is_not_repeated(
    metadata: str, tmp_path: Path, choice: Choice
) -> None:
    """Clusters and scratch memory are Triton's business."""
    enable_relu(
        tmp_path,
        f"out = torch.empty_like(x); Kernel(COPY.function, {metadata})[1,](out, x, x.numel()); return out",
    )
    for _ in range(3):
        assert torch.equal(X, torch.relu(X))
    assert {Refusal.ARGUMENT: 1} == served("relu.default").refused


@pytest.mark.parametrize("capturing", [False, True])
def test_a_kernel_that_waits_by_itself_overlaps_with_the_one_before(
    tmp_path: Path, choice: Choice, monkeypatch: pytest.MonkeyPatch, *, capturing: bool
) -> None:
    """In a CUDA graph; calls one by one overlap only where C++ launches them, at no cost."""
    enable_relu(
        tmp_path,
        "out = torch.empty_like(x); Kernel(COPY.function, launch_pdl=True)[1,](out, x, x.numel()); return out",
    )
    for _ in range(3):
        torch.relu(X)
    monkeypatch.setitem(CAPTURING, "now", capturing)
    overlapped.clear()
    for _ in range(3):
        assert torch.equal(X, torch.relu(X))
    assert 3 <= served("relu.default").planned
    programmatic_stream_serialization = (6, 1)
    assert [[programmatic_stream_serialization]] * (3 if capturing or choice is Choice.NATIVE else 0) == [*overlapped]


def test_a_kernel_that_does_not_ask_for_plans_is_always_run(replayed: Replayed) -> None:
    """Its host code may depend on anything."""
    for _ in range(4):
        X - Y
    assert (4, 0, {}) == (served("sub.Tensor").calls, served("sub.Tensor").planned, served("sub.Tensor").refused)


def enable_relu(folder: Path, body: str, *, elementwise: bool = False) -> None:
    """A kernel for relu that copies; its manifest allows plans."""
    enable_copying(folder, "relu.default", f"(x): {body}", elementwise=elementwise)


def enable_copying(folder: Path, op: str, rest: str, *, elementwise: bool = False) -> None:
    """A kernel of these parameters and this body, which launches copies; its manifest allows plans."""
    (folder / "copying.py").write_text(
        "import torch\nfrom tests.launch_stand_in import Kernel\n"
        "from tests.launch_stand_in import memory\n"
        "COPY = Kernel(lambda grid, out, x, count: memory(out, count).__setitem__(slice(None), memory(x, count)))\n"
        f"def kernel{rest}\n"
    )
    entry = {"entry": "copying.py:kernel", "dsl": "python", "plans": True, "elementwise": elementwise}
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "kernels": {op: entry}}))
    opsmith.enable(folder)


#: What a kernel does whose result is a copy of its first argument.
COPIES = "out = torch.empty_like(x); COPY[1,](out, x, x.numel()); return out"


def test_a_copy_is_repeated_unless_it_is_negated_lazily_or_has_no_memory(tmp_path: Path, choice: Choice) -> None:
    """Torch hands such tensors to few ops; a signature in Python does not tell, a kernel would read other numbers."""
    enable_copying(tmp_path, "clone.default", f"(x, *, memory_format=None): {COPIES}")
    settle(X.clone)
    negated, zeros = torch._neg_view(X), torch._efficientzerotensor((4,), dtype=torch.float64)
    for _ in range(3):
        assert torch.equal(-X, negated.clone())
        assert not torch.equal(negated.clone(), X.clone())
        assert not zeros.clone().any()
    found = served("clone.default")
    assert (1 + 3, {"lazy": 9}, {}) == (found.planned, found.fallbacks, found.refused)


def test_what_only_negated_tensors_were_given_to_is_planned_for_others(tmp_path: Path, choice: Choice) -> None:
    """That PyTorch answered is not kept as a refusal of the signature."""
    enable_copying(tmp_path, "clone.default", f"(x, *, memory_format=None): {COPIES}")
    settle(torch._neg_view(X).clone)
    settle(X.clone)
    assert 1 == served("clone.default").planned


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_convolution_is_repeated_but_not_while_it_is_traced(tmp_path: Path, choice: Choice) -> None:
    """``torch.jit.trace`` writes down what it calls; a plan would leave nothing but memory to be written down."""
    image, weight = X.reshape(1, 1, 4), doubles(1).reshape(1, 1, 1)

    def kinds() -> list[str]:
        graph = torch.jit.trace(lambda x: torch.conv1d(x, weight), (image,), check_trace=False).graph
        return [node.kind() for node in graph.nodes()]

    expected = kinds()
    enable_copying(tmp_path, "convolution.default", f"(x, *_): {COPIES}")
    settle(lambda: torch.conv1d(image, weight))
    assert 1 == served("convolution.default").planned
    assert expected == kinds()
    assert (1, {"traced": 1}) == (served("convolution.default").planned, served("convolution.default").fallbacks)


# ---------------------------------------------------------------- the launcher in C++


def test_without_a_compiler_python_carries_plans_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log says so."""
    launcher._path.cache_clear()
    launcher._library.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(VARIABLE, Choice.NATIVE)
    try:
        opsmith.enable(KERNELS)
        settle(lambda: X + Y)
        launched.clear()
        X + Y
        opsmith.disable()
    finally:
        launcher._path.cache_clear()
        launcher._library.cache_clear()
    assert [PYTHON] == [*launched]
    (line,) = caplog.messages
    assert "install g++ or set CXX" in line


def test_a_compiler_that_fails_is_quoted_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing unfinished stays where the next process would load it."""
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1:1: fatal error: no such header\nmore' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv(VARIABLE, Choice.NATIVE)
    monkeypatch.setattr(launcher, "_path", lambda: tmp_path / "launcher.so")
    launcher.build()
    assert ["x.cpp:1:1: fatal error: no such header"] == [line.partition("built: ")[2] for line in caplog.messages]
    assert [] == [*tmp_path.glob("*.so")]


def test_switched_off_by_the_environment_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """``off`` is for finding out whether a plan is at fault."""
    monkeypatch.setenv(VARIABLE, Choice.OFF)
    opsmith.enable(KERNELS)
    launched.clear()
    for _ in range(4):
        X + Y
    assert [HOST] * 4 == [*launched]


def test_another_value_of_the_variable_is_a_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go unnoticed."""
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(opsmith.OpsmithError, match="is none of native, python, off"):
        opsmith.enable(KERNELS)


def test_nothing_is_compiled_for_kernels_that_allow_no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute of a compiler is for those that gain by it."""
    built: list[int] = []
    monkeypatch.setattr(launcher, "build", lambda: built.append(1))
    opsmith.enable(KERNELS, ops="sub.Tensor")
    opsmith.disable()
    assert [] == built
    opsmith.enable(KERNELS, ops="relu")
    assert [1] == built


def test_backward_ops_called_by_autograd_are_repeated_too(choice: Choice) -> None:
    """Autograd calls ``mul`` again for its gradient, from C++."""
    opsmith.enable(KERNELS)
    leaf = X.clone().requires_grad_()
    for _ in range(4):
        leaf.grad = None
        (leaf * Y).backward(torch.ones_like(X))
    assert leaf.grad is not None
    assert torch.equal(Y, leaf.grad)
    assert served("mul.Tensor").planned > 4
