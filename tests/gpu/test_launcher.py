"""Launch plans on a device: the shipped kernels, repeated in Python and in C++, give what they give by themselves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.aten.schemas import aten_schemas
from opsmith.backends.shipped import Shipped
from opsmith.core.kernel import Kernel
from opsmith.core.task import Task
from opsmith.dispatch import install
from opsmith.dispatch.as_installed import as_installed
from opsmith.dispatch.plans import native
from opsmith.dispatch.plans.mode import VARIABLE, LaunchMode
from opsmith.dispatch.plans.plan import Launch
from opsmith.runner.worker.loading import load_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]
CUDA = torch.device("cuda")


@pytest.fixture(params=[LaunchMode.PYTHON, LaunchMode.NATIVE])
def choice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LaunchMode]:
    """The shipped kernels, with plans carried out in both ways."""
    found: LaunchMode = request.param
    monkeypatch.setenv(VARIABLE, found)
    opsmith.enable(device="cuda")
    assert (found is LaunchMode.NATIVE) is (native.library() is not None)
    yield found
    opsmith.disable()


def planned() -> int:
    """How many calls plans answered."""
    return sum(op.planned for op in opsmith.active().ops)


def by_plan(call: Callable[[], Any]) -> Any:
    """What a call gives once it is repeated from a plan."""
    for _ in range(3):
        call()
    before = planned()
    result = call()
    assert planned() == before + 1, [(op.op, op.refused, op.fallbacks) for op in opsmith.active().ops if op.calls]
    return result


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Reproducible numbers."""
    generator = torch.Generator(CUDA).manual_seed(rows * columns)
    return torch.randn(rows, columns, device=CUDA, generator=generator).to(dtype)


X, Y = (matrix(37, 65), matrix(65, 37).t()) if torch.cuda.is_available() else (torch.ones(1), torch.ones(1))
CALLS: dict[str, Callable[[], Any]] = {
    "add": lambda: torch.add(X, X.flip(0), alpha=3),
    "add of two layouts": lambda: X + Y,
    "add a number": lambda: X + 2.5,
    "add_": lambda: X.clone().add_(Y),
    "add out": lambda: torch.add(X, Y, out=torch.empty_like(X)),
    "mul broadcast": lambda: X * Y[0],
    "exp of integers": lambda: torch.exp(X.long()),
    "gelu": lambda: torch.nn.functional.gelu(X.bfloat16(), approximate="tanh"),
    "where": lambda: torch.where(X > 0, X, Y),
    "clamp": lambda: X.clamp(-0.5, 0.5),
    "sum": lambda: X.sum(1),
    "sum in two launches": lambda: matrix(1, 1 << 20).sum(),
    "softmax": lambda: torch.softmax(X, 1),
    "layer_norm": lambda: torch.native_layer_norm(X, [65], X[0], None, 1e-5),
    "mm": lambda: X.half() @ Y.half().t(),
    "cat": lambda: torch.cat([X, Y, X], 1),
    "empty": lambda: X[:0] + Y[:0],
}


@pytest.mark.parametrize("name", CALLS)
def test_a_plan_gives_what_the_kernel_gives(name: str, choice: LaunchMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, with eager's layout."""
    call = CALLS[name]
    for _ in range(3):
        call()
    before = planned()
    found = call()
    assert planned() > before
    monkeypatch.setenv(VARIABLE, LaunchMode.OFF)
    opsmith.enable(device="cuda")
    expected = call()
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (expected, found)), strict=True):
        assert torch.equal(one, other)
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())


INDEX = torch.arange(16, device=CUDA) * 2 if torch.cuda.is_available() else torch.arange(16)


def in_place(call: Callable[[list[Tensor]], Any], count: int = 150) -> list[Tensor]:
    """So many tensors after a call that writes to them, some of which are as large as a block."""
    tensors = [matrix(1 + n % 9, 300) for n in range(count)]
    call(tensors)
    return tensors


