"""Passes over Dynamo's graphs: each finds what it should, leaves what it must, and keeps results and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from tests.graphs import Outcome, in_aten, outcome
from torch import Tensor, nn

from opsmith.compile import choose_passes

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 8, 4


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _compiled(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], name: str, *, gradients: bool = True
) -> Outcome:
    return outcome(function, inputs, choose_passes(name), gradients=gradients)


def _heads() -> list[Tensor]:
    return [_random(BATCH, HEADS, LENGTH, WIDTH) + place for place in range(3)]


def _scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v


def _merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)).float() * 0.3
    return (torch.softmax(scores, -1).to(q.dtype) @ v).transpose(1, 2).reshape(BATCH, LENGTH, HEADS * WIDTH)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.tril(torch.ones(LENGTH, LENGTH))
    return (q @ k.transpose(-2, -1)).masked_fill(mask == 0, float("-inf")).softmax(-1) @ v


def _letters(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhid,bhjd->bhij", q, k).mul(0.3).softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def _dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.Dropout(0.5).eval()(F.softmax(q @ k.transpose(-2, -1), dim=-1)) @ v  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("attention", [_scaled, _merged, _causal, _letters, _dropped])
def test_spelled_out_attention_becomes_one_call(attention: Callable[..., Tensor]) -> None:
    """With any scale, cast, einsum, constant causal mask or dropout that does nothing, and with its gradients."""
    found = _compiled(attention, _heads(), "attention")
    assert (1, True) == (found.fired, "scaled_dot_product_attention" in found.targets)
    found.assert_equal()


def test_a_query_without_keys_stays_not_a_number() -> None:
    """Fused attention returns zero there; the spelled-out form divides zero by zero."""
    mask = torch.rand(1, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.6
    mask[..., 3, :] = True

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1)).masked_fill(mask, float("-inf")).softmax(-1) @ v

    def attend_added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1) * 0.5 + mask).softmax(-1) @ v

    added = torch.where(mask, -math.inf, _random(1, 1, LENGTH, LENGTH))
    for function, given in ((attend, mask), (attend_added, added)):
        found = _compiled(function, [*_heads(), given], "attention", gradients=False)
        assert (1, LENGTH * WIDTH * 0 + BATCH * HEADS * WIDTH) == (found.fired, int(found.results[0].isnan().sum()))
        found.assert_equal()


def test_attention_whose_weights_are_used_elsewhere_stays() -> None:
    """The weights would be computed twice."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = F.softmax(q @ k.transpose(-2, -1), dim=-1)
        return (weights @ v).sum() + weights.sum()

    assert 0 == _compiled(attend, _heads(), "attention", gradients=False).fired


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _llama(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _divided(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6) + weight.sum()


@pytest.mark.parametrize("norm", [_rms, _llama, _divided])
def test_a_spelled_out_rms_norm_becomes_one_call(norm: Callable[..., Tensor]) -> None:
    """With or without a weight."""
    found = _compiled(norm, [_random(4, 6, 32), _random(32)], "rms_norm")
    assert (1, True) == (found.fired, "rms_norm" in found.targets)
    found.assert_equal(rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
def test_a_fused_norm_in_bf16_is_at_least_as_near_to_float64(weight_dtype: torch.dtype) -> None:
    """Torch's function rounds once, where the formula rounds at every step."""
    inputs = [_random(4, 6, 32, dtype=torch.bfloat16), _random(32, dtype=weight_dtype)]
    found = _compiled(_llama, inputs, "rms_norm", gradients=False)
    exact = _rms(*(one.double() for one in inputs))
    errors = [(one[0].double() - exact).abs().max() for one in (found.results, found.expected)]
    assert 1 == found.fired
    assert errors[0] <= errors[1]


def _two_means(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return weight * ((x - mean) / torch.sqrt(variance + 1e-5)) + bias


def _biased_variance(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * weight + bias


@pytest.mark.parametrize("norm", [_two_means, _biased_variance])
def test_a_spelled_out_layer_norm_becomes_one_call(norm: Callable[..., Tensor]) -> None:
    """Whichever way its variance is computed."""
    found = _compiled(norm, [_random(4, 6, 32), _random(32), _random(32) + 1], "layer_norm")
    assert (1, True) == (found.fired, "layer_norm" in found.targets)
    found.assert_equal(rtol=1e-5, atol=2e-5)


def test_a_norm_with_another_variance_stays() -> None:
    """Bessel's correction is no layer norm."""

    def norm(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)

    assert 0 == _compiled(norm, [_random(4, 32)], "layer_norm", gradients=False).fired


def _by_hand(x: Tensor) -> Tensor:
    power = torch.exp(x - x.max(dim=1, keepdim=True)[0])
    return power / power.sum(dim=1, keepdim=True)


def _logarithm(x: Tensor) -> Tensor:
    return torch.log(F.softmax(x, dim=-1))


@pytest.mark.parametrize(("function", "name"), [(_by_hand, "softmax"), (_logarithm, "log_softmax")])
def test_a_spelled_out_softmax_becomes_one_call(function: Callable[..., Tensor], name: str) -> None:
    """And its logarithm another."""
    found = _compiled(function, [_random(4, 6, 32)], "softmax")
    assert (1, True) == (found.fired, name in found.targets)
    found.assert_equal(rtol=1e-5, atol=1e-5)


def test_the_logarithm_of_a_softmax_does_not_underflow_any_more() -> None:
    """A probability of e^-200 is zero in float32; its logarithm is -200."""
    found = _compiled(_logarithm, [torch.tensor([[0.0, 200.0]])], "softmax", gradients=False)
    torch.testing.assert_close(found.results[0], torch.tensor([[-200.0, 0.0]]))


def _gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def _gelu_factored(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.tanh(0.7978845608 * x * (1 + 0.044715 * x * x)))


def _gelu_erf(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


@pytest.mark.parametrize("gelu", [_gelu_tanh, _gelu_factored, _gelu_erf])
def test_a_spelled_out_gelu_becomes_one_call(gelu: Callable[..., Tensor]) -> None:
    """In both of its forms."""
    found = _compiled(gelu, [_random(4, 32)], "gelu")
    assert (1, True) == (found.fired, "gelu" in found.targets)
    found.assert_equal()


def test_a_formula_with_another_constant_stays() -> None:
    """0.045 instead of 0.044715 is another function."""

    def nearly(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.045 * x**3)))

    assert 0 == _compiled(nearly, [_random(4, 32)], "gelu", gradients=False).fired


def test_the_likelihood_of_a_log_softmax_becomes_cross_entropy() -> None:
    """With the arguments of the loss."""
    targets = torch.arange(12) % 5

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.nll_loss(F.log_softmax(logits, dim=-1), targets, ignore_index=2, reduction="sum")

    found = _compiled(loss, [_random(12, 5), targets], "cross_entropy")
    assert (1, True) == (found.fired, "cross_entropy" in found.targets)
    found.assert_equal()


def test_complex_rotary_embeddings_become_real_bit_by_bit() -> None:
    """The same sums of the same products."""
    turns = torch.polar(torch.ones(LENGTH, WIDTH // 2), _random(LENGTH, WIDTH // 2))

    def rotate(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    found = _compiled(rotate, [_random(BATCH, HEADS, LENGTH, WIDTH)], "rotary")
    assert (1, False) == (found.fired, "view_as_complex" in found.targets)
    found.assert_equal(rtol=0, atol=0)


@pytest.mark.slow
def test_batch_norm_of_inference_is_folded_into_weights_that_may_change() -> None:
    """And in training it is not: it has gradients and statistics there."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(128, 4), nn.BatchNorm1d(4)),
    ).eval()
    for norm in (model[1], model[5]):
        assert isinstance(norm, nn.BatchNorm2d | nn.BatchNorm1d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    images = _random(256, 3, 6, 6)
    found = _compiled(model, [images], "batch_norm", gradients=False)
    assert (2, False) == (found.fired, "batch_norm" in found.targets)
    found.assert_equal(rtol=1e-5, atol=1e-5)
    assert 0 == _compiled(model, [images], "batch_norm").fired


@pytest.mark.parametrize(("groups", "folded"), [(1, 1), (2, 0)])
def test_batch_norm_is_folded_into_a_transposed_convolution(groups: int, folded: int) -> None:
    """Whose output channels are the weight's second dimension, unless there are groups of them."""
    norm = nn.BatchNorm2d(6)
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, groups=groups), norm).eval()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    found = _compiled(model, [_random(8, 4, 6, 6)], "batch_norm", gradients=False)
    assert folded == found.fired
    found.assert_equal(rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), (3, 8)),
        (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm1d(8), (3, 8, 10)),
        (nn.Conv3d(3, 6, 1), nn.BatchNorm2d(6), (3, 6, 7, 8)),
        (nn.ConvTranspose1d(3, 8, 1), nn.BatchNorm1d(8), (3, 8)),
        (nn.ConvTranspose2d(3, 8, 1), nn.BatchNorm1d(8), (3, 8, 10)),
        (nn.Linear(3, 8), nn.BatchNorm1d(5), (4, 5, 3)),
    ],
)
def test_batch_norm_of_another_dimension_than_the_layers_channels_stays(
    layer: nn.Module, norm: nn.BatchNorm1d | nn.BatchNorm2d, shape: tuple[int, ...]
) -> None:
    """One image without a batch has its channels first, where the norm has a batch."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    found = _compiled(nn.Sequential(layer, norm).eval(), [_random(*shape)], "batch_norm", gradients=False)
    assert 0 == found.fired
    found.assert_equal(rtol=1e-5, atol=1e-5)


def test_batch_norm_after_a_linear_layer_with_one_output_stays() -> None:
    """Its weight is a vector, and the norm's channels are rows of its input."""

    def function(x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.batch_norm(F.linear(x, weight), mean, variance)

    found = outcome(
        function,
        [_random(9, 4, 4), _random(4), _random(4), _random(4).abs() + 0.5],
        choose_passes("batch_norm"),
        gradients=False,
    )
    assert 0 == found.fired
    found.assert_equal()


def test_nothing_is_moved_across_a_write() -> None:
    """The squares are of the tensor before it was written to."""

    def norm(x: Tensor) -> Tensor:
        squares = x.pow(2)
        x.add_(1)
        return x * torch.rsqrt(squares.mean(-1, keepdim=True) + 1e-6)

    found = _compiled(norm, [_random(4, 32)], "rms_norm", gradients=False)
    assert 0 == found.fired
    found.assert_equal()


def _softmax_then_written(x: Tensor) -> Tensor:
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    return (exponentials / exponentials.sum(-1, keepdim=True)).add_(1)


def _log_softmax_then_written(x: Tensor) -> Tensor:
    return torch.softmax(x, -1).log().add_(1)


def _layer_norm_of_what_is_written(x: Tensor) -> Tensor:
    given = x + 0.5
    centred = given - given.mean(-1, keepdim=True)
    result = centred / ((centred**2).mean(-1, keepdim=True) + 1e-5).sqrt()
    given.add_(1)
    return result


def _gelu_of_what_is_written(x: Tensor) -> Tensor:
    given = x * 1.5
    result = given * 0.5 * (1 + torch.erf(given / math.sqrt(2)))
    given.add_(1)
    return result


class _TriangleOfABuffer(nn.Module):
    """A part of its gradient may be computed once more, from what the buffer then holds."""

    square: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("square", _random(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        result = x @ torch.triu(self.square, 1)
        self.square.mul_(0.5)
        return result


@pytest.mark.parametrize(
    "make",
    [
        lambda: _softmax_then_written,
        lambda: _log_softmax_then_written,
        lambda: _layer_norm_of_what_is_written,
        lambda: _gelu_of_what_is_written,
        _TriangleOfABuffer,
    ],
)
def test_a_gradient_that_could_read_what_is_written_later_stays_the_formulas(
    make: Callable[[], Callable[..., Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused call's gradient keeps its input or its result, where the formula's keeps something else."""
    for name in ("_FEWEST_ENTRIES", "_FEWEST_PRODUCTS"):
        monkeypatch.setattr(f"opsmith.compile.traced.triangles.{name}", 1)
    expected, actual = (_gradient(make(), backend) for backend in (None, in_aten(choose_passes())))
    torch.testing.assert_close(actual, expected)


def _gradient(function: Callable[..., Tensor], backend: Any) -> Tensor | None:
    torch._dynamo.reset()
    x = _random(6, 6).requires_grad_()
    run = function if backend is None else torch.compile(function, backend=backend)
    run(x).sin().sum().backward()
    return x.grad


@pytest.mark.slow
def test_patterns_are_found_under_symbolic_sizes() -> None:
    """And one compilation serves other batches and lengths."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.softmax(q @ k.transpose(-2, -1) * 0.5, dim=-1) @ v

    found = outcome(attend, _heads(), choose_passes("attention"), dynamic=True)
    assert 1 == found.fired
    found.assert_equal()


def test_a_fused_call_under_autocast_has_the_dtype_of_before() -> None:
    """Autocast around a model is as in eager mode; where a model switches it itself, patterns stay."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = _compiled(_scaled, _heads(), "attention")
    assert (1, torch.bfloat16) == (found.fired, found.results[0].dtype)
    found.assert_equal(rtol=5e-2, atol=5e-2)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return _scaled(q, k, v)

    def attend_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            turned = q.sin()
        return _scaled(turned, k, v)

    for function, fired in ((attend, 0), (attend_after, 1)):
        found = _compiled(function, _heads(), "attention", gradients=False)
        assert fired == found.fired
        found.assert_equal()


def test_what_is_computed_in_float64_stays_there() -> None:
    """Fused calls have float32 inside."""

    def norm(x: Tensor) -> Tensor:
        wide = x.double()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).float()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.softmax(q @ k.transpose(-2, -1), dim=-1, dtype=torch.float64).float() @ v

    assert "rms_norm" not in _compiled(norm, [_random(4, 32)], "attention", gradients=False).targets
    assert 0 == _compiled(attend, _heads(), "attention", gradients=False).fired
