"""Values that lie close together: at the bends that a call's numbers make, and all that a dtype has.

An elementwise op is asked them on one dimension of its own length, since its shape makes no difference. What is not
varied repeats the values of the call.

``boundaries`` are made of the numbers among the arguments, the schema's defaults included, their products and
quotients, and of the small ones that activations and roundings have their bends at: each with both signs and, where
a rounding makes no difference, with its neighbours in the dtype. The call's own numbers are rounded to what every
floating dtype holds; else a kernel that compares in float32 and one that compares in bfloat16 are both right.

``sweep`` is, in a half type, all 65,536 values of an op of one tensor, and all between the least and the greatest of
the call for the others. In wider types twice as many numbers are drawn: evenly over exponents and, within one, over
their mantissas, with more of them around 1, and windows of neighbours at places that the seed chooses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import overload
from opsmith.core.case import CallRecord, GeneratedStorage, SequenceValue, Storage, TensorValue, Value
from opsmith.core.domains import Domain, Magnitude, Ordered, Probabilities, Uniform
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs import known_domains
from opsmith.suites.valid_inputs.binding import ArgumentSlot
from opsmith.suites.variants.layouts import bytes_of
from opsmith.suites.variants.scope import Freedom, bound_call, has_steps, is_elementwise

#: Values of a half type, and how many of a wider one are swept.
HALF, SWEPT = 1 << 16, 1 << 17
#: Numbers in one window of neighbours, and how many windows a sweep has.
WINDOW, WINDOWS = 512, 16
#: Exponents of two that are swept more densely than others, and what share of a sweep they get.
USUAL, USUAL_SHARE = (-6, 5), 0.75
#: Where activations, roundings and logarithms bend; with both signs. At 16 an exponential is below float32's rounding
#: of 1, so beside a zero `log(1 + exp(x))` loses it.
BENDS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
#: Likewise, for ops of one tensor: of two large ones a difference is mostly rounding.
FAR_BENDS = (20.0, 88.0, 100.0)
#: Two tensors hold no larger numbers, but for those of the call.
LARGEST_OF_TWO = 32.0
#: Numbers of the call beyond this are no place of a bend.
LARGEST = 30000.0
#: For ops with steps: what these divide has an exact quotient.
DIVIDENDS = tuple([half / 2 for half in range(17)])
DIVISORS = (0.5, 1.0, 2.0, 4.0)
#: Elements of calls on boundaries where they are not all pairs.
ENOUGH = 1 << 11


def dense_variants(
    record: CallRecord, schema: OpSchema, free: dict[int, Freedom], seed: int
) -> Iterator[tuple[str, CallRecord]]:
    """The call on its boundaries, and on all or many values of its dtypes.

    Args:
        record: a recorded call.
        schema: of its overload.
        free: storages whose values may change, by number.
        seed: of the order and, in wide types, of the values.
    """
    call = bound_call(record)
    if call is None or schema.variant is Variant.OUT:
        return
    ranked = [slot for slot in call.slots if slot.tensor.shape] if is_elementwise(schema) else []
    numbers = [slot.tensor.storage for slot in call.slots]
    reshapable = bool(ranked) and len(set(numbers)) == len(numbers) and not _has_lists(record)
    rounded = with_round_numbers(record)
    bent = {number: freedom for number, freedom in free.items() if "boundaries" in freedom.labels}
    if bent and (reshapable or not is_elementwise(schema)):
        pools, own = _on_boundaries(rounded, bent), derive_seed(seed, "boundaries")
        changed = _reshaped(rounded, ranked, _met(pools, own)) if reshapable else _refilled(rounded, pools, own)
        yield "boundaries", changed
    swept = {number: freedom for number, freedom in free.items() if "sweep" in freedom.labels}
    if swept and reshapable:
        values = _swept(rounded, swept, alone=len(ranked) == 1, seed=derive_seed(seed, "sweep"))
        yield "sweep", _reshaped(rounded, ranked, values)


def _has_lists(record: CallRecord) -> bool:
    """Whether an argument is a list of tensors, as those of ``_foreach_`` ops are."""
    values = (*record.args, *record.kwargs.values())
    return any(isinstance(v, SequenceValue) and any(isinstance(i, TensorValue) for i in v.items) for v in values)


# ---------------------------------------------------------------- where the values go


def _reshaped(record: CallRecord, slots: Sequence[ArgumentSlot], values: dict[int, torch.Tensor]) -> CallRecord:
    """The call on one dimension, as long as the longest of the values; what is shorter is repeated."""
    count = max(map(len, values.values()))
    storages = list(record.storages)
    shapes: dict[int, TensorValue] = {}
    for slot in slots:
        number = slot.tensor.storage
        chosen = values.get(number)
        content = _elements(record.storages[number], slot.tensor) if chosen is None else chosen
        repeated = content.repeat(-(-count // max(len(content), 1)))[:count].contiguous()
        storages[number] = bytes_of(repeated)
        shapes[number] = msgspec.structs.replace(slot.tensor, shape=(len(repeated),), strides=(1,), offset=0)

    def place(value: Value) -> Value:
        return shapes.get(value.storage, value) if isinstance(value, TensorValue) else value

    return msgspec.structs.replace(
        record,
        args=tuple([place(value) for value in record.args]),
        kwargs={name: place(value) for name, value in record.kwargs.items()},
        storages=tuple(storages),
    )


def _refilled(record: CallRecord, values: dict[int, torch.Tensor], seed: int) -> CallRecord:
    """The call in its own shapes, their elements chosen from the values."""
    storages = list(record.storages)
    for number, pool in values.items():
        storage = storages[number]
        size_bytes = storage.size_bytes if isinstance(storage, GeneratedStorage) else len(storage)
        generator = torch.Generator().manual_seed(derive_seed(seed, number))
        chosen = pool[torch.randint(0, len(pool), (size_bytes // pool.itemsize,), generator=generator)]
        storages[number] = bytes_of(chosen)
    return msgspec.structs.replace(record, storages=tuple(storages))


def _elements(storage: Storage, tensor: TensorValue) -> torch.Tensor:
    """The elements of a tensor, which are half of them true where they are generated."""
    dtype = torch_dtype(tensor.dtype)
    if isinstance(storage, GeneratedStorage):
        return torch.tensor([False, True]).to(dtype)
    if not storage:
        return torch.zeros(1, dtype=dtype)
    whole = torch.frombuffer(bytearray(storage), dtype=dtype)
    return whole.as_strided(tensor.shape, tensor.strides, tensor.offset).flatten()


# ---------------------------------------------------------------- boundaries


def with_round_numbers(record: CallRecord) -> CallRecord:
    """The call with its floats rounded to four bits, which every floating dtype holds."""
    return msgspec.structs.replace(
        record,
        args=tuple([_round(value) for value in record.args]),
        kwargs={name: _round(value) for name, value in record.kwargs.items()},
    )


def _round(value: Value) -> Value:
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) < 1e-3:
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 16) / 16, exponent)


def _numbers(record: CallRecord) -> set[float]:
    """The finite numbers among a call's arguments, those that it leaves at their default included."""
    given: list[Value] = [*record.args, *record.kwargs.values()]
    for position, argument in enumerate(overload(record.op)._schema.arguments):
        left_out = argument.kwarg_only or position >= len(record.args)
        if left_out and argument.name not in record.kwargs and argument.has_default_value():
            given.append(argument.default_value)
    found = {float(value) for value in given if isinstance(value, int | float) and not isinstance(value, bool)}
    return {number for number in found if math.isfinite(number) and abs(number) <= LARGEST}


