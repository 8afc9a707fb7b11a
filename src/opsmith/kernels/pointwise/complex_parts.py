"""Functions of complex numbers as functions of their parts: a complex tensor is two real ones, each with stride 2.

Real operands and numbers have an imaginary part of 0. See :mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..common.elementwise import Operand, empty_result, map_into_several
from ..common.launch import ELEMENT_TYPE, require_served
from ..common.promotion import promoted

#: The type of both numbers of a complex type.
PART = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def has_complex(*operands: object) -> bool:
    """Whether a tensor or a number among them is complex."""
    return any(x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex) for x in operands)


def map_parts(
    function: Any, operands: Sequence[torch.Tensor | complex], parameters: Sequence[complex] = ()
) -> torch.Tensor:
    """A complex function of operands, of which a tensor or a number is complex, in the promoted type.

    Args:
        function: of the real and the imaginary part of each operand and parameter in turn; returns both parts.
        operands: tensors, which broadcast, and numbers.
        parameters: numbers that have no say in the type.

    Raises:
        NotImplementedError: a tensor that is conjugated lazily, or complex numbers of half types.
        RuntimeError: the shapes do not broadcast.
    """
    result = promoted(operands, complex_too=True)
    parts = _parts(operands, result)
    out = empty_result([x for x in operands if isinstance(x, torch.Tensor)], result)
    ends = torch.view_as_real(out).unbind(-1)
    numbers = [part for value in parameters for part in (complex(value).real, complex(value).imag)]
    map_into_several(ends, function, parts, [PART[result]] * len(parts), numbers)
    return out


def map_to_real(function: Any, x: torch.Tensor, *, is_row_major: bool = False) -> torch.Tensor:
    """A real function of both parts of a complex tensor, as a tensor of their type, laid out as ``x`` or row-major.

    Raises:
        NotImplementedError: a tensor that is conjugated lazily, or complex numbers of half types.
    """
    parts = _parts([x], x.dtype)
    part = PART[x.dtype]
    out = torch.empty(x.shape, dtype=part, device=x.device) if is_row_major else empty_result([x], part)
    map_into_several((out,), function, parts, [part] * 2)
    return out


def _parts(operands: Sequence[torch.Tensor | complex], result: torch.dtype) -> list[Operand]:
    """The real and the imaginary part of each operand of a function whose result is complex or made of one."""
    if result not in PART:
        raise NotImplementedError(f"{result} is not served")
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    require_served(*tensors, dtypes=(*ELEMENT_TYPE, *PART), joins_numbers=True)
    parts: list[Operand] = []
    for x in operands:
        if not isinstance(x, torch.Tensor):
            parts += [complex(x).real, complex(x).imag]
        else:
            parts += torch.view_as_real(x).unbind(-1) if x.is_complex() else [x, 0.0]
    return parts
