"""Storages that are generated on the device that needs them, from a domain and a seed.

Real inputs reach several gigabytes, so their values never exist as Python bytes. Referee and worker
draw them with the same code from the same seed. Elements are drawn a chunk at a time: beyond the
storage itself generating takes at most about ``30 * CHUNK_ELEMENTS`` bytes. A domain that relates the
elements of some dimensions to each other has these whole in a chunk, however large they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.low_precision import FORMATS, PACKED, quantized
from opsmith.calls.fresh_values import BANK_ELEMENTS, ValueBank, unit_of
from opsmith.core.case import GeneratedStorage
from opsmith.core.domains import (
    IGNORED_EVERY,
    Definite,
    Distinct,
    IndependentDomain,
    Integers,
    Magnitude,
    Mask,
    Normal,
    Ordered,
    PoolIndices,
    Probabilities,
    SegmentForm,
    Segments,
    Specials,
    StructuredDomain,
    Subset,
    Targets,
    Uniform,
)
from opsmith.core.fresh_values import Redraw

#: Elements drawn at a time. Other values would draw other numbers from the same seed.
CHUNK_ELEMENTS = 1 << 24
#: Neighbours of the same magnitude in ``Normal``; a prime, so that rows do not line up with it.
BLOCK = 97
#: Magnitudes are 2 to the power of a number between minus and plus this.
EXPONENT = 2.0
#: Root mean square of such a magnitude.
_MAGNITUDE_RMS = math.sqrt((4**EXPONENT - 4**-EXPONENT) / (2 * EXPONENT * math.log(4)))
#: Bytes compared at a time.
COMPARED_BYTES = 256 << 20


def generate(storage: GeneratedStorage, device: torch.device) -> torch.UntypedStorage:
    """Make the storage on ``device``."""
    if storage.fresh is not None:
        how, number, sets, key, slot = msgspec.structs.astuple(storage.fresh)
        bank = value_bank(msgspec.structs.replace(storage, fresh=None), how, sets, number, device=device)
        return bank.storage(key, slot)
    content = torch.UntypedStorage(storage.size_bytes, device=device)
    if storage.size_bytes:
        generator = torch.Generator(device).manual_seed(storage.seed)
        if isinstance(storage.domain, IndependentDomain):
            _fill(content, storage, storage.domain, generator)
        else:
            _arrange(content, storage, storage.domain, generator)
    return content


def value_bank(
    storage: GeneratedStorage,
    how: Redraw,
    sets: int,
    number: int,
    *,
    device: torch.device,
    content: torch.UntypedStorage | None = None,
) -> ValueBank:
    """What fresh values of a storage are made of, whose elements are drawn by themselves.

    Args:
        storage: without fresh values.
        how: BLENDED or CHOSEN.
        sets: how many sets of inputs there may be.
        number: of the storage in its call.
        device: where it is to be.
        content: the storage itself, if it has been made.
    """
    dtype = torch_dtype(storage.dtype)
    unit = unit_of(how, dtype)
    length = storage.size_bytes // unit.itemsize
    if storage.size_bytes < BANK_ELEMENTS * dtype.itemsize:
        enlarged = BANK_ELEMENTS * dtype.itemsize
        content = generate(
            msgspec.structs.replace(storage, size_bytes=enlarged, shape=(BANK_ELEMENTS,), strides=(1,), offset=0),
            device,
        )
    elif content is None:
        content = generate(storage, device)
    return ValueBank(flat_view(content, unit), length, how, sets, number)


def same_content(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    """Whether two storages on one device hold the same bytes.

    Takes a bool of temporary memory for each byte that is compared at a time.
    """
    if one.nbytes() != other.nbytes():
        return False
    parts = [flat_view(storage, torch.uint8).split(COMPARED_BYTES) for storage in (one, other)]
    return all(torch.equal(left, right) for left, right in zip(*parts, strict=True))


def flat_view(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.Tensor:
    """All of a storage as a flat tensor."""
    count = storage.nbytes() // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, 0, (count,), (1,))


# ---------------------------------------------------------------- elements drawn by themselves


def _fill(
    content: torch.UntypedStorage, storage: GeneratedStorage, domain: IndependentDomain, generator: torch.Generator
) -> None:
    """Fill every element, those between the window's included."""
    # A complex number is two real ones.
    dtype = torch_dtype(storage.dtype).to_real()
    elements = flat_view(content, torch.uint8 if dtype is PACKED else dtype)
    for chunk in elements.split(CHUNK_ELEMENTS):
        drawn = _draw(domain, chunk.numel(), _wide(chunk.dtype), generator)
        chunk.copy_(quantized(drawn, dtype) if chunk.dtype in FORMATS else drawn)
    if isinstance(domain, Mask) and domain.mixed:
        _mix(elements, storage)


