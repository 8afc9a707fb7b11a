"""Elementwise ops over lists of tensors, and the steps of optimisers, in one launch for 32 to 64 tensors.

The stretches of all tensors, of some blocks each, are numbered one after another; a program finds by comparisons which
tensor its stretch belongs to, and takes that one's pointers. All tensors of a call have one floating type, and those
that belong together one dense layout, so that every block is contiguous in memory. Traffic: as if each tensor had an op
of its own.

Suffixes: ``_N`` one entry per tensor of a list, ``_LN`` per list and tensor, ``_PN`` per number and tensor, ``_KN`` per
any of these and tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, number
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..copies.rearrangements import is_dense

#: Tensors of a launch: at least, as many pointers and sizes as are compared in the time that a first load takes; more
#: where there are few lists, as long as a program chooses no more entries than it does for four lists.
TENSORS, MOST_TENSORS, CHOSEN = 32, 64, 192
BLOCK = INTERPRETED_TILE if INTERPRETED else 2048
#: Finding the tensor takes some 400 instructions, ten times those of a block of a sum: where programs for each
#: multiprocessor are left that cover the time of an access, each of them takes several blocks.
PROGRAMS, MOST_STEPS = 8, 16

# ---------------------------------------------------------------- the kernel


@triton.jit
def entry(values_N: tl.tuple, firsts_N: tl.tuple) -> tl.tensor:
    """The entry of the tensor that this program's stretch belongs to."""
    value = values_N[0]
    for n in tl.static_range(1, len(firsts_N)):
        value = tl.where(tl.program_id(0) >= firsts_N[n], values_N[n], value)
    return value


@triton.jit
def entries(values_KN: tl.tuple, firsts_N: tl.tuple) -> tl.tuple:
    """:func:`entry` of each list; behind the lists there is one entry more, see :func:`~.launch.settled`."""
    chosen = ()
    for k in tl.static_range(len(values_KN) - 1):
        chosen += (entry(values_KN[k], firsts_N),)  # type: ignore[assignment]
    return chosen


