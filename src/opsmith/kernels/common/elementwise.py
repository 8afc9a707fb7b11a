"""What makes elementwise kernels: one kernel, :func:`map_kernel`, that applies a function of values.

It reads the operands, applies a function of a few lines and writes the result; each elementwise op is such a function
and the rule for its types. All of them are bound by memory: ``numel * (itemsize of each operand that is not broadcast +
itemsize of each result)`` bytes.

Suffixes: ``_R`` rows and ``_C`` columns of a tile (see :mod:`.tiles`), ``_I`` one entry per operand, ``_O`` per output,
``_T`` per tensor, ``_L`` per layout, ``_D`` per dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .indexing import Layout, converted, elementwise_geometry, index_type, number, offset_of, output_layout, widened
from .lanes import load_along_columns
from .launch import (
    ELEMENT_TYPE,
    compute_type,
    launch,
    layout_of,
    multiprocessors,
    number_bits,
    pdl_prologue,
    pick_device,
    require_served,
)
from .promotion import promoted
from .tiles import Tiles, tiles_of

Operand = torch.Tensor | int | float
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SAME_SIZE_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# ---------------------------------------------------------------- the kernel


@triton.jit
def multiple_of(x: tl.tensor, UNIT: tl.constexpr) -> tl.tensor:
    """A multiple of UNIT, of which the compiler learns that it is one."""
    if UNIT != 1:
        x = x // UNIT * UNIT
    return x


@triton.jit
def tile_offsets(
    tile: tl.tensor,
    shape_R: tl.tuple,
    shape_C: tl.tuple,
    row_strides_LD: tl.tuple,
    column_strides_LD: tl.tuple,
    R: tl.tensor,
    C: tl.tensor,
    DENSE_L: tl.constexpr,
    UNIT: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tuple]:
    """Which elements of a tile are inside the call, whether a tile of one row is whole, and offsets in each layout.

    Rows that begin and end at multiples of UNIT do so in a form in which the compiler sees it.
    """
    tile = tile.to(INDEX)
    if DENSE_L[0]:
        # One row, so that no number is divided before the first load.
        row = tl.arange(0, BLOCK_R).to(INDEX)
        column = tile * BLOCK_C + tl.arange(0, BLOCK_C)
    else:
        tiles_C = tl.cdiv(C, BLOCK_C)
        row = (tile // tiles_C) * BLOCK_R + tl.arange(0, BLOCK_R)
        column = (tile % tiles_C) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (row < R)[:, None] & (column < multiple_of(C, UNIT))[None, :]
    whole = tile * BLOCK_C <= C - BLOCK_C
    offsets_L = ()
    for n in tl.static_range(len(DENSE_L)):
        if DENSE_L[n]:
            offset_C = column
        else:
            offset_C = offset_of(column, shape_C, column_strides_LD[n])
        offset_R = multiple_of(offset_of(row, shape_R, row_strides_LD[n]), UNIT)
        offsets_L += (offset_R[:, None] + offset_C[None, :],)  # type: ignore[assignment]
    return inside, whole, offsets_L


@triton.jit
def load_dense(ptr: tl.tensor, inside: tl.tensor, whole: tl.tensor, RAGGED: tl.constexpr) -> tl.tensor:
    """Neighbouring elements, 0 where the tile does not reach.

    The end of a ``RAGGED`` call may lie within any 16 bytes, as far as the compiler knows, which would make it read
    each element by itself. So the tiles that are whole, all but the last one, are read without a mask.
    """
    if RAGGED:
        if whole:
            x = tl.load(ptr)
        else:
            x = tl.load(ptr, mask=inside, other=0)
    else:
        x = tl.load(ptr, mask=inside, other=0)
    return x


@triton.jit
def store_dense(ptr: tl.tensor, x: tl.tensor, inside: tl.tensor, whole: tl.tensor, RAGGED: tl.constexpr) -> None:
    """As :func:`load_dense`."""
    if RAGGED:
        if whole:
            tl.store(ptr, x)
        else:
            tl.store(ptr, x, mask=inside)
    else:
        tl.store(ptr, x, mask=inside)


@triton.jit
def tile_values(
    operands_I: tl.tuple,
    offsets_L: tl.tuple,
    inside: tl.tensor,
    whole: tl.tensor,
    READ_I: tl.constexpr,
    COMPUTE_I: tl.constexpr,
    LAYOUT_T: tl.constexpr,
    DENSE_L: tl.constexpr,
    RAGGED: tl.constexpr,
    FIRST: tl.constexpr,
) -> tl.tuple:
    """The operands' elements in the types that they are computed in.

    ``READ_I`` holds the type each operand is converted to first, as eager converts to the common
    type, or None for a number; ``COMPUTE_I`` the type in which it enters the function, a number of a half type as
    float32. ``LAYOUT_T`` says from entry ``FIRST`` on which strides each operand has.
    """
    values = ()
    for i in tl.static_range(len(operands_I)):
        if READ_I[i] is None:
            values += (widened(number(operands_I[i], COMPUTE_I[i]))[None, :],)  # type: ignore[assignment]
        else:
            ptr = operands_I[i] + offsets_L[LAYOUT_T[FIRST + i]]
            if DENSE_L[LAYOUT_T[FIRST + i]]:
                element = load_dense(ptr, inside, whole, RAGGED)
            else:
                element = load_along_columns(ptr, inside)
            values += (converted(converted(element, READ_I[i]), COMPUTE_I[i]),)  # type: ignore[assignment]
    return values


@triton.jit
def map_kernel(
    outs_O: tl.tuple,
    operands_I: tl.tuple,
    shape_R: tl.tuple,
    shape_C: tl.tuple,
    row_strides_LD: tl.tuple,
    column_strides_LD: tl.tuple,
    R: tl.tensor,
    C: tl.tensor,
    function: tl.constexpr,
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
    """``out[r, c] = function(operands[0][r, c], operands[1][r, c], ...)`` for one tile; a tuple for several outputs."""
    pdl_prologue()
    inside, whole, offsets_L = tile_offsets(
        tl.program_id(0),
        shape_R,
        shape_C,
        row_strides_LD,
        column_strides_LD,
        R,
        C,
        DENSE_L,
        UNIT,
        INDEX,
        BLOCK_R,
        BLOCK_C,
    )
    values = tile_values(
        operands_I, offsets_L, inside, whole, READ_I, COMPUTE_I, LAYOUT_T, DENSE_L, RAGGED, len(outs_O)
    )
    results = function(*values)
    if len(outs_O) == 1:
        results = (results,)
    for o in tl.static_range(len(outs_O)):
        result = converted(results[o], outs_O[o].dtype.element_ty)
        store_dense(outs_O[o] + offsets_L[LAYOUT_T[o]], result, inside, whole, RAGGED)


def map_elements(
    function: Any,
    operands: Sequence[Operand],
    reads: Sequence[torch.dtype],
    result: torch.dtype,
    parameters: Sequence[float] = (),
    *,
    rounds_numbers: bool = False,
) -> torch.Tensor:
    """Broadcast the operands, convert each to its dtype in ``reads``, apply ``function``.

    ``parameters`` are numbers of the result type that follow the operands; unlike a number among the
    operands they have no say in the layout. ``rounds_numbers``: numbers among the operands are converted as
    well, where eager's arithmetic takes them as they are.

    Returns:
        A new tensor of dtype ``result``, laid out as eager lays it out.

    Raises:
        RuntimeError: the shapes do not broadcast.
        ValueError: the operands lie on several devices.
    """
    out = empty_result(operands, result)
    map_into_several((out,), function, operands, reads, parameters, rounds_numbers=rounds_numbers)
    return out


def map_several(
    function: Any,
    operands: Sequence[Operand],
    reads: Sequence[torch.dtype],
    results: Sequence[torch.dtype],
    parameters: Sequence[float] = (),
) -> tuple[torch.Tensor, ...]:
    """As :func:`map_elements`, for a ``function`` that returns a tuple: one tensor for each dtype in ``results``.

    ``parameters`` are numbers of the first one's type.
    """
    outs = tuple(empty_result(operands, result) for result in results)
    map_into_several(outs, function, operands, reads, parameters)
    return outs


def map_into(
    out: torch.Tensor,
    function: Any,
    operands: Sequence[Operand],
    reads: Sequence[torch.dtype],
    parameters: Sequence[float] = (),
) -> None:
    """As :func:`map_elements`, into an ``out`` of the broadcast shape and any non-overlapping strides."""
    map_into_several((out,), function, operands, reads, parameters)


def empty_result(operands: Sequence[Operand], result: torch.dtype) -> torch.Tensor:
    """An unwritten tensor of dtype ``result`` with the shape, layout and device of an elementwise op's result."""
    shape, strides = output_layout(tuple(map(_layout, operands)))
    return torch.empty_strided(shape, strides, dtype=result, device=pick_device(operands))


