"""Sums of products: taken of the operands, with the values and gradients of before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from tests.graphs import Outcome, outcome
from torch import Tensor, nn

from opsmith.compile import choose_passes

PASS = "reduced_product"


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _compiled(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    *,
    gradients: bool = True,
    dynamic: bool | None = None,
) -> Outcome:
    return outcome(function, inputs, choose_passes(PASS), gradients=gradients, dynamic=dynamic)


def _features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias).sum(-1)


def _scaled_features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (torch.matmul(x, weight.T) / 2).sum(dim=-1, keepdim=True) * 1.5 + bias.sum()


def _shifted_features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = F.dropout(F.linear(x, weight, bias) - bias * 2, 0.5, training=False)
    return torch.mean(3 - y, dim=-1, keepdim=True).tanh() + x


def _rows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (F.linear(x, weight, bias) * bias + x[..., :1]).mean(0)


def _rows_and_features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x @ weight.T + bias).mean((0, -1))


@pytest.mark.slow
@pytest.mark.parametrize("function", [_features, _scaled_features, _shifted_features, _rows, _rows_and_features])
@pytest.mark.parametrize("shape", [(6, 16), (5, 6, 16)])
def test_a_sum_of_a_linear_layer_is_taken_of_its_operands(
    function: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    """Over features, rows or both; scales and what is added in between follow."""
    found = _compiled(function, [_random(*shape), _random(16, 16), _random(16)])
    assert 1 == found.fired
    found.assert_equal(rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [(-1,), (-2,), (-2, -1)])
def test_a_sum_of_a_batched_product_is_taken_of_its_operands(dims: tuple[int, ...]) -> None:
    """Of attention's two factors, for instance."""
    found = _compiled(lambda a, b: torch.matmul(a, b).sum(dims), [_random(2, 3, 6, 4), _random(2, 3, 4, 7)])
    assert 1 == found.fired
    found.assert_equal(rtol=1e-4, atol=1e-4)
    assert 0 == _compiled(lambda a, b: torch.matmul(a, b).sum(0), [_random(2, 6, 4), _random(2, 4, 7)]).fired


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "one tap": (nn.Conv1d(6, 8, 1), (9,)),
    "padded": (nn.Conv2d(6, 8, 3, padding=1), (9, 12)),
    "strided, dilated": (nn.Conv2d(6, 8, (3, 2), stride=(2, 3), padding=(2, 1), dilation=(2, 1)), (9, 12)),
    "strides that leave inputs out": (nn.Conv2d(6, 8, 2, stride=3, bias=False), (9, 12)),
    "taps that meet padding only": (nn.Conv1d(6, 8, 9, padding=8, stride=12), (9,)),
    "groups": (nn.Conv2d(6, 8, 3, groups=2, padding=1), (9, 12)),
    "a volume": (nn.Conv3d(6, 8, 3, padding=1), (5, 6, 7)),
    "transposed": (nn.ConvTranspose2d(6, 8, 3, stride=2), (9, 12)),
    "transposed, cut": (nn.ConvTranspose2d(6, 8, 4, stride=2, padding=(1, 2), output_padding=(1, 0)), (9, 12)),
    "transposed, groups": (nn.ConvTranspose1d(6, 8, 3, stride=2, padding=1, groups=2, dilation=2), (9,)),
    "a transposed volume": (nn.ConvTranspose3d(6, 8, 3, stride=2, padding=1), (3, 4, 5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_a_sum_of_a_convolution_is_taken_of_its_operands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over any dimensions, and with the gradients of inputs, weights and biases."""
    monkeypatch.setattr("opsmith.compile.traced.reduced_products._convolution_pays", lambda *_: True)
    layer, sizes = LAYERS[name]
    x, parameters = _random(4, 6, *sizes), [one.detach() for one in layer.parameters()]
    names = [one for one, _ in layer.named_parameters()]
    positions = tuple(range(2, 2 + len(sizes)))
    for dims in (positions, positions[-1:], (0, 1, positions[0])):

        def function(x: Tensor, *given: Tensor, dims: tuple[int, ...] = dims) -> Tensor:
            y = torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,))
            return (y * 0.5).mean(dims, keepdim=True)  # type: ignore[no-any-return]

        found = _compiled(function, [x, *parameters])
        assert (1, []) == (found.fired, [one.undone for one in found.reports if one.undone])
        found.assert_equal(rtol=1e-4, atol=1e-4)


def _image_sum(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(F.conv2d(x, weight, bias, padding=1) * 2 + bias[:, None, None], (1, 1))


IMAGES = (3, 8, 16, 16), (32, 8, 3, 3), (32,)


@pytest.mark.slow
def test_global_average_pooling_of_a_convolution_is_taken_of_its_input() -> None:
    """For any batch, and only where windows of the input are less than the output."""
    inputs = [_random(*shape) for shape in IMAGES]
    torch._dynamo.mark_dynamic(inputs[0], 0)
    found = _compiled(_image_sum, inputs)
    assert (1, True) == (found.fired, "conv1d" in found.targets)
    found.assert_equal(rtol=1e-4, atol=1e-4)
    depthwise = lambda x, weight: F.conv2d(x, weight, groups=8).mean((2, 3))  # noqa: E731 - as short as the rest
    assert 0 == _compiled(depthwise, [_random(3, 8, 16, 16), _random(8, 1, 3, 3)], gradients=False).fired


@pytest.mark.slow
def test_sums_are_found_under_symbolic_sizes() -> None:
    """Over what is a number, such as a layer's features."""
    inputs = [_random(6, 16), _random(16, 16), _random(16)]
    torch._dynamo.mark_dynamic(inputs[0], 0)
    found = _compiled(_features, inputs)
    assert 1 == found.fired
    found.assert_equal(rtol=1e-4, atol=1e-4)
    assert 0 == _compiled(_rows, inputs, gradients=False).fired


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (_features, ((64, 512), (256, 512), (256,))),
        (lambda x, weight, bias: F.linear(x, weight, bias).mean(0), ((64, 512), (256, 512), (256,))),
        (_image_sum, IMAGES),
    ],
)
def test_the_error_against_float64_does_not_grow(
    function: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]], dtype: torch.dtype
) -> None:
    """The bound of both orders is the same; in half precision the product is not rounded before it is summed."""
    inputs = [_random(*shape, dtype=dtype) for shape in shapes]
    found = _compiled(function, inputs, gradients=False)
    exact = function(*(one.double() for one in inputs))
    errors = [(one[0].double() - exact).norm().item() for one in (found.results, found.expected)]
    allowed = 1.0 if dtype != torch.float32 else 2.0
    assert 1 == found.fired
    assert errors[0] <= allowed * errors[1]


