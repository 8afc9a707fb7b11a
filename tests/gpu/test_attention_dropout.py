"""The dropout of memory-efficient attention is torch's own."""

from __future__ import annotations

import os

import pytest
import torch

from opsmith.evaluation.oracle import philox
from opsmith.kernels.attention import attention

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