def map_into_several(
    outs: tuple[torch.Tensor, ...],
    function: Any,
    operands: Sequence[Operand],
    reads: Sequence[torch.dtype],
    parameters: Sequence[float] = (),
    *,
    rounds_numbers: bool = False,
) -> None:
    """As :func:`map_into`, for a ``function`` that returns a tuple; the outs have one shape."""
    out = outs[0]
    if out.numel() == 0:
        return
    call = prepare_call(layout_of(out), outs, operands, reads, parameters, out.dtype, rounds_numbers=rounds_numbers)
    tiles = call.tiles
    launch(
        map_kernel,
        (call.programs(),),
        out.device,
        outs,
        call.arguments_I,
        *call.geometry(),
        function=function,
        LAYOUT_T=tiles.layout_T,
        num_warps=tiles.warps,
        **call.constants(),
    )


class ElementwiseCall(NamedTuple):
    """What a kernel over tiles is launched with."""

    tiles: Tiles
    arguments_I: tuple[torch.Tensor | int, ...]
    read_I: tuple[Any, ...]
    compute_I: tuple[Any, ...]
    index: Any

    def programs(self) -> int:
        """The number of tiles."""
        rows, columns = self.tiles.rows.numel(), self.tiles.columns.numel()
        return int(triton.cdiv(rows, self.tiles.block_r) * triton.cdiv(columns, self.tiles.block_c))

    def geometry(self) -> tuple[Any, ...]:
        """The arguments of :func:`tile_offsets` after the tile."""
        rows, columns = self.tiles.rows, self.tiles.columns
        return rows.shape_D, columns.shape_D, rows.strides_ID, columns.strides_ID, rows.numel(), columns.numel()

    def constants(self) -> dict[str, Any]:
        """The compile-time arguments that every kernel over tiles has."""
        return {
            "READ_I": self.read_I,
            "COMPUTE_I": self.compute_I,
            "DENSE_L": self.tiles.dense_L,
            "RAGGED": self.tiles.ragged,
            "UNIT": self.tiles.unit,
            "INDEX": self.index,
            "BLOCK_R": self.tiles.block_r,
            "BLOCK_C": self.tiles.block_c,
        }


