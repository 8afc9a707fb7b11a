from __future__ import annotations

import math

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values

REDUCTIONS = ("sum", "mean", "max", "min", "prod")
NAN = math.nan
#: Zeros and NaNs, alone and together, and elements that share an extreme; one segment is empty.
LINE = torch.tensor([1.0, 2, 3, NAN, 0, 5, 0, 3, 3, 0, 4, 0, NAN, NAN])
LENGTHS = torch.tensor([3, 0, 2, 2, 2, 3, 2])


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segments_of_a_line(reduce: str, initial: float | None) -> None:
    """Forward and backward, by lengths and by offsets."""
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)])
    for given in ({"lengths": LENGTHS}, {"offsets": offsets}):
        assert_as_eager("segment_reduce.default", LINE, reduce, **given, initial=initial)
        output = eager("segment_reduce.default")(LINE, reduce, **given, initial=initial)
        assert_as_eager("_segment_reduce_backward.default", values(7), output, LINE, reduce, **given, initial=initial)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segments_along_an_inner_dimension(reduce: str) -> None:
    """Each row has segments of its own; the data may lie in any way."""
    data = values(5, 4, 3).permute(2, 1, 0)
    lengths = torch.tensor([[1, 3], [2, 2], [4, 0]], dtype=torch.int32)
    output = torch.segment_reduce(data, reduce, lengths=lengths, axis=1)
    assert_as_eager("segment_reduce.default", data, reduce, lengths=lengths, axis=1)
    grad = values(5, 2, 3).permute(2, 1, 0)
    assert_as_eager("_segment_reduce_backward.default", grad, output, data, reduce, lengths=lengths, axis=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_half_types_are_rounded_once(dtype: torch.dtype) -> None:
    """A sum of many numbers, against float64."""
    data, lengths = values(900, 2, dtype=dtype).abs(), torch.tensor([600, 300])
    actual = kernel("segment_reduce.default")(data, "sum", lengths=lengths)
    expected = torch.segment_reduce(data.double(), "sum", lengths=lengths).to(dtype)
    torch.testing.assert_close(actual, expected)


def test_what_does_not_fit_is_refused() -> None:
    """Another reduction, no segments, and shapes that do not fit."""
    with pytest.raises(ValueError, match="not by 'median'"):
        kernel("segment_reduce.default")(LINE, "median", lengths=LENGTHS)
    with pytest.raises(ValueError, match="need lengths"):
        kernel("segment_reduce.default")(LINE, "sum")
    with pytest.raises(ValueError, match="up to axis 1"):
        kernel("segment_reduce.default")(values(3, 4), "sum", lengths=LENGTHS, axis=1)
    with pytest.raises(NotImplementedError, match="indices"):
        kernel("segment_reduce.default")(LINE, "sum", indices=LENGTHS)