#: By the op that answers.
OTHERS: dict[str, Callable[[], Any]] = {
    "clone.default": lambda: X.t().clone(),
    "copy_.default": lambda: torch.empty_like(X, dtype=torch.float16).copy_(X),
    "embedding.default": lambda: torch.nn.functional.embedding(INDEX, X),
    "index_select.default": lambda: X.index_select(1, INDEX),
    "gather.default": lambda: X.gather(0, INDEX.expand(4, 16)),
    "index.Tensor": lambda: X[:, INDEX],
    "index_put_.default": lambda: X.half().index_put_([INDEX], Y[:16].half(), accumulate=True),
    "index_add_.default": lambda: X.half().index_add_(0, INDEX, Y[:16].half()),
    "scatter_add.default": lambda: X.scatter_add(0, INDEX[:, None].expand(16, 4), Y),
    "convolution.default": lambda: torch.conv2d(X.expand(2, 3, 37, 65), X[:3, :27].reshape(3, 3, 3, 3)),
    "native_group_norm.default": lambda: torch.nn.functional.group_norm(X.expand(2, 4, 37, 65), 2),
    "_foreach_add.Scalar": lambda: torch._foreach_add(in_place(len), 2.0),
    "_foreach_add_.Scalar": lambda: in_place(lambda tensors: torch._foreach_add_(tensors, 2.0)),
    "_foreach_lerp_.Scalar": lambda: in_place(lambda tensors: torch._foreach_lerp_(tensors, in_place(len), 0.5)),
}


