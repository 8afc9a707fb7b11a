"""Max unpooling: every value goes to the place in its plane that an index names, all else is zero.

Two launches: one writes the zeros, ``numel of the output * itemsize`` bytes, one scatters the values,
``numel * (2 itemsize + 8)``. Where two indices name one place, either value may stay, as in eager.

Suffixes: ``_D`` one entry per dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_into, same
from ..common.indexing import Geometry, index_type, merge_dims, offset_of
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, pdl_prologue, require_served
from ..common.volumes import require_volume


@triton.jit
def unpool_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    index_ptr: tl.tensor,
    shape_D: tl.tuple,
    x_strides_D: tl.tuple,
    index_strides_D: tl.tuple,
    numel: tl.tensor,
    plane: tl.tensor,
    out_plane: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One value a lane, of planes of ``plane`` values to planes of ``out_plane``."""
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset_of(i, shape_D, x_strides_D), mask=i < numel, other=0)
    at = tl.load(index_ptr + offset_of(i, shape_D, index_strides_D), mask=i < numel, other=-1)
    # An index outside its plane, for which eager stops, is left out.
    inside = (at >= 0) & (at < out_plane)
    tl.store(out_ptr + (i // plane).to(tl.int64) * out_plane + at, x, mask=inside)


def max_unpool2d(self: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """Planes of ``output_size`` with the values of ``self`` at ``indices``."""
    return _unpool(self, indices, 2, output_size)


def max_unpool3d(
    self: torch.Tensor,
    indices: torch.Tensor,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> torch.Tensor:
    """Volumes of ``output_size`` with the values of ``self`` at ``indices``; the rest is checked and not used.

    Raises:
        ValueError: a stride or padding that is not three numbers, or a stride of zero.
    """
    if len(stride) != 3 or len(padding) != 3 or min(stride) < 1:
        raise ValueError(f"stride and padding must be three numbers, not {list(stride)} and {list(padding)}")
    return _unpool(self, indices, 3, output_size)


def _unpool(x: torch.Tensor, indices: torch.Tensor, spatial: int, output_size: Sequence[int]) -> torch.Tensor:
    require_served(x, dtypes=FLOATS)
    require_volume(x, spatial)
    if len(output_size) != spatial or x.shape != indices.shape or indices.dtype != torch.int64:
        raise ValueError(f"{list(output_size)} and {indices.dtype} indices of {list(indices.shape)} do not fit")
    out = torch.empty((*x.shape[:-spatial], *output_size), dtype=x.dtype, device=x.device)
    map_into(out, same, [0], [x.dtype])
    if x.numel() and out.numel():
        _launch_unpool(out, x, indices, spatial)
    return out


def _launch_unpool(out: torch.Tensor, x: torch.Tensor, indices: torch.Tensor, spatial: int) -> None:
    shape = tuple(x.shape)
    geometry = merge_dims(shape, [x.stride(), indices.stride()], reversed(range(x.ndim)))
    numel, out_plane = x.numel(), math.prod(out.shape[-spatial:])
    block = min(triton.next_power_of_2(numel), INTERPRETED_TILE) if INTERPRETED else 1024
    launch(
        unpool_kernel,
        (triton.cdiv(numel, block),),
        x.device,
        out,
        x,
        indices,
        geometry.shape_D,
        *geometry.strides_ID,
        numel,
        math.prod(shape[-spatial:]),
        out_plane,
        INDEX=index_type(Geometry((1,), ((0,),)), geometry),
        BLOCK=block,
    )