def _draw(domain: IndependentDomain, count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    match domain:
        case Normal(scale):
            return _normal(count, dtype, generator).mul_(scale)
        case Uniform(low, high):
            return _uniform((count,), dtype, generator).mul_(high - low).add_(low)
        case Magnitude(low, high, signed):
            return _magnitude(count, low, high, dtype, generator, signed=signed)
        case Integers(low, high, unit, origin):
            whole = _whole((count,), low, high, generator)
            # Only where it is needed: a large index is not exact as a float.
            return whole if (unit, origin) == (1.0, 0.0) else whole.double().mul_(unit).add_(origin)
        case Mask(share):
            return _uniform((count,), torch.float32, generator) < share
        case Specials(share, infinities):
            return _specials(count, share, dtype, generator, infinities=infinities)


def _normal(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers with a root mean square of 1; each block has a magnitude of its own."""
    blocks = -(-count // BLOCK)
    numbers = torch.randn((blocks, BLOCK), dtype=dtype, generator=generator, device=generator.device)
    exponents = _uniform((blocks, 1), dtype, generator).mul_(2 * EXPONENT).sub_(EXPONENT)
    return numbers.mul_(exponents.exp2_().div_(_MAGNITUDE_RMS)).view(-1)[:count]


def _magnitude(
    count: int, low: float, high: float, dtype: torch.dtype, generator: torch.Generator, *, signed: bool
) -> torch.Tensor:
    start = math.log2(low)
    numbers = _uniform((count,), dtype, generator).mul_(math.log2(high) - start).add_(start).exp2_()
    numbers.clamp_(low, high)
    if signed:
        numbers.mul_(_whole((count,), 0, 2, generator).mul_(2).sub_(1))
    return numbers


def _specials(
    count: int, share: float, dtype: torch.dtype, generator: torch.Generator, *, infinities: bool
) -> torch.Tensor:
    numbers = _normal(count, dtype, generator)
    lot = _uniform((count,), torch.float32, generator)
    numbers.masked_fill_(lot < share, math.nan)
    if infinities:
        numbers.masked_fill_(lot < share * 2 / 3, math.inf)
        numbers.masked_fill_(lot < share / 3, -math.inf)
    return numbers


def _mix(elements: torch.Tensor, storage: GeneratedStorage) -> None:
    """Make the first and the last element of the window differ."""
    steps = zip(storage.shape, storage.strides, strict=True)
    last = storage.offset + sum((size - 1) * stride for size, stride in steps)
    if last > storage.offset:
        first_is_true = storage.seed % 2 == 0
        elements[storage.offset] = first_is_true
        elements[last] = not first_is_true


# ---------------------------------------------------------------- elements that depend on each other


def _arrange(
    content: torch.UntypedStorage, storage: GeneratedStorage, domain: StructuredDomain, generator: torch.Generator
) -> None:
    """Fill the window's elements; what lies between them is zero."""
    elements = flat_view(content, torch_dtype(storage.dtype)).zero_()
    # An expanded dimension is one element that is seen many times.
    shape = [min(size, 1) if stride == 0 else size for size, stride in zip(storage.shape, storage.strides, strict=True)]
    window = elements.as_strided(shape, storage.strides, storage.offset)
    for piece in _pieces(window, _related(domain, window.ndim)):
        piece.copy_(_arrangement(domain, piece.shape, _wide(torch_dtype(storage.dtype)), generator))


def _related(domain: StructuredDomain, dimensions: int) -> set[int]:
    """The dimensions along which elements depend on each other."""
    match domain:
        case Distinct(_, dims):
            related: Sequence[int] = dims
        case Probabilities(dim):
            related = (dim,)
        case Ordered():
            related = (-1,)
        case Definite():
            related = (-2, -1)
        case PoolIndices(plane):
            related = range(-len(plane), 0)
        case _:
            related = range(dimensions)
    return {dim % max(dimensions, 1) for dim in related}


def _pieces(window: torch.Tensor, whole: set[int]) -> Iterator[torch.Tensor]:
    """Cut a tensor into parts of at most ``CHUNK_ELEMENTS``, but not along the dimensions ``whole``."""
    divisible = [dim for dim in range(window.ndim) if dim not in whole and window.shape[dim] > 1]
    if window.numel() <= CHUNK_ELEMENTS or not divisible:
        yield window
        return
    longest = max(divisible, key=lambda dim: window.shape[dim])
    rows = max(1, CHUNK_ELEMENTS * window.shape[longest] // window.numel())
    for part in window.split(rows, longest):
        yield from _pieces(part, whole)


def _arrangement(
    domain: StructuredDomain, shape: torch.Size, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    match domain:
        case Subset(count):
            chosen = torch.zeros(shape.numel(), dtype=torch.bool, device=generator.device)
            chosen[_distinct((count,), shape.numel(), (0,), generator)] = True
            return chosen.view(shape)
        case Distinct(high, dims, divisor, modulus):
            places = _distinct(shape, high, dims, generator).div_(divisor, rounding_mode="floor")
            return places if modulus is None else places.remainder_(modulus)
        case Segments():
            return _segments(domain, generator)
        case Ordered(low, high, descending):
            numbers = _uniform(shape, dtype, generator).mul_(high - low).add_(low)
            return numbers.sort(dim=-1, descending=descending).values
        case Probabilities(dim, logarithms):
            numbers = torch.randn(shape, dtype=dtype, generator=generator, device=generator.device).mul_(2)
            return numbers.log_softmax(dim) if logarithms else numbers.softmax(dim)
        case PoolIndices():
            return _pool_indices(domain, shape, generator)
        case Definite():
            return _definite(shape, dtype, generator)
        case Targets(classes, ignored):
            return _targets(classes, ignored, shape, generator)


def _distinct(shape: Sequence[int], high: int, dims: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Whole numbers below ``high``, all different along ``dims``: one out of each of equal strata, shuffled."""
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    rows = [shape[dim] for dim in kept]
    sizes = [shape[dim] for dim in dims]
    count = math.prod(sizes)
    assert count <= high, "there are not enough different numbers"
    order = torch.randperm(count, generator=generator, device=generator.device)
    start = order * high // count
    length = (order + 1) * high // count - start
    places = (_uniform((*rows, count), torch.float64, generator) * length).long().add_(start)
    layout = [*kept, *dims]
    return places.view((*rows, *sizes)).permute([layout.index(dim) for dim in range(len(shape))])


def _segments(domain: Segments, generator: torch.Generator) -> torch.Tensor:
    bounds = _bounds(domain, generator)
    match domain.form:
        case SegmentForm.STARTS:
            return bounds[:-1]
        case SegmentForm.ENDS:
            return bounds[1:]
        case SegmentForm.BOUNDS:
            return bounds[: domain.length]  # Of no segment there is one bound.
        case SegmentForm.SIZES:
            return bounds.diff()
        case SegmentForm.NUMBERS:
            positions = torch.arange(domain.total, device=bounds.device)
            return torch.searchsorted(bounds[1:], positions, right=True)


def _bounds(domain: Segments, generator: torch.Generator) -> torch.Tensor:
    """Where segments begin, and the total: ``count + 1`` ascending numbers."""
    total, count = domain.total // domain.unit, domain.count
    if domain.longest is None or count < 2:
        inner = _whole((max(count - 1, 0),), 0, total + 1, generator).sort().values
    else:
        # Even bounds, each moved on by at most what an even segment lacks of the longest.
        numbers = torch.arange(1, count, device=generator.device)
        spare = max(0, min(domain.longest - -(-total // count), total // count))
        inner = numbers * total // count + _whole(numbers.shape, 0, spare + 1, generator)
    ends = torch.tensor([0, domain.total], device=generator.device)
    return torch.cat([ends[:1], inner * domain.unit, ends[1:]])


def _pool_indices(domain: PoolIndices, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    place = torch.zeros(shape, dtype=torch.int64, device=generator.device)
    dimensions = len(domain.plane)
    for axis, size in enumerate(domain.plane):
        dim = len(shape) - dimensions + axis
        starts, steps, step = _windows(domain, axis, shape[dim], generator.device)
        along = [-1 if d == dim else 1 for d in range(len(shape))]
        chosen = _uniform(shape, torch.float32, generator).mul_(steps.view(along)).long()
        # An output whose window has no place in the plane still gets one of the plane.
        place.mul_(size).add_(chosen.mul_(step).add_(starts.view(along)).clamp_(0, size - 1))
    return place


def _windows(
    domain: PoolIndices, axis: int, outputs: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """First place, number of places and distance between them, for each output along one axis."""
    size = domain.plane[axis]
    output = torch.arange(outputs, device=device)
    if domain.kernel is None:
        start = output * size // outputs
        return start, -(-(output + 1) * size // outputs) - start, 1
    dilation = domain.dilation[axis]
    left = output * domain.stride[axis] - domain.padding[axis]
    first = (-left).clamp_min_(0).add_(dilation - 1).floor_divide_(dilation)
    last = ((size - 1 - left) // dilation).clamp_max_(domain.kernel[axis] - 1)
    return left + first * dilation, last - first + 1, dilation


def _definite(shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """``3 + (G + G.mH) / (2 * sqrt(n))``, its eigenvalues between about 2 and 4.

    Not ``G @ G.mH``: a matrix product may depend on the number of threads.
    """
    size = max(shape[-2:])
    factor = _uniform((*shape[:-2], size, size), dtype, generator).sub_(0.5 + 0.5j if dtype.is_complex else 0.5)
    square = (factor + factor.mH).div_(math.sqrt(max(size, 1)))
    square.diagonal(dim1=-2, dim2=-1).add_(3)
    return square[..., : shape[-2], : shape[-1]]


def _targets(classes: int, ignored: int, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    count = shape.numel()
    targets = _whole((count,), 0, classes, generator)
    targets[targets == ignored] = (ignored + 1) % classes
    targets[_distinct((count // IGNORED_EVERY,), count, (0,), generator)] = ignored
    return targets.view(shape)


# ---------------------------------------------------------------- random numbers


def _uniform(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Between 0 and 1, 1 not included."""
    return torch.rand(tuple(shape), dtype=dtype, generator=generator, device=generator.device)


def _whole(shape: Sequence[int], low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Whole numbers ``low <= k < high`` as int64."""
    return torch.randint(low, high, tuple(shape), generator=generator, device=generator.device)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What numbers are drawn in before they are rounded to ``dtype``."""
    if dtype.is_complex:
        return torch.complex128 if dtype == torch.complex128 else torch.complex64
    narrow = dtype.is_floating_point and dtype != torch.float64
    return torch.float32 if narrow else torch.float64
