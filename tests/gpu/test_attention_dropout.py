"""The dropouts of memory-efficient and of flash attention are torch's own."""

from __future__ import annotations

import os

import pytest
import torch

from opsmith.evaluation import philox
from opsmith.kernels import attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]

aten = torch.ops.aten
#: B, H, M, N.
SIZES = (2, 3, 37, 150)


def test_the_oracles_words_are_torchs() -> None:
    """By the op that torch has for its own tests."""
    uniform = torch.empty(SIZES, device="cuda")
    aten._fill_mem_eff_dropout_mask_(uniform, 0.3, 11, 20)
    assert torch.equal(uniform.flatten(), philox.uniform(11, 20, uniform.numel(), uniform.device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_state_of_the_generator_drops_the_same(dtype: torch.dtype) -> None:
    """And leaves the generator in the same state; gradients follow the state that comes back."""
    batch, heads, queries, keys = SIZES
    generator = torch.Generator("cuda").manual_seed(3)
    q, k, v, grad = (
        torch.randn(batch, heads, rows, 32, device="cuda", generator=generator).to(dtype)
        for rows in (queries, keys, keys, queries)
    )
    results = []
    for function in (aten._scaled_dot_product_efficient_attention, attention.scaled_dot_product_efficient_attention):
        torch.cuda.manual_seed(5)
        results.append((*function(q, k, v, None, True, 0.3, False), torch.rand(4, device="cuda")))
    (out, lse, *state, after), (actual, _, *own_state, own_after) = results
    assert [each.item() for each in state] == [each.item() for each in own_state]
    assert torch.equal(after, own_after)
    limit = 2e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(actual, out, rtol=limit, atol=limit)
    call = grad, q, k, v, None, out, lse, *state, 0.3, [True, True, True, False]
    expected = aten._scaled_dot_product_efficient_attention_backward(*call)
    gradients = attention.scaled_dot_product_efficient_attention_backward(*call)
    for mine, theirs in zip(gradients[:3], expected[:3], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=limit, atol=limit)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(4, 4, 3, 6), (4, 4, 11, 32)])
def test_float32_drops_and_scales_as_torch_where_a_query_looks_at_one_key(
    sizes: tuple[int, int, int, int], *, causal: bool
) -> None:
    """As OpInfo has it, scores in the tens: what a dropout leaves is nothing or twice a value, to the last digits."""
    batch, heads, queries, keys = sizes
    generator = torch.Generator("cuda").manual_seed(3)
    q, k, v = (
        torch.empty(batch, heads, rows, 8, device="cuda").uniform_(-9, 9, generator=generator)
        for rows in (queries, keys, keys)
    )
    for seed in range(64):
        results = []
        for function in (
            aten._scaled_dot_product_efficient_attention,
            attention.scaled_dot_product_efficient_attention,
        ):
            torch.cuda.manual_seed(seed)
            results.append(function(q, k, v, None, seed % 2 == 0, 0.5, causal)[0])
        torch.testing.assert_close(results[1], results[0], rtol=2e-5, atol=5e-4)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_the_inner_overload_drops_the_same(kind: int) -> None:
    """With both kinds of masks, of rows before heads that have gaps."""
    packed = torch.randn(4, 11, 4, 22, device="cuda")
    q, (k, v) = packed[..., :8], (torch.randn(4, 32, 4, 8, device="cuda") for _ in range(2))
    results = []
    for function in (aten._efficient_attention_forward, attention.efficient_attention_forward):
        torch.cuda.manual_seed(5)
        results.append(function(q, k, v, None, None, None, None, None, 0.5, kind, True, scale=1.0)[0])
    torch.testing.assert_close(results[1], results[0], rtol=2e-5, atol=2e-5)


