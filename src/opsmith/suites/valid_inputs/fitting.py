"""Whether a domain fits a tensor: its dtype, its shape and its layout."""

from __future__ import annotations

import math

import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.low_precision import PACKED, SCALES
from opsmith.core.domains import (
    Definite,
    Distinct,
    Domain,
    IndependentDomain,
    Integers,
    Magnitude,
    Mask,
    Normal,
    Ordered,
    PoolIndices,
    Probabilities,
    Segments,
    Specials,
    StructuredDomain,
    Subset,
    Targets,
    Uniform,
)


def fits(domain: StructuredDomain, shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can hold values of the domain."""
    match domain:
        case Subset(count):
            return 0 <= count <= math.prod(shape)
        case Distinct(high, dims):
            return math.prod(shape[dim] for dim in dims) <= high
        case Segments():
            return shape == (domain.length,) and domain.total >= 0
        case Probabilities(dim):
            return -len(shape) <= dim < max(len(shape), 1)
        case PoolIndices(plane):
            parameters = (domain.kernel or plane, domain.stride, domain.padding, domain.dilation)
            lengths = {len(values) for values in parameters if domain.kernel is not None}
            return (
                len(shape) >= len(plane) > 0 and lengths <= {len(plane)} and 0 not in (*domain.stride, *domain.dilation)
            )
        case Definite():
            return len(shape) > 1
        case Ordered():
            return len(shape) > 0
        case Targets(classes):
            return classes > 0


def fitted(domain: Domain, dtype: str) -> Domain:
    """The nearest domain whose values the dtype can hold; complex numbers have no order to keep."""
    if dtype == "b8":
        return domain if isinstance(domain, Mask | Subset) else Mask(0.5)
    if torch_dtype(dtype) is PACKED:
        return Integers(0, 256)  # Any byte is two numbers.
    if torch_dtype(dtype) is SCALES:
        return Magnitude(1 / 16, 16)
    if torch_dtype(dtype).is_complex:
        return domain if isinstance(domain, IndependentDomain | Definite) else Normal()
    if torch_dtype(dtype).is_floating_point:
        return domain
    limits = torch.iinfo(torch_dtype(dtype))
    match domain:
        case Normal() | Specials():
            return _within(-10, 11, limits)
        case Uniform(low, high):
            return _within(math.ceil(low), math.floor(high) + 1, limits)
        case Integers(low, high):
            return _within(low, high, limits)
        case Magnitude(low, high, signed):
            return Magnitude(max(low, 1), max(high, 1), signed and limits.min < 0)
        case _:
            return domain


def _within(low: int, high: int, limits: torch.iinfo) -> Integers:
    first = min(max(low, limits.min), limits.max)
    return Integers(first, max(min(high, limits.max + 1), first + 1))