def _on_boundaries(record: CallRecord, free: dict[int, Freedom]) -> dict[int, torch.Tensor]:
    """The numbers for each storage."""
    call, domains, own = bound_call(record), known_domains(record), _numbers(record)
    pools: dict[int, torch.Tensor] = {}
    for number, freedom in free.items():
        dtype = torch_dtype(freedom.slot.tensor.dtype)
        if call is not None and has_steps(call):
            is_divisor = freedom.slot.name == "other"
            numbers = _signed(DIVISORS) if is_divisor else torch.cat([_signed(DIVIDENDS), torch.tensor([math.nan])])
            pools[number] = numbers.to(dtype)
        elif dtype.is_floating_point:
            hull = _hull(domains[number].domain) if number in domains else None
            # A half type's product with a number may be rounded before the sum.
            exact = len(free) > 2 or (len(free) == 2 and dtype.itemsize == 2 and not own <= {0.0, 1.0, -1.0})
            small = "denormals" in freedom.labels
            # A gradient that comes in is a factor, so that what it is multiplied by may lie as far out as if alone.
            alone = len(free) == 1 or ("_backward" in record.op and not freedom.slot.name.startswith("grad"))
            pools[number] = _bends(own, dtype, hull, alone=alone, exact=exact, denormals=small)
        else:
            pools[number] = _whole_bends(own, dtype, ends="huge" in freedom.labels)
    return pools