#: B, H, heads of keys, M, N, D: heads of every size that torch has tiles of its own for, rows that fill none of them.
FLASH_SIZES = [
    (2, 3, 3, 37, 150, 32),
    (2, 4, 2, 200, 333, 64),
    (1, 2, 2, 130, 70, 96),
    (1, 2, 2, 257, 257, 128),
    (1, 2, 1, 65, 300, 160),
    (1, 2, 2, 129, 190, 192),
    (1, 2, 2, 100, 513, 256),
    (2, 4, 2, 1, 100, 64),
]


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.83])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", FLASH_SIZES)
def test_one_state_of_the_generator_drops_the_same_in_flash_attention(
    sizes: tuple[int, ...], *, causal: bool, probability: float
) -> None:
    """And leaves the generator in the same state; gradients of either follow the state of the other."""
    batch, heads, key_heads, queries, keys, size = sizes
    generator = torch.Generator("cuda").manual_seed(3)
    forms = (heads, queries), (key_heads, keys), (key_heads, keys), (heads, queries)
    q, k, v, grad = (
        torch.randn(batch, rows, count, size, device="cuda", generator=generator).bfloat16().transpose(1, 2)
        for count, rows in forms
    )
    results = []
    for function in (aten._scaled_dot_product_flash_attention, attention.scaled_dot_product_flash_attention):
        torch.cuda.manual_seed(5)
        torch.rand(3, device="cuda")
        results.append((*function(q, k, v, probability, causal), torch.rand(4, device="cuda")))
    (out, lse, *_, state, unused, _, after), (actual, _, *_, own_state, _, _, own_after) = results
    assert torch.equal(state.view(torch.int64), own_state.view(torch.int64))
    assert torch.equal(after, own_after)
    torch.testing.assert_close(actual, out, rtol=3e-2, atol=3e-2)
    call = grad, q, k, v, out, lse, None, None, queries, keys, probability, causal
    expected = aten._scaled_dot_product_flash_attention_backward(*call, state, unused)
    gradients = attention.scaled_dot_product_flash_attention_backward(*call, own_state, unused)
    for mine, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=5e-2, atol=5e-2)


def test_the_judges_bytes_are_those_of_flash_attention() -> None:
    """With one column of a value for each key, the result says which weights stayed: all are alike."""
    batch, heads, queries, keys, size = 2, 3, 50, 64, 64
    q, k = (torch.zeros(batch, heads, rows, size, device="cuda", dtype=torch.float16) for rows in (queries, keys))
    v = torch.eye(keys, device="cuda", dtype=torch.float16).expand(batch, heads, keys, size).contiguous()
    torch.cuda.manual_seed(11)
    out, *rest = aten._scaled_dot_product_flash_attention(q, k, v, 0.3, False)
    seed, offset = map(int, rest[5].tolist())
    found = philox.flash_bytes(seed, offset, batch * heads, range(queries), keys, q.device)
    assert torch.equal(out.flatten(0, 1) > 0, found <= int(0.7 * 255))


def test_gradients_in_float16_are_finite_where_torchs_are() -> None:
    """Gradients of scores exceed 65504 before they are scaled."""
    generator = torch.Generator("cuda").manual_seed(3)
    shapes = (2, 16, 512, 72), (2, 16, 300, 72), (2, 16, 300, 72), (2, 16, 512, 72)
    raw = [torch.randn(shape, device="cuda", generator=generator) for shape in shapes]
    q, k, v, grad = ((x * by).half() for x, by in zip(raw, (0.05, 0.05, 1000, 1000), strict=True))
    bias = torch.randn(2, 16, 512, 304, device="cuda", generator=generator).half()[..., :300]
    out, lse, *state = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)
    call = grad, q, k, v, bias, out, lse, *state, 0.0, [True, True, True, False]
    expected = aten._scaled_dot_product_efficient_attention_backward(*call)
    gradients = attention.scaled_dot_product_efficient_attention_backward(*call)
    for mine, theirs in zip(gradients[:3], expected[:3], strict=True):
        assert bool(theirs.isfinite().all())
        limit = 1e-2 * theirs.abs().max().item()
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=limit)
