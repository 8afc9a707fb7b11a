"""Rows of a tensor, after FlagGems' ``dim_compress``: reduced dimensions are moved behind the others and made dense."""

import math

import torch
import triton


def normalized(dims, rank):
    """Dimensions as sorted numbers from 0; all of them where none is named.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: one is named twice.
    """
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    dims = [dims] if isinstance(dims, int) else list(dims)
    places = max(rank, 1)
    for dim in dims:
        if not -places <= dim < places:
            raise IndexError(f"there is no dimension {dim} among {rank}")
    found = [dim % places for dim in dims]
    if len(set(found)) < len(found):
        raise RuntimeError("a dimension is named twice")
    return sorted(found) if rank else []


def as_rows(x, dims):
    """A dense matrix whose rows are reduced, from dimensions as :func:`normalized` gives them."""
    kept = [d for d in range(x.dim()) if d not in dims]
    columns = math.prod(x.shape[d] for d in dims)
    rows = math.prod(x.shape[d] for d in kept)
    return x.permute(*kept, *dims).contiguous().view(rows, columns) if x.dim() else x.reshape(1, 1).contiguous()


def reduced_shape(x, dims, keepdim):
    """The shape of what is reduced."""
    if keepdim:
        return [1 if d in dims else n for d, n in enumerate(x.shape)]
    return [n for d, n in enumerate(x.shape) if d not in dims]


def tile(rows, columns, most=2048):
    """Rows and columns of a block: as much of a row as fits, and rows up to ``most`` elements."""
    wide = min(triton.next_power_of_2(max(columns, 1)), most)
    return min(triton.next_power_of_2(max(rows, 1)), max(1, most // wide)), wide


def accumulated(dtype):
    """In which type a result is kept between two kernels."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
