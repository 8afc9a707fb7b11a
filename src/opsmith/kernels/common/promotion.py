"""The type of a result: torch's promotion over any number of operands."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import torch

_NUMBER_TYPE = {bool: torch.bool, int: torch.int64}


def promoted(operands: Sequence[torch.Tensor | complex], *, complex_too: bool = False) -> torch.dtype:
    """The common type of tensors and Python numbers.

    Tensors with dimensions decide; 0-dim tensors, and after them numbers, take part only where they
    are of a higher kind (bool, then integer, then floating point, then complex). :func:`torch.result_type` states the
    rule for two operands; over three it is not a sequence of pairs.

    Raises:
        NotImplementedError: an operand is complex, unless ``complex_too`` says that these are served.
    """
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    numbers = [operand for operand in operands if not isinstance(operand, torch.Tensor)]
    tiers = [
        _join(tensor.dtype for tensor in tensors if tensor.ndim),
        _join(tensor.dtype for tensor in tensors if not tensor.ndim),
        _join(map(_number_type, numbers)),
    ]
    result = functools.reduce(_raise_kind, [tier for tier in tiers if tier is not None])
    if result.is_complex and not complex_too:
        raise NotImplementedError("complex operands are not served")
    return result


def _number_type(value: complex) -> torch.dtype:
    default = torch.get_default_dtype()
    return default.to_complex() if isinstance(value, complex) else _NUMBER_TYPE.get(type(value), default)


def _join(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """The type that holds all of one tier, or None for an empty one."""
    known = list(dtypes)
    return functools.reduce(torch.promote_types, known) if known else None


def _raise_kind(result: torch.dtype, lower: torch.dtype) -> torch.dtype:
    """``result``, or its promotion where the lower tier is of a higher kind; a float keeps its precision."""
    if lower.is_complex and result.is_floating_point:
        return result.to_complex()
    return torch.promote_types(result, lower) if _kind(lower) > _kind(result) else result


def _kind(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)