def _used_twice(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = F.linear(x, weight, bias)
    return y.sum(-1) + y.amax()


def _scaled_along(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (F.linear(x, weight) * bias).sum(-1)


def _written_between(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = F.linear(x, weight)
    bias.add_(1)
    return (y + bias).sum(-1)


def _few_rows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x[:3], weight, bias).sum(0)


def _in_another_dtype(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias).sum(-1, dtype=torch.float64)


@pytest.mark.parametrize("function", [_used_twice, _scaled_along, _written_between, _few_rows, _in_another_dtype])
def test_other_sums_stay(function: Callable[..., Tensor]) -> None:
    """The product is needed anyway, the scale is not constant, something is written, or there is nothing to win."""
    found = _compiled(function, [_random(6, 16), _random(16, 16), _random(16)], gradients=False)
    assert 0 == found.fired
    found.assert_equal()


def test_a_convolution_in_half_precision_keeps_its_positions() -> None:
    """A sum over channels would need rounded filters, or a convolution in float32."""
    inputs = [_random(*shape, dtype=torch.bfloat16) for shape in IMAGES]
    assert 0 == _compiled(lambda x, weight, bias: F.conv2d(x, weight, bias).sum(1), inputs, gradients=False).fired


def test_under_autocast_nothing_is_reordered() -> None:
    """It chooses dtypes call by call, so other calls would be computed in others."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = _compiled(_features, [_random(6, 16), _random(16, 16), _random(16)], gradients=False)
    assert 0 == found.fired


def test_not_a_number_stays_not_a_number() -> None:
    """In the rows where it is."""
    x = _random(6, 16)
    x[2, 3] = torch.nan
    found = _compiled(_features, [x, _random(16, 16), _random(16)], gradients=False)
    assert (1, [2]) == (found.fired, found.results[0].isnan().nonzero().flatten().tolist())
    found.assert_equal(rtol=1e-4, atol=1e-4)