def _met(pools: dict[int, torch.Tensor], seed: int) -> dict[int, torch.Tensor]:
    """In any order, as many of each: all pairs of two pools, some combinations of more."""
    generator = torch.Generator().manual_seed(seed)
    if len(pools) == 2:
        lengths = [len(pool) for pool in pools.values()]
        pairs = torch.randperm(math.prod(lengths), generator=generator)
        places = [pairs // lengths[1], pairs % lengths[1]]
    else:
        count = max(ENOUGH if len(pools) > 1 else 0, *map(len, pools.values()))
        # Each number of the longest pool at least once.
        places = [torch.randperm(-(-count // len(p)) * len(p), generator=generator) % len(p) for p in pools.values()]
        places = [place[:count] for place in places]
    return {number: pool[place] for (number, pool), place in zip(pools.items(), places, strict=True)}


def _signed(numbers: Iterable[float]) -> torch.Tensor:
    """With both signs, zeros too."""
    found = torch.tensor(sorted(set(map(abs, numbers))), dtype=torch.float64)
    return torch.cat([found, -found])


def _bends(
    own: set[float], dtype: torch.dtype, hull: tuple[float, float] | None, *, alone: bool, exact: bool, denormals: bool
) -> torch.Tensor:
    """Numbers at which an op may bend; those around them too, but for ops of which only exact results are asked."""
    combined = {a * b for a, b in itertools.combinations(own, 2)} | {a / b for a in own for b in own if b}
    near = {number for number in (*own, *combined) if abs(number) <= LARGEST}
    if not alone:
        near = {number for number in near if abs(number) <= LARGEST_OF_TWO}
    wide = _signed((*BENDS, *(FAR_BENDS if alone else ()), *near))
    narrow = wide.to(dtype)
    found = narrow[narrow.double() == wide]
    if not exact:
        infinity = torch.tensor(math.inf, dtype=dtype)
        around = torch.cat([torch.nextafter(narrow, infinity), torch.nextafter(narrow, -infinity)])
        found = torch.cat([found, around[(around.abs() >= torch.finfo(dtype).tiny) | denormals]])
    if hull is not None:
        inside = (found >= math.floor(hull[0])) & (found <= math.ceil(hull[1]))
        found = found[inside] if bool(inside.any()) else found
    # By their bits, so that zeros of both signs stay.
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    bits: torch.Tensor = torch.unique(found.view(whole))
    return bits.view(dtype)


def _whole_bends(own: set[float], dtype: torch.dtype, *, ends: bool) -> torch.Tensor:
    """Small whole numbers, those of the call with their neighbours and, if wanted, the first and the last ones."""
    limits = torch.iinfo(dtype)
    found = {0, 1, 2, 3, *(int(number) + step for number in own for step in (-1, 0, 1))}
    found |= {-number for number in found}
    if ends:
        found |= {limits.min, limits.min + 1, limits.max - 1, limits.max, (1 << 24) + 1, (1 << 53) + 1}
    return torch.tensor(sorted(number for number in found if limits.min <= number <= limits.max), dtype=dtype)


def _hull(domain: Domain) -> tuple[float, float] | None:
    """The least and the greatest number of a domain that has them."""
    match domain:
        case Uniform(low, high) | Ordered(low, high):
            return low, high
        case Magnitude(_, high, signed):
            return (-high if signed else 0.0), high
        case Probabilities(_, logarithms):
            return (-16.0, 0.0) if logarithms else (0.0, 1.0)
        case _:
            return None


# ---------------------------------------------------------------- sweeps


def _swept(record: CallRecord, free: dict[int, Freedom], *, alone: bool, seed: int) -> dict[int, torch.Tensor]:
    """Values for each storage: of all that its dtype has, or of those in the range of the call."""
    domains = known_domains(record)
    found: dict[int, torch.Tensor] = {}
    for number, freedom in free.items():
        dtype = torch_dtype(freedom.slot.tensor.dtype)
        generator = torch.Generator().manual_seed(derive_seed(seed, number))
        # What may hold special values may hold any number.
        if alone and "special" in freedom.labels:
            values = _all_values(dtype, generator) if dtype.itemsize == 2 else _many_values(dtype, generator)
            found[number] = _allowed(values, freedom)
        else:
            domain = domains[number].domain if number in domains else None
            hull = _hull(domain) if domain is not None else None
            found[number] = _values_between(dtype, *(hull or _range_of(record, freedom)), generator)
    return found


def _all_values(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """All that a type of two bytes has, in any order; its NaNs are all the usual one."""
    values = torch.randperm(HALF, generator=generator, dtype=torch.int32).to(torch.int16).view(dtype)
    return values.masked_fill_(values.isnan(), math.nan)


def _allowed(values: torch.Tensor, freedom: Freedom) -> torch.Tensor:
    """Zeros of the same sign for numbers that are too small for the op."""
    if "denormals" in freedom.labels or values.dtype is torch.float16:
        return values
    return torch.where(values.abs() < torch.finfo(values.dtype).tiny, values * 0, values)


def _many_values(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Numbers of every exponent and both signs, windows of neighbours, special values; in any order."""
    limits = torch.finfo(dtype)
    usual = int(SWEPT * USUAL_SHARE)
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, limits.max, limits.min, limits.tiny], dtype=dtype)
    whole = (math.log2(limits.tiny), math.log2(limits.max))
    around_one = _with_signs(_powers_of_two(usual, *USUAL, generator), generator).to(dtype)
    windows = _windows(around_one, generator)
    rest = _powers_of_two(SWEPT - usual - len(windows) - len(special), *whole, generator)
    numbers = torch.cat([around_one, windows, _with_signs(rest, generator).to(dtype), special])
    return numbers[torch.randperm(len(numbers), generator=generator)]


def _values_between(dtype: torch.dtype, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    """Numbers of a range; of a half type all of them."""
    if dtype.itemsize == 2:
        numbers = _all_values(dtype, generator)
        inside = numbers[(numbers >= low) & (numbers <= high)]
        return inside[(inside == 0) | (inside.abs() >= torch.finfo(dtype).tiny)]
    even = _strata(SWEPT // 2, low, high, generator).to(dtype)
    largest = math.log2(max(abs(low), abs(high), 2.0**-60))
    small = _with_signs(_powers_of_two(SWEPT // 2 - WINDOWS * WINDOW, largest - 20, largest, generator), generator)
    numbers = torch.cat([even, _windows(even, generator), small.to(dtype)]).clamp(low, high)
    return numbers[torch.randperm(len(numbers), generator=generator)]


def _strata(count: int, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    """One number in each of as many parts of a range."""
    inside = torch.rand(count, generator=generator, dtype=torch.float64)
    return inside.add_(torch.arange(count)).mul_((high - low) / count).add_(low)


def _powers_of_two(count: int, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    """Positive numbers between two powers of two: as many of each exponent, evenly over its mantissas."""
    places = _strata(count, low, high, generator)
    return torch.ldexp(1 + places - places.floor(), places.floor())


def _with_signs(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return numbers * (torch.randint(0, 2, (len(numbers),), generator=generator) * 2 - 1)


def _windows(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Neighbours of some of the numbers, one after another."""
    whole = torch.int32 if numbers.dtype is torch.float32 else torch.int64
    starts = numbers[torch.randint(0, len(numbers), (WINDOWS, 1), generator=generator)].view(whole)
    return (starts + torch.arange(WINDOW, dtype=whole)).flatten().view(numbers.dtype)


def _range_of(record: CallRecord, freedom: Freedom) -> tuple[float, float]:
    """The least and the greatest finite number that the call holds there."""
    tensor = freedom.slot.tensor
    storage = record.storages[tensor.storage]
    if isinstance(storage, GeneratedStorage) or not storage:
        return -4.0, 4.0
    numbers = _elements(storage, tensor)
    numbers = numbers[numbers.isfinite()].double()
    return (float(numbers.min()), float(numbers.max())) if len(numbers) else (-4.0, 4.0)
