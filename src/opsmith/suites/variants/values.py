"""The same call on other values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.strides import extent, overlaps
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue
from opsmith.core.domains import Domain, Integers, Magnitude, Normal, Specials, StructuredDomain, Uniform
from opsmith.core.op import OpSchema
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs.binding import stem_of
from opsmith.suites.valid_inputs.fitting import fitted
from opsmith.suites.variants.dense import dense_variants
from opsmith.suites.variants.layouts import bytes_of, window_of
from opsmith.suites.variants.scope import (
    ADDED_UP,
    CONTRACTIONS,
    DENSE,
    LABELS,
    WITH_BETA,
    Freedom,
    bound_call,
    freedoms,
)

#: Constant rows hold this: their mean is exact however it is rounded, and its error far below a tolerance.
CONSTANT = 2.0**-6
#: Values next to an offset are multiples of one over this.
OFFSET_GRID = 64
#: Labels whose numbers are positive where they would cancel otherwise.
ONE_SIGN = frozenset({"large", "mixed"})
#: The outlier of a row whose other elements have a size of 1e-2.
OUTLIER = 8.0
#: Of ``special``, one in so many elements is each of NaN, +inf, -inf and -0.0.
SPECIAL_EVERY = 16
#: Of ``nan``, one row in so many holds one.
NAN_EVERY = 3
#: Of half types, a number whose next one is larger by 1, so that the variance of rows of both is lost in one pass; one
#: in so many elements is the next.
LEVELS = {torch.bfloat16: 248.0, torch.float16: 1500.0}
LEVEL_EVERY = 16
_VARIANCES = frozenset({"var", "std", "var_mean", "std_mean"})
#: Kinds of rows of ``infinite``.
INFINITE_ROWS = 6
#: Few different numbers, of which rows have several equal ones: zeros of both signs among them.
FEW = (-2.0, -1.0, -0.0, 0.0, 1.0, 2.0)
#: Ops that look numbers up in a tensor of numbers in order, and how that is called.
_SEARCHING = {"bucketize": "boundaries", "searchsorted": "sorted_sequence"}
#: Labels that give each row something of its own, along the dimension that an op works on.
_BY_ROWS = frozenset({"nan", "infinite", "ties"})


class _Scale:
    """The magnitudes of a floating dtype's labels.

    Attributes:
        large: exponents of ten.
        tiny: likewise.
        mixed: likewise.
        offset: the constant. In float32 a single-pass variance loses 8 of its 24 bits to it, which
            shows, while a mean, a Welford update and ``x * scale + shift`` lose less than a tolerance
            grants; in half types noise of size 1 keeps three bits and more beside it.
        level: see :data:`LEVELS`.
        overflow: the logarithm of the largest number.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        narrow = dtype is torch.float16
        self.large = (1.0, 2.0) if narrow else (3.0, 4.0)
        self.tiny = (-4.0, -2.0) if narrow else (-30.0, -6.0)
        self.mixed = (-4.0, 3.0) if narrow else (-6.0, 6.0)
        self.offset = 1e5 if dtype is torch.float64 else 16.0
        self.level = LEVELS.get(dtype, self.offset)
        self.overflow = math.log(torch.finfo(dtype).max)