@pytest.mark.parametrize("op", OTHERS)
def test_copies_indexing_convolutions_and_lists_are_repeated(
    op: str, choice: LaunchMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The op itself, by what it counts, to the last bit: no element gets more than one addend."""

    def times() -> int:
        return next(one.planned for one in opsmith.active().ops if one.op == op)

    for _ in range(3):
        OTHERS[op]()
    before = times()
    found = OTHERS[op]()
    assert times() > before, [(one.op, one.refused, one.fallbacks) for one in opsmith.active().ops if one.calls]
    monkeypatch.setenv(VARIABLE, LaunchMode.OFF)
    opsmith.enable(device="cuda")
    expected = OTHERS[op]()
    for one, other in zip(*(r if isinstance(r, (list, tuple)) else [r] for r in (expected, found)), strict=True):
        assert torch.equal(one, other)
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())


def timed(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A shipped kernel as it is judged, and as the judge's clock calls it: from plans in Python."""
    schema, shipped = aten_schemas()[op], Shipped()
    record = shipped.kernel_for(Task(name=op, op=schema, suite="opinfo"))
    assert isinstance(record, Kernel)
    judged = load_kernel(record, shipped.path, schema)
    return judged, as_installed(judged, record, schema, "cuda")


#: By overload: the arguments of a call in place, of two lists.
LISTED: dict[str, Callable[[list[Tensor], list[Tensor]], tuple[Any, ...]]] = {
    "_foreach_mul_.Scalar": lambda xs, _: (xs, 0.5),
    "_foreach_add_.List": lambda xs, ys: (xs, ys),
    "_foreach_div_.ScalarList": lambda xs, _: (xs, [2.0 + n for n in range(len(xs))]),
    "_foreach_lerp_.Scalar": lambda xs, ys: (xs, ys, 0.25),
}


@pytest.mark.parametrize("count", [3, 150])
@pytest.mark.parametrize("op", LISTED)
def test_lists_are_timed_from_plans_that_hold_no_former_pointers(
    op: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tensors each time, some at the places of freed ones, then the first ones again, with no host code."""
    judged, repeated = timed(op)
    kept = [([matrix(1 + n % 9, 300) + start for n in range(count)], in_place(len, count)) for start in range(4)]
    for xs, ys in kept[:3]:
        repeated(*LISTED[op](xs, ys))
    monkeypatch.setattr("opsmith.dispatch.entry.signature_of", mock.Mock(side_effect=AssertionError))
    for xs, ys in kept * 2:
        expected = [x.clone() for x in xs]
        judged(*LISTED[op](expected, ys))
        repeated(*LISTED[op](xs, ys))
        assert all(map(torch.equal, expected, xs))
        for fresh in ([x + 1 for x in xs], [x - 1 for x in xs]):
            expected = [x.clone() for x in fresh]
            judged(*LISTED[op](expected, ys))
            repeated(*LISTED[op](fresh, ys))
            assert all(map(torch.equal, expected, fresh))


CREATING: dict[str, tuple[Any, ...]] = {
    "full.default": ([37, 65], 2.5),
    "zeros.default": ([37, 65],),
    "ones.default": ([0, 3],),
    "scalar_tensor.default": (2.5,),
    "arange.default": (100,),
    "arange.start": (1, 50),
    "arange.start_step": (511, -513, -1),
}


@pytest.mark.parametrize("op", CREATING)
def test_new_tensors_are_timed_from_plans(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory of their own."""
    judged, repeated = timed(op)
    expected, make = judged(*CREATING[op], device=CUDA), partial(repeated, *CREATING[op], device=CUDA)
    first, *_ = (make() for _ in range(3))
    monkeypatch.setattr("opsmith.dispatch.entry.signature_of", mock.Mock(side_effect=AssertionError))
    found = make()
    first.fill_(7)
    assert torch.equal(expected, found)
    assert (expected.dtype, expected.stride(), expected.device) == (found.dtype, found.stride(), found.device)


DRAWING: dict[str, tuple[Any, ...]] = {
    "rand.default": ([37, 65],),
    "randn.default": ([37, 65],),
    "randint.default": (9, [37, 65]),
    "randint.low": (-3, 9, [37, 65]),
    "normal.float_float": (1.0, 2.0, [37, 65]),
}


@pytest.mark.parametrize("op", DRAWING)
def test_random_tensors_are_drawn_from_plans_as_without(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call by call the same numbers under one seed, and others at each call."""
    judged, repeated = (partial(call, *DRAWING[op], device=CUDA) for call in timed(op))
    torch.manual_seed(5)
    expected = [judged() for _ in range(6)]
    torch.manual_seed(5)
    found = [repeated() for _ in range(3)]
    monkeypatch.setattr("opsmith.dispatch.entry.signature_of", mock.Mock(side_effect=AssertionError))
    found += [repeated() for _ in range(3)]
    assert all(map(torch.equal, expected, found))
    assert not torch.equal(found[4], found[5])


IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu_.default": lambda x, _: torch.nn.functional.silu(x, inplace=True),
    "leaky_relu_.default": lambda x, _: torch.nn.functional.leaky_relu_(x, 0.2),
    "sub_.Tensor": lambda x, y: x.sub_(y, alpha=2),
    "addcmul_.default": lambda x, y: x.addcmul_(y, y[0]),
    "masked_fill_.Scalar": lambda x, y: x.masked_fill_(y > 0, 2.5),
    "nextafter_.default": lambda x, y: x.nextafter_(y),
    "tril_.default": lambda x, _: x.tril_(1),
}


@pytest.mark.parametrize("op", IN_PLACE)
def test_an_in_place_call_of_an_elementwise_op_is_one_launch(op: str, choice: LaunchMode) -> None:
    """Without memory for the result and without a copy from there, with what eager gives."""
    call, start, other = IN_PLACE[op], matrix(37, 65), matrix(65, 37).t().contiguous()
    for _ in range(4):
        x = start.clone()
        assert x is call(x, other)
    serving = install._installed.registry.overrides[op, "cuda"].serving
    assert serving is not None
    assert serving.plans is not None
    ((replay,),) = serving.plans._replays.values()
    assert ((), [Launch]) == (replay.plan.allocations, [type(step) for step in replay.plan.steps])
    assert {} == serving.plans.refusals
    torch.testing.assert_close(x.cpu(), call(start.cpu(), other.cpu()))


@pytest.mark.parametrize("op", IN_PLACE)
def test_an_in_place_call_on_a_strided_tensor_is_one_launch(op: str, choice: LaunchMode) -> None:
    """What lies between its elements stays."""
    call, start, other = IN_PLACE[op], matrix(37, 130), matrix(65, 37).t().contiguous()
    for _ in range(4):
        memory = start.clone()
        call(memory[:, ::2], other)
    serving = install._installed.registry.overrides[op, "cuda"].serving
    assert serving is not None
    assert serving.plans is not None
    ((replay,),) = serving.plans._replays.values()
    assert ((), [Launch]) == (replay.plan.allocations, [type(step) for step in replay.plan.steps])
    expected = start.cpu()
    call(expected[:, ::2], other.cpu())
    torch.testing.assert_close(memory.cpu(), expected)


def test_a_plan_serves_other_values_at_other_addresses(choice: LaunchMode) -> None:
    """What was recorded is not what is computed."""
    flipped = X.flip(0)
    by_plan(lambda: torch.add(X, flipped))
    for factor in range(5):
        x, y = X * factor, X.flip(1) - factor
        before = planned()
        assert torch.equal(x.cpu() + y.cpu(), torch.add(x, y).cpu())
        assert planned() == before + 1


def test_two_signatures_take_turns(choice: LaunchMode) -> None:
    """Each has its plan."""
    small, large = matrix(4, 4), matrix(400, 40)
    for x in (small, large):
        by_plan(lambda: x + x)  # noqa: B023 - called at once
    for _ in range(3):
        for x in (small, large):
            before = planned()
            assert torch.equal(x.cpu() * 2, (x + x).cpu())
            assert planned() == before + 1


def test_addresses_that_are_not_aligned_have_plans_of_their_own(choice: LaunchMode) -> None:
    """A kernel compiled for addresses divisible by 16 reads four numbers at once, and traps on others."""
    memory = matrix(1, 4097)[0]
    aligned, shifted = memory[:4096], memory[1:]
    for x in (aligned, shifted, aligned, shifted):
        assert torch.equal(x.cpu() * 2, by_plan(lambda: x + x).cpu())  # noqa: B023 - called at once
    torch.cuda.synchronize()


def test_kernels_with_much_shared_memory_are_launched(choice: LaunchMode) -> None:
    """More than 48 KiB has to be asked for; Triton does when it loads a kernel, and a plan launches the same one."""
    a, b = matrix(4096, 512, torch.bfloat16), matrix(512, 4096, torch.bfloat16)
    found = by_plan(lambda: torch.mm(a, b))
    serving = install._installed.registry.overrides["mm.default", "cuda"].serving
    assert serving is not None
    assert serving.plans is not None
    replays = [replay for several in serving.plans._replays.values() for replay in several]
    launches = [step for replay in replays for step in replay.plan.steps]
    assert max(step.shared_bytes for step in launches if isinstance(step, Launch)) > 48 << 10
    opsmith.disable()
    assert torch.allclose(torch.mm(a, b), found, rtol=0.016, atol=1e-2)


def test_products_are_exact_again_when_tf32_is_forbidden(choice: LaunchMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that was recorded while it was allowed is another one."""
    a, b = matrix(256, 512), matrix(512, 256)
    exact = a.double() @ b.double()
    errors = {}
    for value in ("tf32", "ieee", "tf32", "ieee"):
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", value)
        errors[value] = (by_plan(lambda: torch.mm(a, b)) - exact).abs().max().item()
    assert errors["ieee"] < 1e-3 < errors["tf32"]


def test_a_plan_launches_on_the_current_stream(choice: LaunchMode) -> None:
    """Not on the one that it was recorded on, which is busy here."""
    x = matrix(64, 64)
    expected, result = x.cpu() * 2, torch.empty(64, 64, pin_memory=True)
    by_plan(lambda: x + x)
    side, busy = torch.cuda.Stream(), torch.cuda.Event()

    def on_side() -> None:
        with torch.cuda.stream(side):
            result.copy_(x + x, non_blocking=True)

    on_side()  # What it allocates would wait for the device.
    torch.cuda.synchronize()
    result.zero_()
    torch.cuda._sleep(2_000_000_000)
    busy.record()
    on_side()
    side.synchronize()
    assert not busy.query(), "the other stream was to be busy"
    assert torch.equal(expected, result)
    torch.cuda.synchronize()


def test_plans_are_captured_in_cuda_graphs(choice: LaunchMode) -> None:
    """The launch becomes a node, and the graph computes anew at each replay."""
    x, y = matrix(64, 64), matrix(64, 64)
    by_plan(lambda: x + y)
    graph = torch.cuda.CUDAGraph()
    before = planned()
    with torch.cuda.graph(graph):
        out = x + y
    assert planned() == before + 1
    x.fill_(3)
    graph.replay()
    assert torch.equal(y.cpu() + 3, out.cpu())


def test_a_fresh_thread_uses_plans(choice: LaunchMode) -> None:
    """It has no context of the driver yet."""
    x = matrix(8, 8)
    by_plan(lambda: x + x)
    torch.cuda.synchronize()
    found: list[Tensor] = []
    before = planned()
    thread = threading.Thread(target=lambda: found.extend(x + x for _ in range(3)))
    thread.start()
    thread.join()
    assert all(torch.equal(x.cpu() * 2, one.cpu()) for one in found)
    assert planned() == before + 3


def test_gradients_are_computed_by_plans_on_autograds_threads(choice: LaunchMode) -> None:
    """Backward ops come from threads that Python did not start."""
    x, y = matrix(16, 16).requires_grad_(), matrix(16, 16)

    def step() -> None:
        x.grad = None
        (x * y).backward(torch.ones_like(y))

    for _ in range(4):
        step()
    before = planned()
    step()
    assert planned() > before + 1
    assert x.grad is not None
    assert torch.equal(y, x.grad)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_a_device_that_is_not_the_current_one_are_served(choice: LaunchMode) -> None:
    """By the kernel itself, on their device; where it is current, by a plan of its own."""
    first, second = matrix(8, 8), matrix(8, 8).to("cuda:1")
    by_plan(lambda: first + first)
    for _ in range(4):
        found = second + second
        assert torch.device("cuda:1") == found.device
        assert torch.equal(second.cpu() * 2, found.cpu())
    with torch.cuda.device(1):
        assert torch.equal(second.cpu() * 2, by_plan(lambda: second + second).cpu())


def test_opted_out_nothing_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch that tells whether a plan is at fault."""
    monkeypatch.setenv(VARIABLE, LaunchMode.OFF)
    with opsmith.enabled(device="cuda"):
        for _ in range(4):
            X + X
        assert 0 == planned()
