"""Reads and writes of tiles whose lanes run along the columns.

Triton gives neighbouring lanes the dimension in which it knows of the longest run of neighbours in memory. It knows of
none where columns are counted in images of a size that 16 does not divide, or lie two apart. Then Triton 3.7 takes the
last dimension and 3.6 the first: a warp that wrote 64 bytes of a row writes 2 bytes of 32 rows. For a convolution of
32 x 1024 x 10 x 10 to 1536 channels on an H200 those stores took most of 143 us.

So for 3.6 such a tile is turned, accessed and turned back, which moves nothing: it is a matter of which lane has what.
Where Triton does know of neighbours, both ways are the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .launch import INTERPRETED

_FIRST_WINS = tl.constexpr(not INTERPRETED and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7))


@triton.jit
def load_along_columns(ptr_RC: tl.tensor, mask_RC: tl.tensor) -> tl.tensor:
    """``tl.load``, 0 where the mask is not set."""
    if _FIRST_WINS:
        x_RC = tl.trans(tl.load(tl.trans(ptr_RC), mask=tl.trans(mask_RC), other=0))
    else:
        x_RC = tl.load(ptr_RC, mask=mask_RC, other=0)
    return x_RC


@triton.jit
def store_along_columns(ptr_RC: tl.tensor, x_RC: tl.tensor, mask_RC: tl.tensor) -> None:
    """``tl.store``."""
    if _FIRST_WINS:
        tl.store(tl.trans(ptr_RC), tl.trans(x_RC), mask=tl.trans(mask_RC))
    else:
        tl.store(ptr_RC, x_RC, mask=mask_RC)