def value_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with other values in every tensor that may have them; labels as in the package's docstring.

    Generated storages stay generated, from another domain.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of the values.
    """
    free = freedoms(record, schema)
    if stem_of(record.op) in WITH_BETA and 0 in free:
        storage = _varied(record, 0, free[0], "special", derive_seed(seed, "ignored"))
        if storage is not None:
            ignored = msgspec.structs.replace(record, storages=(storage, *record.storages[1:]))
            yield "ignored", msgspec.structs.replace(ignored, kwargs={**record.kwargs, "beta": 0})
    yield from dense_variants(record, schema, free, seed)
    found = _found_exactly(record, derive_seed(seed, "boundaries"))
    if found is not None:
        for label, right in (("boundaries", False), ("ties", True)):
            given = {name: value for name, value in found.kwargs.items() if name != "side"}
            yield label, msgspec.structs.replace(found, kwargs={**given, "right": right})
    for label in LABELS:
        if label in DENSE:
            continue
        changed = {}
        for number, freedom in free.items():
            if label in freedom.labels:
                own = derive_seed(seed, label, number)
                storage = _varied(record, number, freedom, label, own)
                if storage is not None:
                    changed[number] = storage
        if changed:
            storages = tuple([changed.get(number, storage) for number, storage in enumerate(record.storages)])
            yield label, msgspec.structs.replace(record, storages=storages)


def _found_exactly(record: CallRecord, seed: int) -> CallRecord | None:
    """The call of an op that looks numbers up, with numbers that are among those in order."""
    call, sorted_name = bound_call(record), _SEARCHING.get(stem_of(record.op))
    slots = {slot.name: slot for slot in call.slots} if call is not None else {}
    if sorted_name not in slots or "self" not in slots:
        return None
    wanted, ordered = slots["self"].tensor, slots[sorted_name].tensor
    content, among = record.storages[wanted.storage], record.storages[ordered.storage]
    if wanted.dtype != ordered.dtype or not isinstance(content, bytes) or not isinstance(among, bytes):
        return None
    if not content or not among:
        return None
    (memory, _), (numbers, _) = window_of(content, wanted), window_of(among, ordered)
    places = torch.randint(len(numbers), memory.shape, generator=torch.Generator().manual_seed(seed))
    storages = list(record.storages)
    storages[wanted.storage] = bytes_of(numbers[places])
    return msgspec.structs.replace(record, storages=tuple(storages))


def _varied(record: CallRecord, number: int, freedom: Freedom, label: str, seed: int) -> Storage | None:
    """Other content for a storage, or None where its dtype or size leaves nothing to vary."""
    tensor, storage = freedom.slot.tensor, record.storages[number]
    dtype = torch_dtype(tensor.dtype)
    if isinstance(storage, GeneratedStorage):
        domain = _domain(storage.domain, label, tensor.dtype, one_sign=freedom.one_sign)
        return None if domain is None else msgspec.structs.replace(storage, domain=domain, seed=seed)
    if not storage:
        return None
    count = len(storage) // dtype.itemsize
    dim = _worked_on(record, tensor) if label in _BY_ROWS else None
    if label == "infinite" and dim is None:
        label = "infinite alike"
    elif label == "nan" and stem_of(record.op) == "any":
        label = "nan among zeros"
    elif label == "nan" and "conv" in stem_of(record.op):
        return _without_numbers(storage, tensor, seed)
    elif label == "nan" and stem_of(record.op) in CONTRACTIONS - ADDED_UP:
        label = "nan in every row"
    elif label == "offset" and stem_of(record.op) in _VARIANCES and dtype in LEVELS:
        label = "level"
    if dim is None or count != math.prod(tensor.shape):
        row = next((size for size in reversed(tensor.shape) if size > 1), 1)
        return content(label, dtype, count, row=row, one_sign=freedom.one_sign, seed=seed)
    # Rows along that dimension, wherever it lies in memory.
    rows = content(label, dtype, count, row=tensor.shape[dim], one_sign=freedom.one_sign, seed=seed)
    others = [size for place, size in enumerate(tensor.shape) if place != dim]
    lines = torch.frombuffer(bytearray(rows), dtype=dtype).view(*others, tensor.shape[dim]).movedim(-1, dim)
    memory = torch.empty(count, dtype=dtype)
    memory.as_strided(tensor.shape, tensor.strides, tensor.offset).copy_(lines)
    return bytes_of(memory)


def _without_numbers(storage: bytes, tensor: TensorValue, seed: int) -> bytes:
    """The weight of a convolution with NaN throughout the filters of some channels."""
    memory, values = window_of(storage, tensor)
    generator = torch.Generator().manual_seed(seed)
    values.copy_(torch.randn(values.shape, generator=generator))
    values[torch.randperm(len(values), generator=generator)[: -(-len(values) // NAN_EVERY)]] = math.nan
    return bytes_of(memory)


def _worked_on(record: CallRecord, tensor: TensorValue) -> int | None:
    """The dimension of a dense tensor along which the call works, if it names one."""
    call = bound_call(record)
    dims = call.integers("dim") if call is not None else ()
    rank, elements = len(tensor.shape), math.prod(tensor.shape)
    is_dense = not overlaps(tensor) and extent(tensor.shape, tensor.strides, tensor.offset) == elements
    return dims[0] % rank if is_dense and dims and -rank <= dims[0] < rank else None


def content(label: str, dtype: torch.dtype, count: int, *, row: int, one_sign: bool, seed: int) -> bytes:
    """``count`` elements of a dtype, as bytes.

    Args:
        label: what they are.
        dtype: floating, complex or integer.
        count: number of elements.
        row: length of the rows that have a structure.
        one_sign: ``large`` and ``mixed`` numbers are positive.
        seed: of the values.
    """
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        real = torch.float16 if dtype is torch.complex32 else dtype.to_real()
        flat = _PATTERNS[label](2 * count, 2 * row, _Scale(real), generator).to(real)
    elif dtype.is_floating_point:
        flat = _numbers(label, dtype, count, row, generator)
        if one_sign and label in ONE_SIGN:
            flat = flat.abs()
    else:
        flat = _whole(label, dtype, count, generator)
    return bytes_of(flat)


def _whole(label: str, dtype: torch.dtype, count: int, generator: torch.Generator) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    if label != "huge":
        reach = {"signed": 10, "ties": 2}.get(label, 1 << 20)
        low, high = max(-reach, limits.min), min(reach, limits.max)
        return torch.randint(low, high + 1, (count,), generator=generator).to(dtype)
    # All bit patterns; both ends are among them, and numbers that float32 takes for the same.
    numbers = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8).view(dtype)
    ends = torch.tensor([limits.min, limits.max, limits.max - 1, limits.min + 1], dtype=dtype)
    places = torch.randperm(count, generator=generator)[: len(ends)]
    numbers[places] = ends[: len(places)]
    return numbers


def _numbers(label: str, dtype: torch.dtype, count: int, row: int, generator: torch.Generator) -> torch.Tensor:
    if label != "denormals":
        return _PATTERNS[label](count, row, _Scale(dtype), generator).to(dtype)
    numbers = torch.randn(count, generator=generator, dtype=torch.float64)
    below = torch.rand(count, generator=generator) < 0.5
    smallest = torch.finfo(dtype).tiny
    return torch.where(below, numbers.clamp(-3, 3) * (smallest / 4), numbers).to(dtype)


# ---------------------------------------------------------------- patterns: count, row, scale, generator

_Pattern = Callable[[int, int, _Scale, torch.Generator], torch.Tensor]


def _uniform(count: int, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, generator=generator, dtype=torch.float64).mul_(high - low).add_(low)


def _powers(count: int, exponents: tuple[float, float], generator: torch.Generator) -> torch.Tensor:
    """Both signs, evenly over the orders of magnitude."""
    signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    return (_uniform(count, *exponents, generator) * math.log(10)).exp_() * signs


def _signed(count: int, _row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(count, generator=generator)


def _huge(count: int, _row: int, scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    return _uniform(count, -1.02 * scale.overflow, 1.02 * scale.overflow, generator)


def _offset(count: int, _row: int, scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """On a grid on which the sum of thousands is exact in float32: how a mean is added up makes no difference."""
    noise = torch.randn(count, generator=generator, dtype=torch.float64)
    return noise.mul_(OFFSET_GRID).round_().div_(OFFSET_GRID).add_(scale.offset)


def _level(count: int, _row: int, scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """One number throughout, but for its next one in a few places: float32 squares lose the variance."""
    return scale.level + (torch.rand(count, generator=generator) < 1 / LEVEL_EVERY).double()


def _structured(count: int, row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """Rows by turns constant, ramps, and noise with one outlier."""
    rows = -(-count // row)
    content = torch.randn((rows, row), generator=generator).mul_(1e-2)
    turn = int(torch.randint(0, 3, (1,), generator=generator))
    content[turn % 3 :: 3] = CONSTANT
    content[(turn + 1) % 3 :: 3] = torch.linspace(-2, 2, row)
    content[(turn + 2) % 3 :: 3, int(torch.randint(0, row, (1,), generator=generator))] = OUTLIER
    return content.flatten()[:count]


def _special(count: int, _row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    numbers = torch.randn(count, generator=generator)
    lot = torch.randint(0, SPECIAL_EVERY, (count,), generator=generator)
    if count >= 4:
        # At least one of each, wherever it is.
        lot[torch.randperm(count, generator=generator)[:4]] = torch.arange(4)
    for number, value in enumerate((math.nan, math.inf, -math.inf, -0.0)):
        numbers.masked_fill_(lot == number, value)
    return numbers


def _nan(count: int, row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """One NaN in some of the rows, anywhere in them."""
    rows = torch.randn((-(-count // row), row), generator=generator)
    chosen = torch.randperm(len(rows), generator=generator)[: -(-len(rows) // NAN_EVERY)]
    rows[chosen, torch.randint(0, row, (len(chosen),), generator=generator)] = math.nan
    return rows.flatten()[:count]


def _nan_in_every_row(count: int, row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """One NaN in each row: a product is NaN throughout, also where it is made of products of sums (Strassen)."""
    rows = torch.randn((-(-count // row), row), generator=generator)
    rows[torch.arange(len(rows)), torch.randint(0, row, (len(rows),), generator=generator)] = math.nan
    return rows.flatten()[:count]


def _nan_among_zeros(count: int, row: int, scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """As :func:`_nan`; every other element is zero, which no other truth value outshines."""
    return torch.where(_nan(count, row, scale, generator).isnan(), math.nan, 0.0)


def _infinite(count: int, row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """Rows by turns with one infinity, with one of each sign, with negative ones only, half of them, none."""
    numbers = torch.randn((-(-count // row), row), generator=generator)
    turn = int(torch.randint(0, INFINITE_ROWS, (1,), generator=generator))
    return _with_infinities(numbers, (torch.arange(len(numbers)) + turn) % INFINITE_ROWS, generator)[:count]


def _alike(count: int, row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """As :func:`_infinite`, but every other row is of one kind and the rest finite: a sum of all is no NaN."""
    numbers = torch.randn((-(-count // row), row), generator=generator)
    turn = int(torch.randint(0, INFINITE_ROWS - 1, (1,), generator=generator))
    kinds = torch.where(torch.arange(len(numbers)) % 2 == 0, turn, INFINITE_ROWS - 1)
    return _with_infinities(numbers, kinds, generator)[:count]


def _with_infinities(numbers: torch.Tensor, kinds: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Infinities in rows by their kinds, the last of which has none; flat."""
    row, kinds = numbers.shape[1], kinds.unsqueeze(1)
    # Each element's place in a random order of its row.
    places = torch.rand(numbers.shape, generator=generator).argsort(1)
    first, last, half = places == 0, places == row - 1, places < -(-row // 2)
    negative = (((kinds == 1) | (kinds == 2)) & first) | (kinds == 3) | ((kinds == 4) & half)
    numbers.masked_fill_(negative, -math.inf).masked_fill_(((kinds == 0) & first) | ((kinds == 2) & last), math.inf)
    return numbers.flatten()


def _ties(count: int, row: int, _scale: _Scale, generator: torch.Generator) -> torch.Tensor:
    """Few different numbers; the elements of some rows are all equal."""
    rows = -(-count // row)
    numbers = torch.tensor(FEW)[torch.randint(0, len(FEW), (rows, row), generator=generator)]
    equal = torch.randint(0, 4, (rows, 1), generator=generator) == 0
    return torch.where(equal, numbers[:, :1], numbers).flatten()[:count]


_PATTERNS: dict[str, _Pattern] = {
    "signed": _signed,
    "large": lambda count, _row, scale, generator: _powers(count, scale.large, generator),
    "huge": _huge,
    "tiny": lambda count, _row, scale, generator: _powers(count, scale.tiny, generator),
    "offset": _offset,
    "level": _level,
    "structured": _structured,
    "mixed": lambda count, _row, scale, generator: _powers(count, scale.mixed, generator),
    "special": _special,
    "nan": _nan,
    "nan in every row": _nan_in_every_row,
    "nan among zeros": _nan_among_zeros,
    "infinite": _infinite,
    "infinite alike": _alike,
    "ties": _ties,
    "denormals": _signed,
}


# ---------------------------------------------------------------- the same for generated storages


def _domain(kept: Domain, label: str, short: str, *, one_sign: bool) -> Domain | None:
    """The domain that holds a label's values; None where none does."""
    if isinstance(kept, StructuredDomain):
        return None
    dtype = torch_dtype(short)
    if not (dtype.is_floating_point or dtype.is_complex):
        reach = {"signed": 10, "ties": 2, "huge": 1 << 62}.get(label, 1 << 20)
        return fitted(Integers(-reach, reach + 1), short)
    scale = _Scale(torch.float16 if dtype is torch.complex32 else dtype.to_real())
    match label:
        case "signed":
            return Normal()
        case "huge":
            return Uniform(-1.02 * scale.overflow, 1.02 * scale.overflow)
        case "offset":
            return Uniform(scale.offset - 1.75, scale.offset + 1.75)
        case "special":
            return Specials(3 / SPECIAL_EVERY)
        case "nan":
            return Specials(1 / 256, infinities=False)
        case "ties":
            return Integers(-2, 3)
        case "large" | "tiny" | "mixed":
            low, high = getattr(scale, label)
            return Magnitude(10**low, 10**high, signed=not (one_sign and label in ONE_SIGN))
        case _:
            return None