def prepare_call(
    output: Layout,
    outs: Sequence[torch.Tensor],
    operands: Sequence[Operand],
    reads: Sequence[torch.dtype],
    parameters: Sequence[float],
    parameter_type: torch.dtype,
    *,
    rounds_numbers: bool = False,
) -> ElementwiseCall:
    """Cut a call into tiles in the order of ``output``; ``outs`` are the tensors that it writes at every element."""
    types = [*reads, *[parameter_type] * len(parameters)]
    compute_I = tuple(map(compute_type, types))
    device = pick_device([*outs, *operands])
    pairs = zip([*operands, *parameters], compute_I, strict=True)
    arguments = tuple(_argument(operand, compute, device) for operand, compute in pairs)
    tensors = [isinstance(argument, torch.Tensor) for argument in arguments]
    read_I = tuple(ELEMENT_TYPE[dtype] if is_tensor else None for is_tensor, dtype in zip(tensors, types, strict=True))
    if rounds_numbers:
        entered = zip(tensors, compute_I, types, strict=True)
        compute_I = tuple(compute if is_tensor else ELEMENT_TYPE[dtype] for is_tensor, compute, dtype in entered)
    others = tuple(map(_layout, [*outs[1:], *operands, *parameters]))
    geometry = elementwise_geometry(output, others)
    itemsize = max(tensor.dtype.itemsize for tensor in (*outs, *arguments) if isinstance(tensor, torch.Tensor))
    tiles = tiles_of(geometry, itemsize, multiprocessors(device))
    return ElementwiseCall(tiles, arguments, read_I, compute_I, index_type(geometry))


def _layout(operand: Operand) -> Layout:
    return layout_of(operand) if isinstance(operand, torch.Tensor) else ((), ())


def _argument(operand: Operand, compute: tl.dtype, device: torch.device) -> torch.Tensor | int:
    """What the kernel takes for an operand: a tensor, or the bits of a number."""
    if not isinstance(operand, torch.Tensor):
        return number_bits(operand, compute)
    # A 0-dim CPU tensor may join tensors of a device, whose kernel cannot read it.
    return operand if operand.device == device else number_bits(operand.item(), compute)


@triton.jit
def same(x: tl.tensor) -> tl.tensor:
    """The value itself: a copy."""
    return x


# ---------------------------------------------------------------- types


def served_promotion(operands: Sequence[Operand]) -> torch.dtype:
    """The promoted type of operands that are all served; a CPU tensor without dimensions may be among them."""
    require_served(*(operand for operand in operands if isinstance(operand, torch.Tensor)), joins_numbers=True)
    return promoted(operands)


def as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor seen as integers of its element size: what only moves keeps every bit.

    Raises:
        NotImplementedError: elements of more than 8 bytes, or a tensor that is not served.
    """
    require_served(tensor, dtypes=[tensor.dtype])
    if tensor.dtype.itemsize not in _SAME_SIZE_INTEGER:
        raise NotImplementedError(f"{tensor.dtype} is not served")
    return tensor.view(_SAME_SIZE_INTEGER[tensor.dtype.itemsize])
