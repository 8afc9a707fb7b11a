"""Indexing where a mask holds: elsewhere the indices may be out of range, and nothing is read or added.

The kernels of :mod:`.gathering` and :mod:`.scattering` leave out what is out of range; what a mask adds is one
elementwise pass over the ``numel`` elements that are named, ``(2 * itemsize + 1) * numel`` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.elementwise import map_elements
from ..common.launch import require_served
from ..pointwise.basic import where_of
from .gathering import index
from .scattering import index_put


def unsafe_masked_index(
    self: torch.Tensor,
    mask: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    fill: float,
) -> torch.Tensor:
    """``self[indices]`` where the mask holds, else ``fill``; the mask broadcasts to the result.

    Raises:
        IndexError: indices that do not fit.
        NotImplementedError: a tensor that is not served.
    """
    require_served(self, mask)
    taken = index(self, indices)
    return map_elements(where_of, [mask, taken, fill], [mask.dtype, self.dtype, self.dtype], self.dtype)


def unsafe_masked_index_put_accumulate(
    self: torch.Tensor, mask: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor
) -> torch.Tensor:
    """``self`` with ``values`` added at ``self[indices]`` where the mask holds; both broadcast.

    Raises:
        IndexError: indices that do not fit.
        TypeError: two types.
        NotImplementedError: a tensor that is not served.
    """
    require_served(self, mask, values)
    added = map_elements(where_of, [mask, values, 0], [mask.dtype, values.dtype, values.dtype], values.dtype)
    return index_put(self, indices, added, accumulate=True)
