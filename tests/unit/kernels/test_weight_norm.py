from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, values

CASES = [((5, 7), 0), ((5, 7), 1), ((3, 4, 5), 2), ((6,), 0), ((8, 1), 0), ((20, 10, 3, 3), 0)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "dim"), CASES)
def test_weight_norm_and_its_gradients_are_those_of_eager(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    """A norm for each slice, in float32 for half types."""
    v, g = values(*shape, dtype=dtype), values(*(size if d == dim else 1 for d, size in enumerate(shape)), dtype=dtype)
    assert_as_eager("_weight_norm_interface.default", v, g, dim)
    norms = torch.ops.aten._weight_norm_interface(v, g, dim)[1]
    assert_as_eager("_weight_norm_interface_backward.default", v.flip(0) * 2, v, g, norms, dim)
