"""Copies: the same elements in other memory, in another order or of another type.

``2 * numel * itemsize`` bytes, one launch. Everything that only rearranges elements is a copy here, between two
views: the result's, and one of the source whose strides say where each element comes from. Elements of
one type move as bits, so that complex64 and float8 are served, and a NaN keeps its payload.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits, load_dense, map_into, same, store_dense
from ..common.indexing import Ints, converted, dense_strides, index_type, merge_dims, normalized_dims
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import launch, layout_of, pdl_prologue, require_served
from ..common.transposed_tiles import cut_dims, offset_in, programs, sides, sizes_of, tile_for, tile_indices

# ---------------------------------------------------------------- the kernel


@triton.jit
def copy_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    first: tl.tensor,
    out_sides: tl.tuple,
    x_sides: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    NEGATE: tl.constexpr,
    RAGGED: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out[s, a, b] = x[first + s, a, b]`` for one tile, converted to the type of ``out``; negated if NEGATE."""
    pdl_prologue()
    s, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    inside = (a < rows)[:, None] & (b < columns)[None, :]
    x_AB = (
        x_ptr
        + first
        + offset_in(s, x_sides[0])
        + (offset_in(a, x_sides[1])[:, None] + offset_in(b, x_sides[2])[None, :])
    )
    out_AB = (
        out_ptr
        + offset_in(s, out_sides[0])
        + (offset_in(a, out_sides[1])[:, None] + offset_in(b, out_sides[2])[None, :])
    )
    # Of a RAGGED copy there is one row.
    whole = tl.program_id(0).to(INDEX) * WIDTH <= columns - WIDTH
    if RAGGED:
        x = load_dense(x_AB, inside, whole, RAGGED)
    else:
        x = load_along_columns(x_AB, inside)
    if NEGATE:
        x = -x
    x = converted(x, out_ptr.dtype.element_ty)
    if RAGGED:
        store_dense(out_AB, x, inside, whole, RAGGED)
    else:
        store_along_columns(out_AB, x, inside)


def copy_strided(out: torch.Tensor, x: torch.Tensor, strides: Ints, first: int = 0, *, negate: bool = False) -> None:
    """Copy the elements of ``x`` that lie at ``first`` and ``strides``, which may be negative, from there.

    Args:
        out: any strides without overlap; what is to be written, in an element type of Triton's.
        x: where the elements lie.
        strides: of the elements, in the shape of ``out``.
        first: offset of the first element from the beginning of ``x``.
        negate: change every sign.
    """
    if out.numel() == 0:
        return
    shape, out_strides = layout_of(out)
    order = sorted(range(len(shape)), key=lambda dim: out_strides[dim])
    geometry = merge_dims(shape, [out_strides, strides], order)
    cut = cut_dims(geometry)
    sizes = sizes_of(geometry, cut)
    itemsize = max(out.dtype.itemsize, x.dtype.itemsize)
    transposed = bool(cut.rows) and abs(geometry.strides_ID[1][cut.rows[0]]) < abs(geometry.strides_ID[1][0])
    tile = tile_for(sizes, itemsize, out.device, transposed=transposed)
    is_flat = geometry.strides_ID == ((1,), (1,))
    launch(
        copy_kernel,
        (programs(sizes, tile),),
        out.device,
        out,
        x,
        first,
        sides(geometry, cut, 0),
        sides(geometry, cut, 1),
        sizes[1],
        sizes[2],
        NEGATE=negate,
        RAGGED=is_flat and sizes[2] % 16 != 0 and tile.width < sizes[2],
        INDEX=index_type(geometry),
        HEIGHT=tile.height,
        WIDTH=tile.width,
    )


def copy_into(out: torch.Tensor, source: torch.Tensor) -> None:
    """Copy ``source``, which broadcasts and may be lazily negated, into ``out``, converted to its type.

    Raises:
        NotImplementedError: a tensor that is not served.
        RuntimeError: the shapes do not broadcast.
    """
    if source.shape != out.shape:
        source = source.expand(out.shape)
    if out.dtype.is_complex or source.dtype.is_complex:
        _copy_complex(out, source)
    elif source.is_neg():
        require_served(out)
        source = torch._neg_view(source)
        copy_strided(out, source, source.stride(), negate=True)
    elif out.dtype == source.dtype:
        copy_strided(as_bits(out), as_bits(source), source.stride())
    else:
        require_served(out, source)
        copy_strided(out, source, source.stride())


