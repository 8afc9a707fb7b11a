"""Multiplications and additions of dense matrix products."""

from __future__ import annotations

import math

from opsmith.core.case import TensorValue
from opsmith.evaluation.roofline.call import BoundCall, is_integral
from opsmith.evaluation.roofline.windows import Window

#: Stem -> what is added, if anything, and the two factors.
PRODUCTS: dict[str, tuple[str, ...]] = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
    "vdot": ("self", "other"),
    "linear": ("bias", "input", "weight"),
    "addmm": ("self", "mat1", "mat2"),
    "_addmm_activation": ("self", "mat1", "mat2"),
    "addmv": ("self", "mat", "vec"),
    "addbmm": ("self", "batch1", "batch2"),
    "baddbmm": ("self", "batch1", "batch2"),
}


def matmul_flops(call: BoundCall, stem: str) -> int:
    """What the dense product of a call costs by its definition: two for each pair of elements that meet.

    0 where less may do: repeated rows (expanded, overlapping), whole or complex numbers, a product that is
    scaled with zero. Factors on one storage may make a symmetric result, of which one half does.
    """
    names = PRODUCTS.get(stem, ())[-2:]
    factors = [tensor for name in names for tensor in call.tensors.get(name, ())]
    if len(factors) != 2 or 0 in call.scalars.get("alpha", ()) or not all(map(_is_full, factors)):
        return 0
    one, other = factors
    rows_first = stem == "linear"  # Its weight is [columns, inner].
    columns = 1 if len(other.shape) == 1 else other.shape[0 if rows_first else -1]
    flops = 2 * math.prod(one.shape) * columns
    return flops // 2 if one.storage == other.storage else flops


def matmul_dtype(call: BoundCall, stem: str) -> str | None:
    """The dtype of a product's factors."""
    return call.tensors[PRODUCTS[stem][-1]][0].dtype if matmul_flops(call, stem) else None


def _is_full(tensor: TensorValue) -> bool:
    """Whether it holds a real number of its own for each of its elements."""
    window = Window.of(tensor)
    if window is None or is_integral(tensor) or tensor.dtype.startswith("c"):
        return False
    return window.unique_bytes == window.item * math.prod(tensor.shape)
