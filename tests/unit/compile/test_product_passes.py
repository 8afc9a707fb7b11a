"""Passes over products of matrices: less work, the same values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from tests.graphs import Outcome, outcome
from torch import Tensor, nn

from opsmith.compile import choose_passes

pytestmark = pytest.mark.slow


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _compiled(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    name: str,
    *,
    gradients: bool = True,
    dynamic: bool | None = None,
) -> Outcome:
    return outcome(function, inputs, choose_passes(name), gradients=gradients, dynamic=dynamic)


@pytest.fixture
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_FEWEST_ENTRIES", 4), ("_FEWEST_PRODUCTS", 1)):
        monkeypatch.setattr(f"opsmith.compile.traced.triangles.{name}", value)


TRIANGLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tril of a product": lambda a, b: torch.tril(a @ b),
    "tril below the diagonal": lambda a, b: (a @ b).tril(-2),
    "triu of a product": lambda a, b: torch.triu(torch.matmul(a, b)),
    "triu above the diagonal": lambda a, b: torch.triu(a @ b, diagonal=1),
    "tril first": lambda a, b: torch.tril(a) @ b,
    "triu first": lambda a, b: torch.triu(a) @ b,
    "tril second": lambda a, b: a @ torch.tril(b, -1),
    "triu second": lambda a, b: a @ b.triu(),
    "symmetric": lambda a, b: a @ a.transpose(-1, -2) + b,
    "symmetric, transposed first": lambda a, b: a.mT @ a + b,
}


@pytest.mark.parametrize("name", TRIANGLES)
@pytest.mark.parametrize("shape", [(10, 10), (3, 7, 7)])
@pytest.mark.usefixtures("_any_size")
def test_of_a_triangle_only_strips_are_computed(name: str, shape: tuple[int, ...]) -> None:
    """Also where strips are not all of one height."""
    found = _compiled(TRIANGLES[name], [_random(*shape), _random(*shape) + 1], "triangle")
    assert (1, True) == (found.fired, found.targets.count("matmul") == 4)
    found.assert_equal(rtol=1e-5, atol=1e-5)


def test_small_products_and_those_that_need_more_than_a_triangle_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips of a small product would keep no GPU busy; tril(1) needs an entry of the next strip."""
    inputs = [_random(16, 16), _random(16, 16)]
    assert 0 == _compiled(lambda a, b: torch.tril(a @ b), inputs, "triangle", gradients=False).fired
    monkeypatch.setattr("opsmith.compile.traced.triangles._FEWEST_ENTRIES", 4)
    for function in (lambda a, b: torch.tril(a @ b, 1), lambda a, b: a @ b.T, lambda a, b: a @ a + b):
        assert 0 == _compiled(function, inputs, "triangle", gradients=False).fired


CHAINS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "a low-rank update": (lambda x, a, b: x @ (a @ b), [(4, 32), (32, 2), (2, 32)]),
    "a chain that ends in a vector": (lambda a, b, x: (a @ b) @ x, [(16, 16), (16, 16), (16,)]),
    "a vector first": (lambda x, a, b: x @ (a @ b), [(16,), (16, 16), (16, 16)]),
    "attention without a softmax": (
        lambda q, k, v: (q @ k.transpose(-1, -2)) @ v,
        [(2, 3, 24, 4), (2, 3, 24, 4), (2, 3, 24, 4)],
    ),
    "a factored weight": (lambda x, up, down: F.linear(x, up @ down, x[0, 0]), [(2, 4, 32), (32, 2), (2, 32)]),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chains_of_products_are_multiplied_in_the_cheaper_order(name: str, dtype: torch.dtype) -> None:
    """With the gradients of all three factors."""
    function, shapes = CHAINS[name]
    found = _compiled(function, [_random(*shape, dtype=dtype) / 4 for shape in shapes], "product_order")
    assert 1 == found.fired
    found.assert_equal(rtol=1e-4, atol=1e-4)


def test_chains_that_are_cheap_already_stay_and_used_products_too() -> None:
    """A product that is needed anyway costs nothing to use."""
    inputs = [_random(4, 32), _random(32, 2), _random(2, 32)]
    assert 0 == _compiled(lambda x, a, b: (x @ a) @ b, inputs, "product_order", gradients=False).fired

    def used_twice(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        weight = a @ b
        return x @ weight + weight.sum()

    assert 0 == _compiled(used_twice, inputs, "product_order", gradients=False).fired


def test_the_cheaper_order_is_known_where_it_is_so_for_every_size() -> None:
    """Of symbols, a product is less than half of another for every value or it is not known to be."""
    function, shapes = CHAINS["a low-rank update"]
    inputs = [_random(*shape) for shape in shapes]
    torch._dynamo.mark_dynamic(inputs[0], 0)
    assert 0 == _compiled(function, inputs, "product_order", gradients=False, dynamic=True).fired


DIAGONALS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "rows": (lambda d, x: torch.diag(d) @ x, [(6,), (6, 4)]),
    "columns": (lambda d, x: x @ torch.diag(d), [(6,), (3, 5, 6)]),
    "rows of a batch": (lambda d, x: torch.diag_embed(d) @ x, [(3, 6), (3, 6, 4)]),
    "columns of a batch": (lambda d, x: torch.matmul(x, torch.diag_embed(d)), [(3, 6), (3, 4, 6)]),
    "two diagonals": (lambda d, x: torch.diag(d) @ torch.diag(x), [(6,), (6,)]),
}