def _copy_complex(out: torch.Tensor, source: torch.Tensor) -> None:
    """Copy between complex tensors, or from a real one: as pairs of numbers, or part by part where they differ."""
    if not out.dtype.is_complex:
        raise NotImplementedError("a real copy of complex numbers is not served")
    conjugated, negated = source.is_conj(), source.is_neg()
    source = source.conj() if conjugated else source
    source = torch._neg_view(source) if negated else source
    pairs = torch.view_as_real(out)
    if source.dtype.is_complex and not conjugated:
        parts = torch.view_as_real(source)
        copy_strided(pairs, parts, parts.stride(), negate=negated)
        return
    real, imaginary = torch.view_as_real(source).unbind(-1) if conjugated else (source, None)
    require_served(real)
    copy_strided(pairs.select(-1, 0), real, real.stride(), negate=negated)
    if imaginary is None:
        fill(pairs.select(-1, 1), 0)
    else:
        copy_strided(pairs.select(-1, 1), imaginary, imaginary.stride(), negate=not negated)


def fill(out: torch.Tensor, value: float) -> None:
    """Write one number everywhere."""
    map_into(out, same, [value], [out.dtype])


def copied(source: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of a view."""
    out = torch.empty(source.shape, dtype=source.dtype, device=source.device)
    copy_into(out, source)
    return out


# ---------------------------------------------------------------- whole tensors


def clone(self: torch.Tensor, *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """A copy in the layout asked for; by default in the source's, if that is dense."""
    out = torch.empty_like(self, memory_format=memory_format or torch.preserve_format)
    copy_into(out, self)
    return out


def lift_fresh_copy(self: torch.Tensor) -> torch.Tensor:
    """A copy in the source's layout, if that is dense."""
    return clone(self)


def to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,  # noqa: ARG001 - Says how to wait for another device.
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """A copy of another type or layout on the same device.

    Raises:
        NotImplementedError: another device, pinned memory, or complex numbers of two types.
    """
    if layout not in (None, torch.strided) or pin_memory:
        raise NotImplementedError("only strided, unpinned results are served")
    if device is not None and _resolved(torch.device(device)) != self.device:
        raise NotImplementedError("copies between devices are not served")
    out = torch.empty_like(self, dtype=dtype or self.dtype, memory_format=memory_format or torch.preserve_format)
    copy_into(out, self)
    return out


def _resolved(device: torch.device) -> torch.device:
    """``cuda`` as the current one of its devices, which an allocation tells."""
    return torch.empty(0, device=device).device if device.index is None else device


def copy_(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:  # noqa: ARG001 - As above.
    """Write ``src``, which broadcasts, into ``self``, converted to its type.

    As in eager, what overlaps is refused where both tensors are dense, and else the caller's care.

    Raises:
        NotImplementedError: tensors of several devices.
        RuntimeError: elements of ``self`` that share memory, tensors that overlap in part, or shapes that do not
            broadcast.
    """
    if self.device != src.device:
        raise NotImplementedError("copies between devices are not served")
    if any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride(), strict=True)):
        raise RuntimeError("elements of self share memory: clone it before writing to it")
    if is_dense(self) and is_dense(src) and meets(self, src) and not _is_itself(self, src):
        raise RuntimeError("self and src overlap in part: clone one of them before the copy")
    copy_into(self, src)
    return self


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a piece of memory without gaps."""
    shape, strides = layout_of(tensor)
    order = sorted((dim for dim in range(tensor.ndim) if shape[dim] > 1), key=lambda dim: strides[dim])
    packed = dense_strides(shape, order)
    return all(strides[dim] == packed[dim] for dim in order)


def meets(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory from a tensor's first element to its last meets another's, in one storage."""
    if not (one.numel() and other.numel() and torch._C._overlaps(one, other)):
        return False
    (first, first_end), (second, second_end) = _reach(one), _reach(other)
    return first < second_end and second < first_end