@triton.jit
def list_kernel(
    lists_LN: tl.tuple,
    singles_LN: tl.tuple,
    numbers_PN: tl.tuple,
    shared: tl.tuple,
    firsts_N: tl.tuple,
    numels_N: tl.tuple,
    steps: tl.tensor,
    function: tl.constexpr,
    READ: tl.constexpr,
    OUTS: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``outs[n][i] = function(lists[n][i], .., singles[n], .., numbers[n], .., shared)`` for blocks of one tensor.

    Of the lists, the first ``READ`` are read, and those numbered ``OUTS`` are written.
    """
    pdl_prologue()
    first = (tl.program_id(0) - entry(firsts_N, firsts_N)).to(tl.int64) * steps * BLOCK
    numel = entry(numels_N, firsts_N)
    lists, singles = entries(lists_LN, firsts_N), entries(singles_LN, firsts_N)
    numbers = entries(numbers_PN, firsts_N)
    for step in range(steps):
        start = first + step * BLOCK
        # Without a mask, accesses are of 16 bytes whatever the number of elements.
        if start + BLOCK <= numel:
            map_block(lists, singles, numbers, shared, start, None, function, READ, OUTS, COMPUTE, BLOCK)
        elif start < numel:
            map_block(lists, singles, numbers, shared, start, numel, function, READ, OUTS, COMPUTE, BLOCK)


@triton.jit
def map_block(
    lists: tl.tuple,
    singles: tl.tuple,
    numbers: tl.tuple,
    shared: tl.tuple,
    start: tl.tensor,
    numel: tl.tensor,
    function: tl.constexpr,
    READ: tl.constexpr,
    OUTS: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """A block from element ``start`` on, up to ``numel`` if that is given."""
    i = start + tl.arange(0, BLOCK)
    inside = None if numel is None else i < numel
    values = ()
    for k in tl.static_range(READ):
        values += (tl.load(lists[k] + i, mask=inside).to(COMPUTE),)  # type: ignore[assignment]
    for k in tl.static_range(len(singles)):
        values += (tl.load(singles[k] + tl.arange(0, 1)).to(COMPUTE),)  # type: ignore[assignment]
    for k in tl.static_range(len(numbers)):
        values += (number(numbers[k], COMPUTE),)  # type: ignore[assignment]
    for k in tl.static_range(len(shared)):
        values += (number(shared[k], COMPUTE),)  # type: ignore[assignment]
    results = function(*values)
    if len(OUTS) == 1:
        results = (results,)
    for k in tl.static_range(len(OUTS)):
        out = lists[OUTS[k]]
        tl.store(out + i, converted(results[k], out.dtype.element_ty), mask=inside)


# ---------------------------------------------------------------- the host side


def map_lists(
    function: Any,
    outs: Sequence[Sequence[torch.Tensor]],
    lists: Sequence[Sequence[torch.Tensor]],
    *,
    singles: Sequence[Sequence[torch.Tensor]] = (),
    numbers: Sequence[Sequence[float]] = (),
    shared: Sequence[float] = (),
) -> None:
    """Apply ``function`` to the elements of tensors that lie alike.

    Args:
        function: of one element of each of ``lists``, then of ``singles``, ``numbers`` and ``shared``.
        outs: what is written, one list for each result.
        lists: what is read.
        singles: tensors of one element, one for each tensor of a list.
        numbers: numbers, one for each tensor of a list.
        shared: numbers for all tensors.
    """
    # A list that is read and written is given once.
    every = [*lists, *(out for out in outs if not any(out is read for read in lists))]
    written = tuple(next(k for k, each in enumerate(every) if each is out) for out in outs)
    of = every[0]
    kept = [n for n, tensor in enumerate(of) if tensor.numel()]
    compute = compute_type(of[0].dtype)
    # Beside those lists, a program looks its tensor's first stretch and its size up.
    tensors = min(max(CHOSEN // (len(every) + len(singles) + len(numbers) + 2), TENSORS), MOST_TENSORS)
    for start in range(0, len(kept), tensors):
        chosen = kept[start : start + tensors]
        blocks = sum(triton.cdiv(of[n].numel(), BLOCK) for n in chosen)
        steps = min(max(blocks // (PROGRAMS * multiprocessors(of[0].device)), 1), MOST_STEPS)
        firsts, programs = [], 0
        for n in chosen:
            firsts.append(programs)
            programs += triton.cdiv(of[n].numel(), steps * BLOCK)
        launch(
            list_kernel,
            (programs,),
            of[0].device,
            *(tuple(tuple(each[n] for n in chosen) for each in group) for group in (every, singles)),
            tuple(tuple(number_bits(values[n], compute) for n in chosen) for values in numbers),
            tuple(number_bits(value, compute) for value in shared),
            tuple(firsts),
            tuple(of[n].numel() for n in chosen),
            loop_bound(steps),
            function=function,
            READ=len(lists),
            OUTS=written,
            COMPUTE=compute,
            BLOCK=BLOCK,
        )


def require_lists(*lists: Sequence[torch.Tensor]) -> None:
    """Decline lists whose tensors do not lie alike; refuse lists of different lengths.

    Raises:
        ValueError: no tensors, or lists of different lengths.
        NotImplementedError: more than one type or device, or layouts with gaps or of different order.
    """
    first = lists[0]
    if not first or any(len(other) != len(first) for other in lists):
        raise ValueError(f"the lists have {[len(each) for each in lists]} tensors")
    for tensors in zip(*lists, strict=True):
        require_served(*tensors, dtypes=FLOATS)
        lead = tensors[0]
        alike = all(tensor.shape == lead.shape and tensor.stride() == lead.stride() for tensor in tensors)
        same = all(tensor.dtype == first[0].dtype and tensor.device == first[0].device for tensor in tensors)
        if not alike or not same or not is_dense(lead):
            raise NotImplementedError("tensors of several types, devices or layouts are not served in one list")


def empty_lists_like(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """New tensors that lie as the given ones."""
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in tensors]
