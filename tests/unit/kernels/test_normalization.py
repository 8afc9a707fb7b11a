from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, eager, kernel, layouts, small_tiles, values

LAYER_NORM = "native_layer_norm.default"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tail", [[6], [5, 6], [4, 5, 6]])
def test_layer_norm_agrees_with_eager_in_every_layout(dtype: torch.dtype, tail: list[int]) -> None:
    """Output, mean and rstd, with and without weight and bias."""
    weight, bias = values(*tail, dtype=dtype), values(*tail, dtype=dtype)
    for x in layouts(4, 5, 6, dtype=dtype).values():
        assert_as_eager(LAYER_NORM, x, tail, weight, bias, 1e-5)
        assert_as_eager(LAYER_NORM, x, tail, None, bias, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_have_the_parameters_type_on_a_cpu(dtype: torch.dtype) -> None:
    """float32 parameters of a half input give float32 statistics, half parameters half ones."""
    x, weight = values(6, 32, dtype=dtype), values(32)
    assert_as_eager(LAYER_NORM, x, [32], weight, weight, 1e-5)
    assert_as_eager(LAYER_NORM, x, [32], weight.to(dtype), None, 1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_rows_and_no_rows(shape: tuple[int, int]) -> None:
    """An empty row has mean 0 and no deviation."""
    assert_as_eager(LAYER_NORM, values(*shape), [shape[1]], None, None, 1e-5)


@pytest.mark.parametrize("block", [64, 16])
def test_a_large_mean_does_not_cancel_the_variance(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Deviations of 1 around 10,000, in one piece and in four; in E[x^2] - E[x]^2 float32 has no digit of them."""
    small_tiles(monkeypatch, block)
    x = values(5, 64, scale=1) + 10_000
    expected = eager(LAYER_NORM)(x.double(), [64], None, None, 1e-5)[2].float()
    torch.testing.assert_close(kernel(LAYER_NORM)(x, [64], None, None, 1e-5)[2], expected, rtol=1e-3, atol=0)


def test_long_rows_are_merged_from_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 16 in rows of 100, the last one short."""
    small_tiles(monkeypatch, 16)
    for dtype in FLOATS:
        assert_as_eager(LAYER_NORM, values(7, 100, dtype=dtype), [100], values(100, dtype=dtype), None, 1e-5)


@pytest.mark.parametrize("tail", [[], [3], [4, 6]])
def test_shapes_that_do_not_fit_are_refused(tail: list[int]) -> None:
    """As in eager."""
    for layer_norm in (eager(LAYER_NORM), kernel(LAYER_NORM)):
        with pytest.raises((RuntimeError, ValueError)):
            layer_norm(torch.ones(5, 6), tail, None, None, 1e-5)


def test_batch_norm_by_cudnns_name_normalizes_with_the_running_statistics() -> None:
    """In inference; in training cuDNN reserves what only its backward pass can read, so that is declined."""
    x, weight, bias, mean = values(4, 6, 5, 3), values(6), values(6), values(6)
    var = values(6).abs() + 0.5
    out, *rest = kernel("cudnn_batch_norm.default")(x, weight, bias, mean, var, False, 0.1, 1e-5)
    torch.testing.assert_close(out, torch.nn.functional.batch_norm(x, mean, var, weight, bias))
    assert [0, 0, 0] == [one.numel() for one in rest]
    with pytest.raises(NotImplementedError, match="reserves"):
        kernel("cudnn_batch_norm.default")(x, weight, bias, mean, var, True, 0.1, 1e-5)


def test_its_gradient_is_that_of_batch_norm_in_training() -> None:
    """From the statistics that were saved."""
    x, grad, weight = values(4, 6, 5), values(4, 6, 5) + 1, values(6)
    _, mean, rstd = eager("native_batch_norm.default")(x, weight, None, None, None, True, 0.1, 1e-5)
    expected = eager("native_batch_norm_backward.default")(
        grad, x, weight, None, None, mean, rstd, True, 1e-5, [True] * 3
    )
    actual = kernel("cudnn_batch_norm_backward.default")(
        x, grad, weight, None, None, mean, rstd, 1e-5, torch.empty(0, dtype=torch.uint8)
    )
    torch.testing.assert_close(actual, expected)
