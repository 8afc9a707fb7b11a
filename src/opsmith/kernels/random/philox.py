"""Random numbers: Philox words, what is made of them, and a kernel that draws one sample for each element.

Philox-4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a 64-bit key
and a 128-bit counter into four words of 32 bits. As in torch's CUDA code the key is the generator's seed, the lower
half of the counter its offset and the upper half the place, so that nothing is drawn twice, by these kernels or by
torch's, before the generator is seeded anew.

A call draws anew although its arguments are the same: launch plans know :data:`COUNTER` by these names and fill it at
each call. A capture for a CUDA graph is declined: its replays would draw the same numbers.

Suffixes as in :mod:`.elementwise`, and ``_S`` one sample for each of several elements.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, prepare_call, store_dense, tile_offsets, tile_values
from ..common.indexing import converted
from ..common.launch import await_earlier_kernels, launch, layout_of, multiprocessors
from ..pointwise.exponentials import log_of

#: Torch counts an offset in words; a counter of Philox gives four.
_WORDS = 4
#: In the state of a generator on the host: the first word of its Mersenne Twister.
_TWISTER_WORD = slice(24, 28)

#: The parameters of a kernel that are what :func:`next_counter` gives: their values compile nothing anew, and launch
#: plans look for these names.
COUNTER = ("seed_low", "seed_high", "count_low", "count_high")

_reading = threading.Lock()

# ---------------------------------------------------------------- the generator


def next_counter(generator: torch.Generator | None, device: torch.device) -> tuple[int, int, int, int]:
    """The key and the lower half of the counters of one launch; moves the generator on.

    Both as two signed numbers of 32 bits, the lower one first, which Triton takes for one type whatever they are.
    Arguments and errors are those of :func:`next_words`.
    """
    seed, first = next_words(generator, device, _WORDS)
    return *halves(seed), *halves(first // _WORDS)


def next_words(generator: torch.Generator | None, device: torch.device, count: int) -> tuple[int, int]:
    """The key, and the first of ``count`` words of its sequence that nobody else draws; moves the generator on.

    Args:
        generator: as an op gets it; None stands for the device's own.
        device: that is drawn on.
        count: of words.

    Raises:
        NotImplementedError: the launch would become part of a CUDA graph.
        ValueError: the generator is another device's.
    """
    if generator is not None and generator.device.type != device.type:
        raise ValueError(f"a generator for {device.type} is needed, not for {generator.device.type}")
    if device.type == "cpu":
        return _next_of_host(torch.default_generator if generator is None else generator), 0
    if torch.cuda.is_current_stream_capturing():
        raise NotImplementedError("drawing in a CUDA graph is not served")
    own = torch.cuda.default_generators[device.index] if generator is None else generator
    with _reading:
        first = own.get_offset()
        own.set_offset(first + -(-count // _WORDS) * _WORDS)
    return own.initial_seed(), first


def _next_of_host(generator: torch.Generator) -> int:
    """The state of a generator that has no offset, as a key; one is added to a word of that state."""
    with _reading:
        state = bytearray(generator.get_state().tolist())
        key = hashlib.blake2b(state, digest_size=8).digest()
        word = int.from_bytes(state[_TWISTER_WORD], "little")
        state[_TWISTER_WORD] = ((word + 1) % (1 << 32)).to_bytes(4, "little")
        generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
    return int.from_bytes(key, "little")


def halves(bits: int) -> tuple[int, int]:
    """The lower and the upper 32 of 64 bits, as signed numbers."""
    low, high = (part % (1 << 32) for part in (bits, bits >> 32))
    return tuple(part - (part >> 31 << 32) for part in (low, high))  # type: ignore[return-value]


# ---------------------------------------------------------------- samples out of four words


@triton.jit
def words_at(
    seed_low: tl.tensor, seed_high: tl.tensor, count_low: tl.tensor, count_high: tl.tensor, place: tl.tensor
) -> tl.tuple:
    """The four words of each place, under what :func:`next_counter` gave."""
    seed = (seed_high.to(tl.uint32).to(tl.uint64) << 32) | seed_low.to(tl.uint32).to(tl.uint64)
    low, high = place.to(tl.uint32), (place >> 32).to(tl.uint32)
    return tl.philox(seed, low * 0 + count_low.to(tl.uint32), low * 0 + count_high.to(tl.uint32), low, high)


@triton.jit
def word_at(
    seed_low: tl.tensor, seed_high: tl.tensor, first_low: tl.tensor, first_high: tl.tensor, place: tl.tensor
) -> tl.tensor:
    """The word ``place`` words behind the first one in the sequence of a seed, as cuRAND counts them."""
    seed = (seed_high.to(tl.uint32).to(tl.uint64) << 32) | seed_low.to(tl.uint32).to(tl.uint64)
    first = (first_high.to(tl.uint32).to(tl.uint64) << 32) | first_low.to(tl.uint32).to(tl.uint64)
    index = first + place.to(tl.uint64)
    low, high = (index >> 2).to(tl.uint32), (index >> 34).to(tl.uint32)
    w, x, y, z = tl.philox(seed, low, high, low * 0, low * 0)
    within = index & 3
    return tl.where(within < 2, tl.where(within == 0, w, x), tl.where(within == 2, y, z))


@triton.jit
def unit_of(word: tl.tensor) -> tl.tensor:
    """Uniform in [0, 1): a multiple of 2^-24 out of 32 bits, of 2^-53 out of 64."""
    if word.dtype == tl.uint64:
        result = (word >> 11).to(tl.float64) * 1.1102230246251565e-16
    else:
        result = (word >> 8).to(tl.float32) * 5.960464477539063e-08
    return result


@triton.jit
def open_unit_of(word: tl.tensor) -> tl.tensor:
    """Uniform in (0, 1), finer towards 0, for logarithms: 2^-33 or 2^-65 is the smallest."""
    if word.dtype == tl.uint64:
        fine = word.to(tl.float64) * 5.421010862427522e-20 + 2.710505431213761e-20
        result = tl.minimum(fine, 0.9999999999999999)
    else:
        fine = word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
        result = tl.minimum(fine, 0.9999999403953552)
    return result


@triton.jit
def long_of(high: tl.tensor, low: tl.tensor) -> tl.tensor:
    """64 bits out of two words."""
    return (high.to(tl.uint64) << 32) | low.to(tl.uint64)


@triton.jit
def normal_pair_of(radial: tl.tensor, angular: tl.tensor) -> tl.tuple:
    """Two independent normal numbers out of two words (Box and Muller, 1958)."""
    radius = tl.sqrt(-2.0 * log_of(open_unit_of(radial)))
    angle = unit_of(angular) * 6.283185307179586
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def four_words(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """The words themselves."""
    return w, x, y, z


@triton.jit
def two_longs(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Two numbers of 64 bits."""
    return long_of(w, x), long_of(y, z)


