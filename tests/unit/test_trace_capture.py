"""Capture: which calls a trace holds, and what it says of their arguments."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from opsmith.core.case import ComplexValue, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.trace import TraceEntry
from opsmith.traces.attention import cuda_attention
from opsmith.traces.capture import Capture
from opsmith.traces.grammar import parse_headers, parse_trace, print_trace


def traced(run: Callable[[], object]) -> list[TraceEntry]:
    """The trace of what a function does."""
    with Capture() as capture:
        run()
    return capture.entries()


def ops(entries: list[TraceEntry]) -> dict[str, int]:
    """Op -> number of calls, over all of its inputs."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.call.op] = counts.get(entry.call.op, 0) + entry.count
    return counts


def arguments(entries: list[TraceEntry], op: str) -> list[tuple[Value, ...]]:
    """The positional arguments of every distinct call of an op."""
    return [entry.call.args for entry in entries if entry.call.op == op]


def tensor(*shape: int, strides: tuple[int, ...], dtype: str = "f32", storage: int = 0) -> TensorValue:
    """A tensor as a trace has it."""
    return TensorValue(storage, dtype, shape, strides, 0, "cuda")


def test_equal_calls_are_one_entry_with_their_count() -> None:
    """The count is the weight that an input has in the model."""
    x = torch.ones(2, 3)
    entries = traced(lambda: [torch.relu(x) for _ in range(5)])
    assert [("relu.default", 5)] == [(entry.call.op, entry.count) for entry in entries]


def test_a_tensor_is_recorded_with_dtype_shape_and_strides() -> None:
    """A kernel has to serve the layout that the model used."""
    x = torch.ones(4, 3, dtype=torch.bfloat16).t()
    (args,) = arguments(traced(lambda: torch.add(x, x)), "add.Tensor")
    second = tensor(3, 4, strides=(1, 3), dtype="bf16", storage=1)
    assert (tensor(3, 4, strides=(1, 3), dtype="bf16"), second) == args


def test_numbers_of_another_type_are_another_input() -> None:
    """``x * 1``, ``x * 1.0`` and ``x * True`` promote differently."""
    x = torch.ones(2)
    found = arguments(traced(lambda: [x.mul(1), x.mul(1.0), x.mul(True), x.mul(1)]), "mul.Tensor")
    assert [(int, 1), (float, 1.0), (bool, True)] == [(type(args[1]), args[1]) for args in found]


def test_every_kind_of_argument_has_its_value() -> None:
    """Lists, constants of torch, complex numbers, None and infinities."""
    x = torch.ones(2, 3)

    def run() -> None:
        torch.cat([x, x], 1)
        x.to(torch.float16, memory_format=torch.contiguous_format)
        torch.full((2,), 1 + 2j)
        x.clamp(None, float("inf"))

    by_op = {entry.call.op: entry.call for entry in traced(run)}
    first = by_op["cat.default"].args[0]
    assert isinstance(first, SequenceValue)
    assert (2, False) == (len(first.items), first.is_tuple)
    assert NamedValue("dtype", "float16") == by_op["_to_copy.default"].kwargs["dtype"]
    assert NamedValue("memory_format", "contiguous_format") == by_op["_to_copy.default"].kwargs["memory_format"]
    assert ComplexValue(1.0, 2.0) == by_op["full.default"].args[1]
    assert (None, float("inf")) == by_op["clamp.default"].args[1:]


def test_a_device_stands_for_the_device_of_whoever_runs_the_call() -> None:
    """A trace that was made on a CPU asks the same of a GPU."""
    (call,) = [entry.call for entry in traced(lambda: torch.zeros(2, device="cpu"))]
    assert NamedValue("device", "cuda") == call.kwargs["device"]


def test_a_generator_is_the_callers_own() -> None:
    """Its state is no part of what a kernel computes."""
    (call,) = [entry.call for entry in traced(lambda: torch.rand(2, generator=torch.Generator()))]
    assert ("rand.generator", None) == (call.op, call.kwargs["generator"])


def test_the_backward_pass_is_traced() -> None:
    """Training needs kernels for gradients, which no Python code calls."""
    x = torch.ones(2, 3, requires_grad=True)
    counts = ops(traced(lambda: torch.relu(x).sum().backward()))
    assert {"relu.default": 1, "sum.default": 1, "ones_like.default": 1, "expand.default": 1} == {
        op: count for op, count in counts.items() if op != "threshold_backward.default"
    }
    assert 1 == counts["threshold_backward.default"]


