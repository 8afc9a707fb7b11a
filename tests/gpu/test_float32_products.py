"""Products of float32 on tensor cores are products of float32."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.kernels.attention import attention_backward, attention_forward
from opsmith.kernels.attention.attention import scaled_dot_product_efficient_attention as efficient_attention
from opsmith.kernels.attention.attention import (
    scaled_dot_product_efficient_attention_backward as efficient_attention_backward,
)
from opsmith.kernels.convolution import implicit_gemm
from opsmith.kernels.convolution.convolution import convolution, convolution_backward
from opsmith.kernels.matmul import matmul

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]


@pytest.fixture(autouse=True)
def float32_alone() -> Iterator[None]:
    """No TF32, neither in products nor in convolutions."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def numbers(*shape: int, positive: bool = False) -> Tensor:
    """Reproducible ones; of one sign, errors of one sign cannot hide."""
    made = torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(sum(shape)))
    return made.abs() if positive else made


def error(result: Tensor, exact: Tensor) -> float:
    """The largest, relative to the largest number."""
    return ((result.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("sizes", [(512, 1024, 384), (300, 70, 301), (64, 4096, 64)])
def test_long_sums_are_as_exact_as_the_librarys(sizes: tuple[int, int, int], turned: str, *, positive: bool) -> None:
    """In every layout, whole tiles and cut ones, with and without splits."""
    rows, terms, columns = sizes
    a = numbers(terms, rows, positive=positive).t() if "a" in turned else numbers(rows, terms, positive=positive)
    b = numbers(columns, terms, positive=positive).t() if "b" in turned else numbers(terms, columns, positive=positive)
    exact = a.double() @ b.double()
    library = error(a @ b, exact)
    with opsmith.enabled(ops="mm.default", device="cuda"):
        assert error(a @ b, exact) <= max(3 * library, 5e-7)


def test_what_is_not_finite_stays_where_it_belongs() -> None:
    """An infinity has no small part; rows and columns without one are numbers as before."""
    a, b = numbers(128, 256), numbers(256, 128) * 1e-3
    a[3, 5], a[7, 9], b[11, 2], a[12] = float("inf"), float("nan"), float("-inf"), 1e38
    expected = (a.double() @ b.double()).float()
    with opsmith.enabled(ops="mm.default", device="cuda"):
        result = a @ b
    torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("plan", matmul.BEFOREHAND)
@pytest.mark.parametrize("sizes", [(512, 1024, 384), (300, 70, 301), (640, 20000, 130)])
@pytest.mark.parametrize("positive", [False, True])
def test_factors_may_be_split_beforehand(
    plan: matmul.ProductPlan, sizes: tuple[int, int, int], *, positive: bool
) -> None:
    """As exact, whatever the layout, with sums in parts, and with what is not finite."""
    rows, terms, columns = sizes
    for turned in (False, True):
        a = numbers(terms, rows, positive=positive).t() if turned else numbers(rows, terms, positive=positive)
        b = numbers(columns, terms, positive=positive).t() if turned else numbers(terms, columns, positive=positive)
        exact = a.double() @ b.double()
        with matmul.PRODUCTS.force(plan):
            assert error(matmul.mm(a, b), exact) <= max(4 * error(a @ b, exact), 5e-7)
    a[3, 5], b[11, 2], a[12] = float("inf"), float("nan"), 1e30
    with matmul.PRODUCTS.force(plan):
        torch.testing.assert_close(matmul.mm(a, b), a @ b, rtol=1e-2, atol=1e-6 * terms, equal_nan=True)


@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions_and_their_gradients_too(kernel: int) -> None:
    """Forward, by the input and by the weight."""
    x, weight = numbers(8, 64, 28, 28).requires_grad_(), numbers(96, 64, kernel, kernel).requires_grad_()
    grad = numbers(8, 96, 29 - kernel, 29 - kernel)

    def results(x: Tensor, weight: Tensor, grad: Tensor) -> list[Tensor]:
        y = torch.nn.functional.conv2d(x, weight)
        return [y, *torch.autograd.grad(y, (x, weight), grad)]

    exact = results(x.double(), weight.double(), grad.double())
    library = results(x, weight, grad)
    with opsmith.enabled(ops="convolution*", device="cuda"):
        ours = results(x, weight, grad)
    for one, theirs, right in zip(ours, library, exact, strict=True):
        assert error(one, right) <= max(3 * error(theirs, right), 5e-7)


@pytest.mark.parametrize("plan", implicit_gemm.BEFOREHAND)
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_factors_of_convolutions_may_be_split_beforehand(
    plan: implicit_gemm.GemmPlan, kernel: int, stride: int
) -> None:
    """As exact, for numbers of one sign; forward, and by the input, with channels that 16 does not divide."""
    x, weight = numbers(8, 70, 28, 28, positive=True), numbers(96, 70, kernel, kernel, positive=True)
    settings = ([stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1)
    exact = torch.ops.aten.convolution(x.double(), weight.double(), None, *settings)
    library = torch.ops.aten.convolution(x, weight, None, *settings)
    grad = numbers(*exact.shape, positive=True)
    wanted = [True, False, False]
    backward = torch.ops.aten.convolution_backward
    by_input = backward(grad.double(), x.double(), weight.double(), None, *settings, wanted)[0]
    with implicit_gemm.IMPLICIT_GEMM.force(plan):
        assert error(convolution(x, weight, None, *settings), exact) <= max(4 * error(library, exact), 5e-7)
        found = convolution_backward(grad, x, weight, None, *settings, wanted)[0]
    assert found is not None
    theirs = backward(grad, x, weight, None, *settings, wanted)[0]
    assert error(found, by_input) <= max(4 * error(theirs, by_input), 5e-7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("columns", "tile"), [(size, tile) for size, tiles in attention_forward.BEFOREHAND.items() for tile in tiles]
)
def test_keys_of_attention_may_be_split_beforehand(
    columns: int, tile: attention_forward.AttentionTile, *, causal: bool
) -> None:
    """As exact as the library's, with a head that is narrower than its tile, and with keys that fill no tile."""
    sizes = (2, 3, 300, columns - 3)
    q, k, v = numbers(*sizes), numbers(2, 3, 333, columns - 3), numbers(2, 3, 333, columns - 5, positive=True)
    scores = q.double() @ k.double().mT / (columns - 3) ** 0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(300, 333, dtype=torch.bool, device="cuda").tril(), float("-inf"))
    exact = scores.softmax(-1) @ v.double()
    library = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    with attention_forward.HEADS.force(tile):
        result = efficient_attention(q, k, v, None, False, 0.0, causal)[0]
    assert error(result, exact) <= max(4 * error(library, exact), 1e-6)


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # The first product of autograd's own thread.
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("by_key", attention_backward.KEYS_BEFOREHAND)
@pytest.mark.parametrize("by_query", attention_backward.QUERIES_BEFOREHAND)
def test_operands_of_attentions_gradients_may_be_split_beforehand(
    by_query: attention_forward.AttentionTile, by_key: attention_forward.AttentionTile, *, causal: bool
) -> None:
    """As exact as the library's; rows and columns fill no tile."""
    q, k, v, grad = (numbers(2, 3, rows, 60) for rows in (300, 333, 333, 300))
    wide = q64, k64, v64 = [x.double().requires_grad_() for x in (q, k, v)]
    attended = torch.nn.functional.scaled_dot_product_attention(q64, k64, v64, is_causal=causal)
    exact = torch.autograd.grad(attended, wide, grad.double())
    aten = torch.ops.aten
    out, lse, *state = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    call = grad, q, k, v, None, out, lse, *state, 0.0, [True, True, True, False], causal
    library = aten._scaled_dot_product_efficient_attention_backward(*call)
    with attention_backward.QUERY_TILES.force(by_query), attention_backward.KEY_TILES.force(by_key):
        results = efficient_attention_backward(*call)
    for found, theirs, right in zip(results[:3], library[:3], exact, strict=True):
        assert found is not None
        assert error(found, right) <= max(4 * error(theirs, right), 1e-6)


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # The first product of autograd's own thread.
@pytest.mark.parametrize("columns", [256, 512])
def test_wide_heads_are_sums_of_parts(columns: int) -> None:
    """Tensor cores cut long sums off, each step of theirs: one sum of 512 terms would be further off."""
    q, k, v, grad = (numbers(4, 2, rows, columns) for rows in (100, 120, 120, 100))
    wide = q64, k64, v64 = [x.double().requires_grad_() for x in (q, k, v)]
    attended = torch.nn.functional.scaled_dot_product_attention(q64, k64, v64)
    exact = [attended.detach(), *torch.autograd.grad(attended, wide, grad.double())]
    aten = torch.ops.aten
    out, lse, *state = aten._scaled_dot_product_efficient_attention(q, k, v, None, True)
    call = grad, q, k, v, None, out, lse, *state, 0.0, [True, True, True, False]
    library = [out, *aten._scaled_dot_product_efficient_attention_backward(*call)[:3]]
    results = [efficient_attention(q, k, v, None, False)[0], *efficient_attention_backward(*call)[:3]]
    for found, theirs, right in zip(results, library, exact, strict=True):
        assert found is not None
        assert error(found, right) <= max(6 * error(theirs, right), 2e-6)


def test_tf32_is_rounded_to_nearest_where_it_is_allowed() -> None:
    """Of numbers cut off the sum is too small, by about a half of 2 ** -10 for each factor."""
    a, b = numbers(256, 1024, positive=True), numbers(1024, 256, positive=True)
    torch.backends.cuda.matmul.allow_tf32 = True
    with opsmith.enabled(ops="mm.default", device="cuda"):
        result = (a @ b).double()
    exact = a.double() @ b.double()
    assert abs(((result - exact) / exact).mean().item()) < 2e-5
    assert error(result, exact) < 1e-3