@triton.jit
def four_units(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Four of :func:`unit_of`, in float32."""
    return unit_of(w), unit_of(x), unit_of(y), unit_of(z)


@triton.jit
def two_units(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Two of :func:`unit_of`, in float64."""
    return unit_of(long_of(w, x)), unit_of(long_of(y, z))


@triton.jit
def four_open_units(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Four of :func:`open_unit_of`, in float32."""
    return open_unit_of(w), open_unit_of(x), open_unit_of(y), open_unit_of(z)


@triton.jit
def two_open_units(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Two of :func:`open_unit_of`, in float64."""
    return open_unit_of(long_of(w, x)), open_unit_of(long_of(y, z))


@triton.jit
def four_normals(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Four normal numbers in float32."""
    first, second = normal_pair_of(w, x)
    third, fourth = normal_pair_of(y, z)
    return first, second, third, fourth


@triton.jit
def two_normals(w: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tuple:
    """Two normal numbers in float64."""
    return normal_pair_of(long_of(w, x), long_of(y, z))


class Source(NamedTuple):
    """What makes samples out of four words, and how many."""

    function: Any
    samples: int


WORDS, LONGS = Source(four_words, 4), Source(two_longs, 2)
_FORMS = {
    "unit": (Source(four_units, 4), Source(two_units, 2)),
    "open unit": (Source(four_open_units, 4), Source(two_open_units, 2)),
    "normal": (Source(four_normals, 4), Source(two_normals, 2)),
}


def source_for(kind: str, dtype: torch.dtype) -> Source:
    """The source of samples ``unit``, ``open unit`` or ``normal``: in float32 unless the result is float64."""
    return _FORMS[kind][dtype == torch.float64]


# ---------------------------------------------------------------- the kernel


@triton.jit(do_not_specialize=COUNTER)
def draw_kernel(
    outs_O: tl.tuple,
    operands_I: tl.tuple,
    seed_low: tl.tensor,
    seed_high: tl.tensor,
    count_low: tl.tensor,
    count_high: tl.tensor,
    shape_R: tl.tuple,
    shape_C: tl.tuple,
    row_strides_LD: tl.tuple,
    column_strides_LD: tl.tuple,
    R: tl.tensor,
    C: tl.tensor,
    source: tl.constexpr,
    function: tl.constexpr,
    SAMPLES: tl.constexpr,
    READ_I: tl.constexpr,
    COMPUTE_I: tl.constexpr,
    LAYOUT_T: tl.constexpr,
    DENSE_L: tl.constexpr,
    RAGGED: tl.constexpr,
    UNIT: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """``out[r, c] = function(sample, operands[0][r, c], ...)`` for SAMPLES tiles, which share their Philox words.

    The samples that one place has words for go to one place in several tiles: the accesses stay contiguous. Beyond the
    last tile nothing is inside, and samples are left. All operands are read first, and arrive while words are made.
    """
    await_earlier_kernels()
    within = tl.arange(0, BLOCK_R)[:, None] * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    place = tl.program_id(0).to(tl.int64) * (BLOCK_R * BLOCK_C) + within
    tiles_S, values_S = (), ()
    layouts = (shape_R, shape_C, row_strides_LD, column_strides_LD, R, C)
    for s in tl.static_range(SAMPLES):
        tile = tl.program_id(0) * SAMPLES + s
        inside, whole, offsets_L = tile_offsets(tile, *layouts, DENSE_L, UNIT, INDEX, BLOCK_R, BLOCK_C)
        tiles_S += ((inside, whole, offsets_L),)  # type: ignore[assignment]
        values_S += (  # type: ignore[assignment]
            tile_values(
                operands_I, offsets_L, inside, whole, READ_I, COMPUTE_I, LAYOUT_T, DENSE_L, RAGGED, len(outs_O)
            ),
        )
    samples_S = source(*words_at(seed_low, seed_high, count_low, count_high, place))
    for s in tl.static_range(SAMPLES):
        inside, whole, offsets_L = tiles_S[s]
        results = function(samples_S[s], *values_S[s])
        if len(outs_O) == 1:
            results = (results,)
        for o in tl.static_range(len(outs_O)):
            result = converted(results[o], outs_O[o].dtype.element_ty)
            store_dense(outs_O[o] + offsets_L[LAYOUT_T[o]], result, inside, whole, RAGGED)


def draw_into(
    outs: tuple[torch.Tensor, ...],
    source: Source,
    function: Any,
    operands: Sequence[Operand] = (),
    parameters: Sequence[float] = (),
    *,
    computed: torch.dtype,
    generator: torch.Generator | None,
) -> None:
    """Write ``function(sample, *operands, *parameters)`` into ``outs``, a sample for each element.

    Args:
        outs: of one shape and any non-overlapping strides; more than one where ``function`` returns a tuple.
        source: makes the samples.
        function: of values.
        operands: broadcast to that shape; each keeps its type, half types are computed in float32.
        parameters: numbers.
        computed: the type of the parameters and of what is a number among the operands.
        generator: as for :func:`next_counter`.
    """
    out = outs[0]
    if out.numel() == 0:
        return
    reads = [operand.dtype if isinstance(operand, torch.Tensor) else computed for operand in operands]
    call = prepare_call(layout_of(out), outs, operands, reads, parameters, computed)
    # A call that does not fill the device takes as long as one program: each has one tile then.
    samples = source.samples if call.programs() > multiprocessors(out.device) else 1
    launch(
        draw_kernel,
        (triton.cdiv(call.programs(), samples),),
        out.device,
        outs,
        call.arguments_I,
        *next_counter(generator, out.device),
        *call.geometry(),
        source=source.function,
        function=function,
        SAMPLES=samples,
        LAYOUT_T=call.tiles.layout_T,
        num_warps=call.tiles.warps,
        **call.constants(),
    )
