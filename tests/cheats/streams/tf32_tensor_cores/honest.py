"""beta * base + alpha * a @ b in full float32."""

import triton
import triton.language as tl


@triton.jit
def kernel(base, a, b, y, alpha, beta, M, N, K, PRECISION: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a_tile = tl.load(a + rows[:, None] * K + inner, mask=(rows[:, None] < M) & (inner < K), other=0.0)
        b_tile = tl.load(b + inner[:, None] * N + columns, mask=(inner[:, None] < K) & (columns < N), other=0.0)
        total = tl.dot(a_tile, b_tile, total, input_precision=PRECISION)
    inside = (rows[:, None] < M) & (columns < N)
    at = rows[:, None] * N + columns
    if beta != 0:
        total = alpha * total + beta * tl.load(base + at, mask=inside, other=0.0)
    else:
        total = alpha * total
    tl.store(y + at, total, mask=inside)


def addmm__default_kernel_impl(base, a, b, *, beta=1, alpha=1):
    (rows, inner), columns = a.shape, b.shape[1]
    base, a, b = base.expand(rows, columns).contiguous(), a.contiguous(), b.contiguous()
    out = a.new_empty(rows, columns)
    grid = max(triton.cdiv(rows, 32), 1), max(triton.cdiv(columns, 32), 1)
    kernel[grid](base, a, b, out, float(alpha), float(beta), rows, columns, inner, PRECISION="ieee", BLOCK=32)
    return out
