"""A tiled Triton product with the bias in its epilogue."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K: tl.constexpr, TILE: tl.constexpr):
    m = (tl.program_id(0) * TILE + tl.arange(0, TILE))[:, None]
    n = (tl.program_id(1) * TILE + tl.arange(0, TILE))[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, K, TILE):
        k = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    total += tl.load(b_ptr + n, mask=n < N, other=0.0)
    tl.store(y_ptr + m * N + n, total, mask=(m < M) & (n < N))


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_in, features_out))
        self.bias = nn.Parameter(torch.empty(features_out))

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.weight.shape[1]
        y = torch.empty(M, N, device=x.device)
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        matmul_kernel[grid](x, self.weight, self.bias, y, M, N, K, TILE=16)
        return y