def test_arguments_are_those_before_the_call() -> None:
    """An in-place op changes the shape of what it is called with."""
    x = torch.ones(2, 3)
    assert [(tensor(2, 3, strides=(3, 1)), 0)] == arguments(traced(lambda: x.unsqueeze_(0)), "unsqueeze_.default")


def test_ops_that_only_a_watcher_causes_are_left_out_and_counted() -> None:
    """Autograd detaches what it saves because a dispatch mode is there."""
    with Capture() as capture:
        torch.ones(2).detach()
    assert {"ones.default": 1} == ops(capture.entries())
    assert {"aten.detach.default": 1} == dict(capture.left_out)


def test_questions_about_shapes_are_left_out() -> None:
    """No kernel computes their answer; a question about values stays."""
    x = torch.ones(2)

    def run() -> None:
        torch.ops.aten.is_same_size(x, x)
        x.sum().item()

    assert {"sum.default": 1, "_local_scalar_dense.default": 1} == ops(traced(run))


def test_a_library_of_somebody_else_is_left_out_and_counted() -> None:
    """An op of another namespace is no ATen call, and what it is made of is its own affair."""

    @torch.library.custom_op("opsmith_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with Capture() as capture:
        twice(torch.ones(2))
    assert {"opsmith_test.twice.default": 1} == dict(capture.left_out)
    assert {"ones.default": 1} == ops(capture.entries())


def test_an_argument_that_a_trace_cannot_hold_is_told() -> None:
    """A sparse matrix has no strides."""
    matrix = torch.eye(3).to_sparse()
    with Capture() as capture:
        matrix.sin()
    assert [] == capture.entries()
    assert {"sin.default: an argument has layout torch.sparse_coo or is quantized": 1} == dict(capture.untraceable)


def test_a_call_that_fails_is_no_input() -> None:
    """The model never got an answer to it."""
    x, y = torch.ones(2), torch.ones(3)

    def run() -> None:
        with pytest.raises(RuntimeError, match="must match"):
            x.add(y)
        x.add(x)

    assert [1] == [entry.count for entry in traced(run) if entry.call.op == "add.Tensor"]


def test_composite_functions_are_split_in_inference_mode_too() -> None:
    """There torch hands them over whole, and a kernel for ``linear`` would not be what eager runs."""
    layer, x = torch.nn.Linear(3, 4), torch.ones(2, 3)

    def run() -> None:
        with torch.inference_mode():
            layer(x)

    assert {"t.default": 1, "addmm.default": 1} == ops(traced(run))


@pytest.mark.slow
def test_a_symbolic_size_is_recorded_as_what_it_was() -> None:
    """A model that is traced with dynamic shapes still has the sizes of its example."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = mode.from_tensor(torch.ones(5, 3))
    assert isinstance(x.shape[0], torch.SymInt)
    entries = traced(lambda: x.expand(2, *x.shape))
    assert [tensor(5, 3, strides=(3, 1))] == [args[0] for args in arguments(entries, "expand.default")]
    assert [(2, 5, 3)] == [args[1].items for args in arguments(entries, "expand.default")]


def test_a_device_limits_the_trace_to_what_touches_it() -> None:
    """What the host prepares is not the work of a GPU."""
    with FakeTensorMode(), Capture(device="cuda") as capture:
        host = torch.ones(2, device="cpu")
        device = torch.ones(3, device="cuda")
        host.sin()
        device.cos()
        device.to("cpu")
    assert {"ones.default": 1, "cos.default": 1, "_to_copy.default": 1} == ops(capture.entries())
    (copy,) = [entry.call for entry in capture.entries() if entry.call.op == "_to_copy.default"]
    assert NamedValue("device", "cpu") == copy.kwargs["device"]


def test_a_capture_that_is_entered_again_goes_on_counting() -> None:
    """Stages of one model make one trace."""
    capture, x = Capture(), torch.ones(2)
    for _ in range(2):
        with capture:
            x.sin()
    assert {"sin.default": 2} == ops(capture.entries())
    assert 2 == capture.calls


def test_progress_hears_of_every_thousandth_call() -> None:
    """Often enough to see that something goes on, too seldom to slow it down."""
    heard: list[int] = []
    x = torch.ones(1)
    with Capture(progress=heard.append):
        for _ in range(2500):
            x.sin()
    assert [1000, 2000] == heard


def test_a_written_trace_reads_back_as_it_was(tmp_path: Path) -> None:
    """The file has every entry, grouped by op, and the headers."""
    with Capture() as capture:
        x = torch.ones(2, 3)
        (x.t() @ x).relu().to(torch.float16)
    capture.write(tmp_path / "trace.txt", headers={"model": "mine"})
    text = (tmp_path / "trace.txt").read_text(encoding="utf-8")
    assert capture.entries() == parse_trace(text, source="trace.txt")
    assert {"model": "mine", "torch": torch.__version__} == parse_headers(text)
    names = [entry.call.op for entry in capture.entries()]
    assert sorted(names) == names


@pytest.mark.parametrize(
    ("dtype", "query", "key", "value", "mask", "op"),
    [
        (torch.bfloat16, (2, 8, 16, 64), (2, 8, 16, 64), 64, False, "_scaled_dot_product_flash_attention.default"),
        (torch.bfloat16, (2, 8, 16, 64), (2, 2, 16, 64), 64, False, "_scaled_dot_product_flash_attention.default"),
        (torch.float16, (2, 8, 16, 64), (2, 8, 16, 64), 64, True, "_scaled_dot_product_efficient_attention.default"),
        (torch.float32, (2, 8, 16, 64), (2, 8, 16, 64), 64, False, "_scaled_dot_product_efficient_attention.default"),
        (
            torch.bfloat16,
            (2, 8, 16, 192),
            (2, 8, 16, 192),
            128,
            False,
            "_scaled_dot_product_efficient_attention.default",
        ),
        (torch.float32, (2, 8, 16, 63), (2, 8, 16, 63), 63, False, "bmm.default"),
        (torch.float64, (2, 8, 16, 64), (2, 8, 16, 64), 64, False, "bmm.default"),
    ],
)
def test_attention_runs_as_the_op_that_a_gpu_would_choose(
    dtype: torch.dtype, query: tuple[int, ...], key: tuple[int, ...], value: int, *, mask: bool, op: str
) -> None:
    """Flash for half precision without a mask, the memory-efficient kernel for what it takes, else matmuls."""
    with FakeTensorMode(), cuda_attention(), Capture(device="cuda") as capture:
        q, k, v = (torch.empty(shape, dtype=dtype, device="cuda") for shape in (query, key, (*key[:-1], value)))
        bias = torch.zeros(16, 16, dtype=torch.bool, device="cuda") if mask else None
        result = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=query[1] != key[1])
    assert op in ops(capture.entries())
    assert (*query[:-1], value) == tuple(result.shape)


def test_attention_with_an_odd_head_is_padded_for_the_flash_kernel() -> None:
    """It loads 16 bytes at a time; the result has the head's own size and the scale that goes with it."""
    with FakeTensorMode(), cuda_attention(), Capture(device="cuda") as capture:
        q = torch.empty(1, 2, 16, 60, dtype=torch.float16, device="cuda")
        result = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    (call,) = [entry.call for entry in capture.entries() if "flash" in entry.call.op]
    first = call.args[0]
    assert isinstance(first, TensorValue)
    assert ((1, 2, 16, 64), 1 / math.sqrt(60), 60) == (first.shape, call.kwargs["scale"], result.shape[-1])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:torch.quantize_per_tensor")
def test_what_cannot_be_written_down_is_counted_and_made() -> None:
    """A strided nested tensor has no sizes, and a dtype of quantized tensors has no name in a trace."""
    with Capture() as capture:
        nested = torch.relu(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    assert 5 == nested.numel()
    assert any("nested tensor" in reason for reason in capture.untraceable)
    assert any("no form in a trace" in reason for reason in capture.untraceable)
    assert parse_trace(print_trace(capture.entries()), source="capture")


def test_threads_add_to_one_record() -> None:
    """Each enters a capture of its own, and no call is lost."""
    with Capture() as capture:

        def work() -> None:
            with capture.beside():
                for _ in range(50):
                    torch.relu(torch.ones(2))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 400 == ops(capture.entries())["relu.default"]


def test_calls_of_another_process_are_counted_with_equal_ones() -> None:
    """Whatever their arguments are, dicts included."""
    with Capture() as capture:
        torch.ones(2, dtype=torch.float64).relu()
    capture.add(parse_trace(print_trace(capture.entries()), source="other"))
    assert {2} == set(ops(capture.entries()).values())
    assert 4 == capture.calls
