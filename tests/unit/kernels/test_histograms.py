from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values

NAN = float("nan")


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_in_one_dimension(*, weighted: bool, density: bool) -> None:
    """Between given edges or even ones; each element has its weight."""
    x = values(20, 7).t()
    options = {"weight": values(7, 20).abs() if weighted else None, "density": density}
    assert_as_eager("histogram.bin_ct", x, 5, **options)
    assert_as_eager("histogram.bin_ct", x, 5, range=[-1.0, 2.0], **options)
    assert_as_eager("histogram.bins_tensor", x, torch.tensor([-2.0, -1.5, 0.0, 4.0]), **options)


def test_ends_and_what_lies_outside() -> None:
    """The last edge belongs to the last bin; NaN belongs to none."""
    x = torch.tensor([0.0, 1.0, 2.0, 3.0, 3.5, -1.0, NAN])
    assert_as_eager("histogram.bin_ct", x, 3, range=[0.0, 3.0])
    assert_as_eager("histogram.bin_ct", torch.ones(3), 4)
    assert_as_eager("histogram.bin_ct", values(0), 4)
    with pytest.raises(ValueError, match="ends"):
        kernel("histogram.bin_ct")(x, 4)
    with pytest.raises(ValueError, match="at least one bin"):
        kernel("histogram.bin_ct")(x[:3], 0)
    with pytest.raises(TypeError, match="float32"):
        kernel("histogram.bins_tensor")(x, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("density", [False, True])
def test_histograms_in_several_dimensions(*, density: bool) -> None:
    """A bin for each combination."""
    x, bins = values(40, 2, 3, dtype=torch.float64), [2, 3, 4]
    assert_as_eager("_histogramdd_from_bin_cts.default", x, bins, density=density)
    edges = kernel("_histogramdd_bin_edges.default")(x, bins)
    torch.testing.assert_close(edges, eager("_histogramdd_bin_edges.default")(x, bins))
    assert_as_eager("_histogramdd_from_bin_tensors.default", x, edges, weight=x[..., 0].abs(), density=density)
