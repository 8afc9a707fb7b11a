"""Writes where an index tensor says, against eager."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, layouts, values

from opsmith.kernels import scattering


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


FEW = torch.tensor([5, 0, 5, 29])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_few_elements_of_a_large_tensor_are_combined(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only they go through a workspace, which nothing else is written to; some are named twice, some from the end."""
    copies: list[torch.Size] = []
    monkeypatch.setattr(scattering, "map_into", lambda out, *_: copies.append(out.shape))
    index, source, rows = FEW[:, None].expand(4, 3), values(4, 3, dtype=dtype), values(4, 6, dtype=dtype)
    for x in (values(40, 6, dtype=dtype), values(40, 12, dtype=dtype)[:, ::2]):
        assert_as_eager("scatter_add.default", x, 0, index, source)
        assert_as_eager("scatter_reduce.two", x, 0, index, source, "prod")
        assert_as_eager("index_put.default", x, [FEW - 30, None], rows, True)
        assert_as_eager("index_add.default", x, 0, FEW, rows, alpha=2)
    for ours in (values(40, 6, dtype=dtype), values(6, 40, dtype=dtype).t(), values(40, 12, dtype=dtype)[:, ::2]):
        expected = eager("scatter_add.default")(ours, 0, index, source)
        assert kernel("scatter_add_.default")(ours, 0, index, source) is ours
        torch.testing.assert_close(ours, expected)
    assert not copies


def test_few_sums_of_half_types_are_rounded_once() -> None:
    """64 times a 4096th: each alone would be lost in bfloat16."""
    x, source = torch.ones(1000, dtype=torch.bfloat16), torch.full((64,), 2.0**-12, dtype=torch.bfloat16)
    kernel("index_add_.default")(x, 0, torch.full((64,), 8), source)
    assert [1, 1 + 2.0**-6, 1] == x[7:10].tolist()
