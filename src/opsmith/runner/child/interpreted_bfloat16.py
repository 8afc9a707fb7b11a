"""Triton's interpreter holds bfloat16 as 16-bit integers, and computes with these as they are.

As it is released, it multiplies and compares the integers, cuts float32 off where compiled code rounds, and makes
other numbers of those below the smallest normal one. A right kernel is wrong in it. :func:`mend_bfloat16` makes its
numbers those of a GPU. The bare program repeats this, since it imports nothing of opsmith.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def bfloat16_conversions() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """From a tensor of the interpreter to numbers that numpy computes with, and from numbers to what it holds."""
    from triton.runtime import interpreter

    np = interpreter.np

    def widened(tensor: Any) -> Any:
        if tensor.dtype.scalar != interpreter.tl.bfloat16:
            return tensor.data
        return (tensor.data.astype(np.uint32) << 16).view(np.float32)

    def narrowed(numbers: Any) -> Any:
        """The nearest of bfloat16, the even one of two as near."""
        numbers = numbers.astype(np.float32)
        bits = numbers.view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(numbers), (bits >> 16) | 0x40, nearest).astype(np.uint16)

    return widened, narrowed


def mend_bfloat16() -> None:
    """Have the interpreter cast, combine, compare and multiply the numbers; does nothing where it was done before."""
    from triton.runtime import interpreter

    widened, narrowed = bfloat16_conversions()
    builder, handle, bf16 = interpreter.InterpreterBuilder, interpreter.TensorHandle, interpreter.tl.bfloat16
    cast, convert, binary, dot = builder.cast_impl, builder.create_fp_to_fp, builder.binary_op, builder.create_dot
    add = interpreter.ReduceOps.sum
    if hasattr(cast, "__wrapped__"):
        return

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if bf16 not in (src.dtype.scalar, dst_type.scalar):
            return cast(self, src, dst_type)
        numbers = widened(src)
        data = narrowed(numbers) if dst_type.scalar == bf16 else numbers.astype(interpreter._get_np_dtype(dst_type))
        return handle(data, dst_type.scalar)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        pair = (src.dtype.scalar, dst_type.scalar)
        nearest = rounding_mode in (None, interpreter._ir.ROUNDING_MODE.RTNE)
        if bf16 in pair and nearest and all(each.primitive_bitwidth > 8 for each in pair):
            return cast_impl(self, src, dst_type)
        return convert(self, src, dst_type, rounding_mode)

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Callable[..., Any]) -> Any:
        if lhs.dtype.scalar != bf16:
            return binary(self, lhs, rhs, op)
        output = op(widened(lhs), widened(rhs))
        return handle(output, interpreter.tl.int1) if output.dtype == bool else handle(narrowed(output), bf16)

    def create_dot(self: Any, a: Any, b: Any, *arguments: Any) -> Any:
        # A product of two numbers of bfloat16 is one of float32, exactly.
        wide = [handle(widened(each), interpreter.tl.float32) if each.dtype == bf16 else each for each in (a, b)]
        return dot(self, *wide, *arguments)

    def add_up(self: Any, terms: Any) -> Any:
        if terms.dtype.scalar != bf16:
            return add(self, terms)
        total = widened(terms.handle).sum(axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(narrowed(total), terms.dtype)

    interpreter.ReduceOps.sum = functools.wraps(add)(add_up)
    for mended, original in ((cast_impl, cast), (create_fp_to_fp, convert), (binary_op, binary), (create_dot, dot)):
        setattr(builder, original.__name__, functools.wraps(original)(mended))
