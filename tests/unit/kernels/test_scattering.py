"""Writes where an index tensor says, against eager."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, layouts, values


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_of_every_layout_are_put_to(dtype: torch.dtype, *, accumulate: bool) -> None:
    """Places are counted in row-major order, whatever the strides."""
    index, source = torch.tensor([[0, -1], [7, 3]]).t(), values(2, 4, dtype=dtype)[:, ::2]
    for name, x in layouts(3, 4, dtype=dtype).items():
        assert_as_eager("put.default", x, index, source, accumulate)
        if name != "expanded":
            ours, eagers = x.clone(), x.clone()
            assert kernel("put_.default")(ours, index, source, accumulate) is ours
            torch.testing.assert_close(ours, eager("put_.default")(eagers, index, source, accumulate))
    assert_as_eager("put.default", values(3, 2).t(), torch.tensor([], dtype=torch.int64), torch.empty(0), accumulate)
