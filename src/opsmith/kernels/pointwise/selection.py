"""Replacement by a mask: masked_fill; where is in :mod:`.basic`.

Traffic: ``numel * (2 * itemsize + 1)`` bytes. In place only the elements that the mask names need to be written, and
none to be read. That is what happens where memory is not accessed 16 bytes at a time anyway.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, map_into, prepare_call, tile_offsets, tile_values
from ..common.indexing import converted
from ..common.lanes import store_along_columns
from ..common.launch import await_earlier_kernels, launch, layout_of, require_served
from ..common.tiles import Tiles
from .basic import require_holds


@triton.jit
def replaced_of(x: tl.tensor, mask: tl.tensor, value: tl.tensor) -> tl.tensor:
    """``value`` where the mask holds, else x."""
    return tl.where(mask != 0, value, x)


@triton.jit
def fill_where_kernel(
    out_ptr: tl.tensor,
    operands_I: tl.tuple,
    shape_R: tl.tuple,
    shape_C: tl.tuple,
    row_strides_LD: tl.tuple,
    column_strides_LD: tl.tuple,
    R: tl.tensor,
    C: tl.tensor,
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
    """``out = value where mask``, of ``operands_I = (mask, value)``; what the mask leaves out is not touched."""
    await_earlier_kernels()
    layouts = (shape_R, shape_C, row_strides_LD, column_strides_LD, R, C)
    program = tl.program_id(0)
    inside, whole, offsets_L = tile_offsets(program, *layouts, DENSE_L, UNIT, INDEX, BLOCK_R, BLOCK_C)
    mask, value = tile_values(operands_I, offsets_L, inside, whole, READ_I, COMPUTE_I, LAYOUT_T, DENSE_L, RAGGED, 1)
    named = inside & (mask != 0)
    value = tl.broadcast_to(converted(value, out_ptr.dtype.element_ty), [BLOCK_R, BLOCK_C])
    store_along_columns(out_ptr + offsets_L[LAYOUT_T[0]], value, named)


def masked_fill_scalar(self: torch.Tensor, mask: torch.Tensor, value: float) -> torch.Tensor:
    """``self`` with ``value`` where ``mask`` holds, contiguous.

    Raises:
        OverflowError: the type of ``self`` does not hold the value.
    """
    return _filled_where(self, mask, _held(self, value))


def masked_fill_tensor(self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As :func:`masked_fill_scalar`, with the one element of a tensor."""
    return _filled_where(self, mask, _one_of(self, value))


def masked_fill_scalar_(self: torch.Tensor, mask: torch.Tensor, value: float) -> torch.Tensor:
    """As :func:`masked_fill_scalar`, in place.

    Raises:
        RuntimeError: the mask is larger than ``self``.
    """
    return _fill_where(self, mask, _held(self, value))


def masked_fill_tensor_(self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As :func:`masked_fill_scalar_`, with the one element of a tensor."""
    return _fill_where(self, mask, _one_of(self, value))


def _held(self: torch.Tensor, value: float) -> float:
    """The number, which the type of ``self`` has to hold."""
    if isinstance(value, complex) and not self.is_complex():
        raise OverflowError(f"{value!r} is no {self.dtype} value")
    if self.dtype == torch.bool:
        return bool(value)
    require_holds(self.dtype, value)
    return value


def _one_of(self: torch.Tensor, value: torch.Tensor) -> Operand:
    """A tensor without dimensions, or its number where it lies on another device."""
    if value.ndim:
        raise ValueError(f"masked_fill takes a value without dimensions, not one with {value.ndim}")
    if value.device != self.device:
        return _held(self, value.item())  # Only a CPU tensor: eager refuses any other.
    require_served(value)
    return value


def _filled_where(self: torch.Tensor, mask: torch.Tensor, value: Operand) -> torch.Tensor:
    _require_mask(self, mask)
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    out = torch.empty(shape, dtype=self.dtype, device=self.device)
    map_into(out, replaced_of, [self, mask, value], [self.dtype, torch.bool, self.dtype])
    return out


def _require_mask(self: torch.Tensor, mask: torch.Tensor) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask must be a bool tensor, not {mask.dtype}")
    require_served(self, mask)


def _fill_where(self: torch.Tensor, mask: torch.Tensor, value: Operand) -> torch.Tensor:
    _require_mask(self, mask)
    if torch.broadcast_shapes(self.shape, mask.shape) != self.shape:
        raise RuntimeError(f"a mask of shape {list(mask.shape)} is larger than {list(self.shape)}")
    expanded = any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride(), strict=True))
    if expanded or torch._C._overlaps(self, mask):
        raise NotImplementedError("a tensor whose elements share memory, or with its mask, is not filled in place")
    if not self.numel():
        return self
    call = prepare_call(layout_of(self), (self,), [mask, value], [torch.bool, self.dtype], [], self.dtype)
    if _moves_16_bytes(call.tiles):
        map_into(self, replaced_of, [self, mask, value], [self.dtype, torch.bool, self.dtype])
        return self
    launch(
        fill_where_kernel,
        (call.programs(),),
        self.device,
        self,
        call.arguments_I,
        *call.geometry(),
        LAYOUT_T=call.tiles.layout_T,
        num_warps=call.tiles.warps,
        **call.constants(),
    )
    return self


def _moves_16_bytes(tiles: Tiles) -> bool:
    """Whether the first tensor is written 16 bytes at a time, as far as the compiler knows: it tells multiples of 16.

    A mask would make one access for each element of these.
    """
    columns, rows = tiles.columns, tiles.rows
    aligned = not any(size % 16 for size in (columns.numel(), *rows.strides_ID[0]))
    return tiles.dense_L[0] or (aligned and columns.strides_ID[0] == (1,))