def _reach(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes of the storage: where the first element begins, and where the last one ends."""
    shape, strides = layout_of(tensor)
    begin = int(tensor.storage_offset())
    end = begin + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return begin * tensor.element_size(), end * tensor.element_size()


def _is_itself(self: torch.Tensor, src: torch.Tensor) -> bool:
    """Whether each element would be copied to where it is."""
    if (self.shape, self.dtype, self.storage_offset()) != (src.shape, src.dtype, src.storage_offset()):
        return False
    pairs = zip(self.shape, self.stride(), src.stride(), strict=True)
    return all(size == 1 or to == of for size, to, of in pairs)


# ---------------------------------------------------------------- copies of views


def alias_copy(self: torch.Tensor) -> torch.Tensor:
    """A contiguous copy."""
    return copied(self)


def as_strided_copy(
    self: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> torch.Tensor:
    """A copy of any view of the storage."""
    return copied(self.as_strided(size, stride, storage_offset))


def diagonal_copy(self: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """A copy of ``diagonal``."""
    return copied(self.diagonal(offset, dim1, dim2))


def expand_copy(self: torch.Tensor, size: Sequence[int], *, implicit: bool = False) -> torch.Tensor:  # noqa: ARG001 - Of vmap.
    """A copy of ``expand``."""
    return copied(self.expand(list(size)))


def narrow_copy(self: torch.Tensor, dim: int, start: int, length: int) -> torch.Tensor:
    """A copy of ``narrow``."""
    return copied(self.narrow(dim, start, length))


def permute_copy(self: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """A copy of ``permute``."""
    return copied(torch.permute(self, list(dims)))


def select_copy(self: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """A copy of ``select``."""
    return copied(self.select(dim, index))


def slice_copy(
    self: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> torch.Tensor:
    """A copy of ``slice``."""
    return copied(torch.ops.aten.slice.Tensor(self, dim, start, end, step))


def split_with_sizes_copy(self: torch.Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    """Copies of ``split_with_sizes``, one launch each."""
    return [copied(part) for part in self.split_with_sizes(list(split_sizes), dim)]


def split_copy(self: torch.Tensor, split_size: int, dim: int = 0) -> list[torch.Tensor]:
    """Copies of ``split``, one launch each."""
    return [copied(part) for part in torch.ops.aten.split.Tensor(self, split_size, dim)]


def squeeze_copy(self: torch.Tensor) -> torch.Tensor:
    """A copy of ``squeeze``."""
    return copied(self.squeeze())


def squeeze_copy_dim(self: torch.Tensor, dim: int) -> torch.Tensor:
    """A copy of ``squeeze`` of one dimension."""
    return copied(self.squeeze(dim))


def squeeze_copy_dims(self: torch.Tensor, dim: Sequence[int]) -> torch.Tensor:
    """A copy of ``squeeze`` of several dimensions."""
    return copied(self.squeeze(tuple(dim)))


def t_copy(self: torch.Tensor) -> torch.Tensor:
    """A copy of ``t``."""
    return copied(self.t())


def transpose_copy(self: torch.Tensor, dim0: int, dim1: int) -> torch.Tensor:
    """A copy of ``transpose``."""
    return copied(self.transpose(dim0, dim1))


def unbind_copy(self: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    """Copies of ``unbind``, one launch each."""
    return [copied(part) for part in self.unbind(dim)]


def unfold_copy(self: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """A copy of ``unfold``."""
    return copied(self.unfold(dimension, size, step))


def unsqueeze_copy(self: torch.Tensor, dim: int) -> torch.Tensor:
    """A copy of ``unsqueeze``."""
    return copied(self.unsqueeze(dim))


def view_copy(self: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """A copy in another shape, whatever the strides are."""
    return copied(self).view(list(size))


def view_copy_dtype(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A copy of ``view`` as another type."""
    return copied(self.view(dtype))


# ---------------------------------------------------------------- rearrangements


def repeat(self: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """``self`` side by side with itself, ``repeats[d]`` times along dimension d.

    Raises:
        ValueError: fewer repeats than dimensions, or negative ones.
    """
    missing = len(repeats) - self.ndim
    if missing < 0 or any(count < 0 for count in repeats):
        raise ValueError(f"{list(repeats)} must hold a number of repeats for each of {self.ndim} dimensions")
    require_served(self, dtypes=[self.dtype])
    if self.dtype == torch.complex128:
        return torch.view_as_complex(repeat(torch.view_as_real(self), [*repeats, 1]))
    shape = (1,) * missing + tuple(self.shape)
    strides = (0,) * missing + self.stride()
    out = torch.empty([n * size for n, size in zip(repeats, shape, strict=True)], dtype=self.dtype, device=self.device)
    target, source = as_bits(out), as_bits(self)
    # Each dimension in two: which repetition, and where in it.
    split = [side for pair in zip(repeats, shape, strict=True) for side in pair]
    copy_strided(target.view(split), source, tuple(step for stride in strides for step in (0, stride)))
    return out


def flip(self: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """``self`` read backwards along ``dims``, in its own layout.

    Raises:
        IndexError: a dimension out of range.
        ValueError: a dimension given twice.
    """
    require_served(self, dtypes=[self.dtype])
    out = torch.empty_like(self)
    flipped = normalized_dims(dims, self.ndim) if dims else set()
    first = sum((self.shape[d] - 1) * self.stride(d) for d in flipped if d < self.ndim)
    strides = tuple(-stride if d in flipped else stride for d, stride in enumerate(self.stride()))
    copy_strided(as_bits(out), as_bits(self), strides, first)
    return out


def rot90(self: torch.Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> torch.Tensor:
    """``self`` turned ``k`` times by 90 degrees, from the first of ``dims`` towards the second.

    Raises:
        ValueError: not two different dimensions, or fewer in the tensor.
        IndexError: a dimension out of range.
    """
    if len(dims) != 2 or self.ndim < 2 or abs(dims[0] - dims[1]) == self.ndim:
        raise ValueError(
            f"a rotation of {self.ndim} dimensions in the plane of {list(dims)}: it takes two different ones"
        )
    normalized_dims(dims, self.ndim)
    quarter = k % 4
    if quarter == 0:
        return clone(self, memory_format=torch.contiguous_format)
    if quarter == 2:
        return flip(self, dims)
    return flip(self, [dims[1] if quarter == 1 else dims[0]]).transpose(*dims)


def pixel_shuffle(self: torch.Tensor, upscale_factor: int) -> torch.Tensor:
    """``[.., C r r, H, W]`` to ``[.., C, H r, W r]``: channels become pixels.

    Raises:
        ValueError: fewer than three dimensions, or channels that r squared does not divide.
    """
    r = upscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-3] % (r * r):
        raise ValueError(f"pixel_shuffle by {r} does not fit a tensor of shape {list(self.shape)}")
    *outer, channels, height, width = self.shape
    parts = self.unflatten(-3, (channels // (r * r), r, r)).movedim((-4, -3), (-3, -1))
    out = copied(parts)
    return out.view(*outer, channels // (r * r), height * r, width * r)


def pixel_unshuffle(self: torch.Tensor, downscale_factor: int) -> torch.Tensor:
    """``[.., C, H r, W r]`` to ``[.., C r r, H, W]``: pixels become channels.

    Raises:
        ValueError: fewer than three dimensions, or sides that r does not divide.
    """
    r = downscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-1] % r or self.shape[-2] % r:
        raise ValueError(f"pixel_unshuffle by {r} does not fit a tensor of shape {list(self.shape)}")
    *outer, channels, height, width = self.shape
    parts = self.unflatten(-1, (width // r, r)).unflatten(-3, (height // r, r)).movedim((-3, -1), (-4, -3))
    return copied(parts).view(*outer, channels * r * r, height // r, width // r)


def channel_shuffle(self: torch.Tensor, groups: int) -> torch.Tensor:
    """Channels, dimension 1, dealt out anew: group by group becomes one of each group in turn.

    Raises:
        ValueError: fewer than three dimensions, or channels that ``groups`` does not divide.
    """
    if self.ndim < 3 or groups < 1 or self.shape[1] % groups:
        raise ValueError(f"{groups} groups do not fit a tensor of shape {list(self.shape)}")
    dealt = self.unflatten(1, (groups, self.shape[1] // groups)).transpose(1, 2)
    return copied(dealt).view(self.shape)
