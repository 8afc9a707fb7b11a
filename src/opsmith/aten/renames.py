"""Overloads then and now: what the calls of old traces are called today, and which do not exist.

Traces outlive the torch that they were recorded with. Where an overload was renamed or folded into
another one that does the same, its calls are rewritten; the rest is told as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from opsmith.core.case import SequenceValue, TensorValue, Value
from opsmith.core.trace import TracedCall

if TYPE_CHECKING:
    import torch


class Successor(msgspec.Struct, frozen=True, kw_only=True):
    """The overload that does today what another one did.

    Attributes:
        op: its name.
        reason: why the calls mean the same.
        rewrite: turns the old positional arguments into the new ones, or gives None if they are not
            what the old overload took. None where old and new are the same.
    """

    op: str
    reason: str
    rewrite: Callable[[tuple[Value, ...]], tuple[Value, ...] | None] | None = None


def _upsample_backward(args: tuple[Value, ...]) -> tuple[Value, ...] | None:
    """(grad, output_size?, input_size, *flags, scales?) -> (grad, output_size, input_size, *flags, scale...)."""
    if len(args) < 4 or not isinstance(args[0], TensorValue):
        return None
    grad, (output_size, *middle, scales) = args[0], args[1:]
    # The gradient of an output has the size of that output.
    size = SequenceValue(grad.shape[2:], is_tuple=False) if output_size is None else output_size
    factors = scales.items if isinstance(scales, SequenceValue) else (None, None)
    return (grad, size, *middle, *factors)


#: Old overload -> its successor. Five of the 180 ops of the public traces need one.
SUCCESSORS = {
    "sum.SymInt": Successor(op="sum.dim_IntList", reason="dim_IntList takes symbolic sizes itself now"),
    "im2col_backward.default": Successor(op="col2im.default", reason="col2im is the gradient of im2col"),
    "col2im_backward.default": Successor(op="im2col.default", reason="im2col is the gradient of col2im"),
    "upsample_nearest2d_backward.vec": Successor(
        op="upsample_nearest2d_backward.default",
        reason="autograd passes sizes and one scale a dimension now",
        rewrite=_upsample_backward,
    ),
    "upsample_bilinear2d_backward.vec": Successor(
        op="upsample_bilinear2d_backward.default",
        reason="autograd passes sizes and one scale a dimension now",
        rewrite=_upsample_backward,
    ),
}


def current(call: TracedCall) -> TracedCall:
    """The same call as today's torch names it."""
    successor = SUCCESSORS.get(call.op)
    if successor is None or misfit(call) is None:
        return call
    args = successor.rewrite(call.args) if successor.rewrite else call.args
    return call if args is None else TracedCall(op=successor.op, args=args, kwargs=call.kwargs)


def misfit(call: TracedCall) -> str | None:
    """Why the installed torch cannot be called like this, or None if its schema allows it.

    Values are not looked at: a call that fits can still be refused for its shapes or dtypes.
    """
    schema = _schema(call.op)
    if schema is None:
        return f"torch {_torch_version()} has no op {call.op}"
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    if len(call.args) > len(positional):
        return f"{call.op} takes {len(positional)} positional arguments, not {len(call.args)}"
    given = [*positional[: len(call.args)], *call.kwargs]
    known = {argument.name for argument in schema.arguments}
    if unknown := [name for name in given if name not in known]:
        return f"{call.op} takes no argument {_shown(unknown[0])}"
    if twice := [name for name in call.kwargs if name in positional[: len(call.args)]]:
        return f"{call.op} gets the argument {_shown(twice[0])} twice"
    if lacking := [a.name for a in schema.arguments if a.name not in given and not a.has_default_value()]:
        return f"{call.op} lacks the argument {lacking[0]}"
    return None


def _shown(name: str) -> str:
    """A name out of a trace, safe to print."""
    return ascii(name[:40])


@functools.cache
def _schema(op: str) -> torch._C.FunctionSchema | None:
    import torch

    packet, _, overload = op.rpartition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    return found._schema if isinstance(found, torch._ops.OpOverload) else None


@functools.cache
def _torch_version() -> str:
    import torch

    return torch.__version__.partition("+")[0]
