"""Reads and writes of tiles whose lanes run along the columns.

Triton gives neighbouring lanes the dimension in which it knows of the longest run of neighbours in memory. It knows of
none where columns are counted in images of a size that 16 does not divide, lie two apart, or are found in a table.
Then Triton 3.7 takes the last dimension and 3.6 the first: a warp that wrote 64 bytes of a row writes 2 bytes of 32
rows. For a convolution of 32 x 1024 x 10 x 10 to 1536 channels on an H200 those stores took most of 143 us.

So for 3.6 such a tile is transposed, accessed and transposed back, which moves nothing: it is a matter of which lane
has what. Where Triton does know of neighbours, both ways are the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .launch import INTERPRETED

_FIRST_WINS = tl.constexpr(not INTERPRETED and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7))


@triton.jit
def lanes_first(x_RC: tl.tensor) -> tl.tensor:
    """``x`` with the columns in the dimension that Triton prefers, and back again."""
    if _FIRST_WINS:
        x_RC = tl.trans(x_RC)
    return x_RC


@triton.jit
def load_along_columns(ptr_RC: tl.tensor, mask_RC: tl.tensor, OTHER: tl.constexpr = 0) -> tl.tensor:
    """``tl.load``, OTHER where the mask is not set."""
    return lanes_first(tl.load(lanes_first(ptr_RC), mask=lanes_first(mask_RC), other=OTHER))


@triton.jit
def store_along_columns(ptr_RC: tl.tensor, x_RC: tl.tensor, mask_RC: tl.tensor) -> None:
    """``tl.store``."""
    tl.store(lanes_first(ptr_RC), lanes_first(x_RC), mask=lanes_first(mask_RC))


@triton.jit
def add_along_columns(ptr_RC: tl.tensor, x_RC: tl.tensor, mask_RC: tl.tensor) -> None:
    """``tl.atomic_add``, in no order with other accesses."""
    tl.atomic_add(lanes_first(ptr_RC), lanes_first(x_RC), mask=lanes_first(mask_RC), sem="relaxed")


@triton.jit
def first_in_lane(x_IML: tl.tensor) -> tl.tensor:
    """``x`` with neighbours in L for neighbouring lanes, then those in M, so that a lane has all of I; and back."""
    if _FIRST_WINS:
        x_IML = tl.permute(x_IML, (1, 0, 2))
    return x_IML


@triton.jit
def load_first_in_lane(ptr_IML: tl.tensor, mask_IML: tl.tensor, OTHER: tl.constexpr = 0) -> tl.tensor:
    """``tl.load``, OTHER where the mask is not set."""
    return first_in_lane(tl.load(first_in_lane(ptr_IML), mask=first_in_lane(mask_IML), other=OTHER))


@triton.jit
def store_first_in_lane(ptr_IML: tl.tensor, x_IML: tl.tensor, mask_IML: tl.tensor) -> None:
    """``tl.store``."""
    tl.store(first_in_lane(ptr_IML), first_in_lane(x_IML), mask=first_in_lane(mask_IML))
