"""How far a result may lie from eager's before it has to explain itself."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch

from opsmith.aten.low_precision import FORMATS, is_low, readable
from opsmith.evaluation.criteria.steps import most_off, steps_off


class Tolerance(NamedTuple):
    """An element passes when ``|candidate - reference| <= atol + rtol * |reference|``."""

    rtol: float
    atol: float


#: What ``torch.testing.assert_close`` applies by dtype.
_STRICT = {
    torch.float16: Tolerance(1e-3, 1e-5),
    torch.bfloat16: Tolerance(1.6e-2, 1e-5),
    torch.float32: Tolerance(1.3e-6, 1e-5),
    torch.float64: Tolerance(1e-7, 1e-7),
    torch.complex32: Tolerance(1e-3, 1e-5),
    torch.complex64: Tolerance(1.3e-6, 1e-5),
    torch.complex128: Tolerance(1e-7, 1e-7),
}
#: BackendBench, ``BackendBench/eval.py``: one figure for every dtype.
_BACKENDBENCH = Tolerance(1e-2, 1e-2)
#: KernelBench, ``src/kernelbench/eval.py``, ``get_tolerance_for_precision``: atol = rtol, 1e-4 for
#: float32 and 1e-2 for float16 and bfloat16.
_KERNELBENCH_HALF = Tolerance(1e-2, 1e-2)
_KERNELBENCH_FLOAT = Tolerance(1e-4, 1e-4)
_EXACT = Tolerance(0.0, 0.0)


def relative_to(expected: object, tolerance: Tolerance) -> Tolerance:
    """A tolerance whose absolute part shrinks with small results.

    The probabilities of a softmax over a vocabulary are about as large as ``atol``, and zeros would pass
    for them. A result whose root mean square is 1 or more keeps its tolerance.
    """
    if not isinstance(expected, torch.Tensor) or not expected.is_floating_point() or is_low(expected):
        return tolerance
    count = int(expected.isfinite().sum())
    size = torch.linalg.vector_norm(expected.nan_to_num(0.0, 0.0, 0.0), dtype=torch.float64).item()
    rms = size / math.sqrt(count) if count else 1.0
    return Tolerance(tolerance.rtol, tolerance.atol * min(rms, 1.0))


#: A larger result is looked at in so many places first: most answers differ in most of them.
_FEW_ELEMENTS = 4_096


def is_within(expected: torch.Tensor, other: torch.Tensor, mode: str) -> bool:
    """Whether a result of a module passes for another one by its values, dtype and shape; the oracle is not asked.

    Args:
        expected: the right one.
        other: the one in question.
        mode: see :func:`tolerance_for`.
    """
    if (expected.shape, expected.dtype, expected.layout) != (other.shape, other.dtype, other.layout):
        return False
    if expected.layout is not torch.strided:
        return False  # Of those nobody says that they are alike.
    if not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(expected, other)
    limits = tolerance_for(mode, expected.dtype)
    if is_low(expected) and mode == "strict":
        steps = steps_off(expected, other)
        return bool((steps <= 1).all()) and int(torch.count_nonzero(steps)) <= most_off(expected.dtype, steps.numel())
    expected, other = readable(expected), readable(other)
    step = expected.numel() // _FEW_ELEMENTS
    if step > 1 and not _all_close(expected.flatten()[::step], other.flatten()[::step], limits):
        return False
    return _all_close(expected, other, relative_to(expected, limits) if mode == "strict" else limits)


def _all_close(expected: torch.Tensor, other: torch.Tensor, limits: Tolerance) -> bool:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    return torch.allclose(other.to(wide), expected.to(wide), rtol=limits.rtol, atol=limits.atol, equal_nan=True)


def _one_step(dtype: torch.dtype) -> Tolerance:
    """From a number of a format of 8 bits or fewer to its neighbour."""
    return Tolerance(FORMATS[dtype].step, FORMATS[dtype].least)


@cache
def tolerance_for(mode: str, dtype: torch.dtype, declared: tuple[float, float] | None = None) -> Tolerance:
    """The tolerance of a result of ``dtype``.

    Args:
        mode: ``strict``, ``backendbench`` or ``kernelbench``.
        dtype: the dtype of eager's result.
        declared: (rtol, atol) that the suite's author declared; it counts in ``strict`` only, and
            only where it is looser than the dtype's own.

    Raises:
        ValueError: there is no such mode.
    """
    if mode == "backendbench":
        return _BACKENDBENCH
    if mode == "kernelbench":
        return _KERNELBENCH_HALF if dtype in (torch.float16, torch.bfloat16) else _KERNELBENCH_FLOAT
    if mode != "strict":
        raise ValueError(f"no tolerance named {mode!r}; there is: strict, backendbench, kernelbench")
    if not (dtype.is_floating_point or dtype.is_complex):
        return _EXACT
    own = _STRICT.get(dtype) or _one_step(dtype)
    if declared is None:
        return own
    return Tolerance(max(own.rtol, declared[0]), max(own.atol, declared[1]))
