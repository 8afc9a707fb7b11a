"""Logarithms of attention's weights over many blocks of keys, where an error of each block would add up."""

from __future__ import annotations

import os

import pytest
import torch

from opsmith.kernels.attention import attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]
QUERIES, KEYS, SIZE = 16_384, 56_320, 128


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logarithms_over_many_keys_are_those_of_float64(dtype: torch.dtype) -> None:
    """So many queries that keys are not split; scores of up to 20."""
    generator = torch.Generator("cuda").manual_seed(3)
    q, k, v = (
        (2.2 * torch.randn(1, 2, rows, SIZE, device="cuda", generator=generator)).to(dtype)
        for rows in (QUERIES, KEYS, KEYS)
    )
    _, found, *_ = attention.scaled_dot_product_flash_attention(q, k, v)
    assert isinstance(found, torch.Tensor)
    scores = q[:, :, ::512].double() @ k.double().mT / SIZE**0.5
    torch.testing.assert_close(found[:, :, ::512].double(), scores.logsumexp(-1), rtol=0, atol=2e-5)
