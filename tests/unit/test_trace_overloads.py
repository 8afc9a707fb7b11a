from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opsmith.core.case import NamedValue, SequenceValue, TensorValue
from opsmith.core.trace import TracedCall
from opsmith.traces.grammar import parse_call, print_arguments
from opsmith.traces.overloads import SUCCESSORS, current, misfit
from opsmith.traces.trace_file import find_traces, read_trace

PUBLIC_TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"


def tensor(value: object) -> object:
    """The argument that a node of a traced call stands for; tensors on the CPU, in float32."""
    if isinstance(value, TensorValue):
        return torch.rand(value.shape).as_strided(value.shape, value.strides)
    if isinstance(value, SequenceValue):
        return [tensor(item) for item in value.items]
    assert not isinstance(value, NamedValue)
    return value


def run(call: TracedCall) -> torch.Tensor:
    """What eager returns for the call."""
    torch.manual_seed(0)
    packet, _, overload = call.op.rpartition(".")
    result = getattr(getattr(torch.ops.aten, packet), overload)(*map(tensor, call.args))
    assert isinstance(result, torch.Tensor)
    return result


def gradient(forward: str, shape: tuple[int, ...], *args: object) -> torch.Tensor:
    """The gradient of an op by autograd, for the incoming gradient that :func:`run` makes first."""
    torch.manual_seed(0)
    x = torch.zeros(shape, requires_grad=True)
    y: torch.Tensor = getattr(torch.ops.aten, forward)(x, *args)
    (grad,) = torch.autograd.grad(y, x, torch.rand(y.shape))
    return grad


@pytest.mark.parametrize(
    ("old", "args", "forward"),
    [
        (
            "upsample_nearest2d_backward.vec",
            "((T([1, 2, 6, 8], f32), None, [1, 2, 3, 4], [2.0, 2.0]), {})",
            ("upsample_nearest2d", (1, 2, 3, 4), None, [2.0, 2.0]),
        ),
        (
            "upsample_nearest2d_backward.vec",
            "((T([1, 2, 6, 8], f32), [6, 8], [1, 2, 3, 4], None), {})",
            ("upsample_nearest2d", (1, 2, 3, 4), [6, 8], None),
        ),
        (
            "upsample_bilinear2d_backward.vec",
            "((T([1, 2, 6, 8], f32), None, [1, 2, 3, 4], True, [2.0, 2.0]), {})",
            ("upsample_bilinear2d", (1, 2, 3, 4), None, True, [2.0, 2.0]),
        ),
        (
            "im2col_backward.default",
            "((T([1, 18, 16], f32), [6, 6], [3, 3], [1, 1], [0, 0], [1, 1]), {})",
            ("im2col", (1, 2, 6, 6), [3, 3], [1, 1], [0, 0], [1, 1]),
        ),
        (
            "col2im_backward.default",
            "((T([1, 2, 6, 6], f32), [3, 3], [1, 1], [0, 0], [1, 1]), {})",
            ("col2im", (1, 18, 16), [6, 6], [3, 3], [1, 1], [0, 0], [1, 1]),
        ),
    ],
)
def test_a_backward_op_that_is_gone_is_asked_under_its_successor(
    old: str, args: str, forward: tuple[object, ...]
) -> None:
    """The successor computes the gradient that autograd computes."""
    call = current(parse_call(old, args))
    assert (SUCCESSORS[old].op, None) == (call.op, misfit(call))
    name, shape, *rest = forward
    assert isinstance(name, str)
    assert isinstance(shape, tuple)
    torch.testing.assert_close(gradient(name, shape, *rest), run(call))


def test_a_sum_over_symbolic_sizes_is_a_sum_over_dimensions() -> None:
    """146 of the public files have it."""
    call = current(parse_call("sum.SymInt", "((T([4, 5], f16), [0], True), {})"))
    assert ("sum.dim_IntList", "((T([4, 5], f16), [0], True), {})") == (call.op, print_arguments(call))


@pytest.mark.parametrize("args", ["((1,), {})", "((), {})", "((1, 2, 3, 4), {})"])
def test_a_call_that_the_old_overload_did_not_take_stays_as_it_is(args: str) -> None:
    """A trace is untrusted: what does not fit is told, not guessed."""
    call = parse_call("upsample_nearest2d_backward.vec", args)
    assert call == current(call)
    assert "has no op upsample_nearest2d_backward.vec" in str(misfit(call))


@pytest.mark.parametrize(
    ("op", "args", "problem"),
    [
        ("add.Tensor", "((T([2], f32), 1.0), {'alpha': 2})", None),
        ("no_such_op.default", "((), {})", "has no op no_such_op.default"),
        ("add.NoSuchOverload", "((), {})", "has no op add.NoSuchOverload"),
        ("torchvision.nms.default", "((), {})", "has no op torchvision.nms.default"),
        ("__class__.default", "((), {})", "has no op __class__.default"),
        ("relu.default", "((T([2], f32), 1), {})", "relu.default takes 1 positional arguments, not 2"),
        ("relu.default", "((T([2], f32),), {'inplace': True})", "relu.default takes no argument 'inplace'"),
        ("relu.default", "((T([2], f32),), {'\\x1b[2J': 1})", r"relu.default takes no argument '\x1b[2J'"),
        ("relu.default", "((T([2], f32),), {'self': T([2], f32)})", "relu.default gets the argument 'self' twice"),
        ("mm.default", "((T([2, 2], f32),), {})", "mm.default lacks the argument mat2"),
        ("relu.default", "((), {'self': T([2], f32)})", None),
    ],
)
def test_a_call_that_no_schema_allows_is_told(op: str, args: str, problem: str | None) -> None:
    """By name and number of its arguments; what torch makes of their values is measured."""
    found = misfit(parse_call(op, args))
    assert (problem is None) == (found is None)
    assert (problem or "") in (found or "")


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC_TRACES.is_dir(), reason="the public traces are not on this machine")
def test_every_public_call_fits_todays_torch() -> None:
    """180 ops of 2022 are 177 today: three of the five successors are in the traces themselves."""
    calls = [current(e.call) for path in find_traces([PUBLIC_TRACES]) for e in read_trace(path).entries]
    assert [] == [problem for problem in map(misfit, calls) if problem]
    assert 177 == len({call.op for call in calls})