@pytest.mark.parametrize("name", DIAGONALS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_with_a_diagonal_matrix_scales(name: str, dtype: torch.dtype) -> None:
    """The one product that is not with zero, bit by bit."""
    function, shapes = DIAGONALS[name]
    found = _compiled(function, [_random(*shape, dtype=dtype) for shape in shapes], "diagonal_product", gradients=False)
    assert (1, False) == (found.fired, "matmul" in found.targets)
    found.assert_equal(rtol=0, atol=0)
    found = _compiled(function, [_random(*shape) for shape in shapes], "diagonal_product")
    found.assert_equal(rtol=1e-5, atol=1e-5)


def test_another_diagonal_than_the_main_one_stays() -> None:
    """And the diagonal of a matrix is no matrix."""

    def function(d: Tensor, x: Tensor) -> Tensor:
        return torch.diag(d, 1) @ x[:1].expand(7, -1) + torch.diag(x) @ x

    assert 0 == _compiled(function, [_random(6), _random(6, 6)], "diagonal_product", gradients=False).fired


@pytest.mark.parametrize("pool", [nn.AvgPool2d(2), nn.AvgPool2d((3, 2), stride=(2, 3))])
@pytest.mark.parametrize("groups", [1, 2])
def test_pooling_comes_before_a_convolution_of_one_tap(pool: nn.Module, groups: int) -> None:
    """With the gradients of its weight and bias, for any batch."""

    def transition(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return pool(F.conv2d(x, weight, bias, groups=groups))  # type: ignore[no-any-return]

    inputs = [_random(3, 8, 9, 12), _random(4, 8 // groups, 1, 1), _random(4)]
    found = _compiled(transition, inputs, "pooled_convolution")
    assert 1 == found.fired
    found.assert_equal(rtol=1e-4, atol=1e-5)
    torch._dynamo.mark_dynamic(inputs[0], 0)
    assert 1 == _compiled(transition, inputs, "pooled_convolution", gradients=False).fired


@pytest.mark.parametrize(
    ("convolution", "pool", "dtype"),
    [
        (nn.Conv2d(8, 4, 1), nn.AvgPool2d(2), torch.bfloat16),
        (nn.Conv2d(8, 4, 1), nn.AvgPool2d(2, padding=1), torch.float32),
        (nn.Conv2d(8, 4, 1), nn.AvgPool2d(2, ceil_mode=True), torch.float32),
        (nn.Conv2d(8, 4, 1), nn.AvgPool2d(3, stride=1), torch.float32),
        (nn.Conv2d(64, 64, 3, padding=1), nn.AvgPool2d(2), torch.float32),
        (nn.Conv2d(8, 4, 3, dilation=2), nn.AvgPool2d(4), torch.float32),
        (nn.Conv2d(8, 4, 3, stride=2), nn.AvgPool2d(3), torch.float32),
        (nn.ConvTranspose2d(8, 4, 3, stride=2), nn.AvgPool2d(3), torch.float32),
        (nn.Conv2d(8, 1, 1), nn.AvgPool2d(2), torch.float32),
    ],
)
def test_pooling_that_would_be_less_exact_or_no_cheaper_stays(
    convolution: nn.Module, pool: nn.Module, dtype: torch.dtype
) -> None:
    """Half precision, windows that reach out, too much work, taps that do not meet, many more channels."""
    model = nn.Sequential(convolution, pool).to(dtype)
    channels = int(convolution.in_channels)  # type: ignore[arg-type]
    found = _compiled(model, [_random(3, channels, 8, 12, dtype=dtype)], "pooled_convolution", gradients=False)
    assert 0 == found.fired


POOLED: dict[str, tuple[nn.Module, nn.Module, tuple[int, ...]]] = {
    "padded": (nn.Conv2d(4, 6, 3, padding=1), nn.AvgPool2d(4), (12, 16)),
    "a rest that no window has": (nn.Conv2d(4, 6, (3, 2), padding=1), nn.AvgPool2d((3, 4)), (12, 17)),
    "windows that overlap": (nn.Conv1d(4, 6, 3), nn.AvgPool1d(5, stride=4), (23,)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.AvgPool2d(4), (12, 16)),
    "a volume": (nn.Conv3d(4, 6, 3, padding=1), nn.AvgPool3d(2), (6, 6, 7)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), nn.AvgPool2d(2), (6, 7)),
    "transposed, far padding": (nn.ConvTranspose2d(4, 6, 2, stride=2, padding=3), nn.AvgPool2d(2), (6, 7)),
    "transposed, longer": (nn.ConvTranspose1d(4, 6, 5, stride=3, output_padding=2), nn.AvgPool1d(6), (8,)),
    "transposed, groups": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), nn.AvgPool2d(4), (6, 7)),
    "a transposed volume": (nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1), nn.AvgPool3d(2), (3, 4, 5)),
}


@pytest.mark.parametrize("name", POOLED)
def test_pooling_becomes_part_of_a_convolution(name: str) -> None:
    """With the gradients of inputs, weights and biases; scales and shifts of channels come afterwards."""
    layer, pool, sizes = POOLED[name]
    names = [one for one, _ in layer.named_parameters()]

    def function(x: Tensor, scale: Tensor, *given: Tensor) -> Tensor:
        y = torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,))
        return pool(1 - (y * scale - scale) / 2)  # type: ignore[no-any-return]

    scale = _random(6, *(1,) * len(sizes))
    found = _compiled(
        function, [_random(3, 4, *sizes), scale, *(one.detach() for one in layer.parameters())], "pooled_convolution"
    )
    assert (1, False) == (found.fired, any("pool" in target for target in found.targets))
    found.assert_equal(rtol=1e-4, atol=1e-5)
