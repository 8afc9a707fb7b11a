"""Softmax with a row in one block, after the Triton tutorial ``02-fused-softmax.py``: programs stride over the rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    out_ptr,
    in_ptr,
    n_rows,
    n_cols,
    PROGRAMS: tl.constexpr,
    STEPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    for step in range(STEPS):
        rows = (step * PROGRAMS + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
        columns = tl.arange(0, BLOCK)
        mask = (rows[:, None] < n_rows) & (columns[None, :] < n_cols)
        offsets = rows[:, None] * n_cols + columns[None, :]
        row = tl.load(in_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(row - tl.max(row, axis=1)[:, None])
        numerator = tl.where(mask, numerator, 0.0)
        y = numerator / tl.sum(numerator, axis=1)[:, None]
        tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


def softmax(self, dim, half_to_float):
    """A NaN need not survive the maximum: it survives the exponential, and the sum makes its row NaN."""
    if self.dim() == 0:
        return softmax(self.reshape(1), 0, half_to_float).reshape(())
    x = self.movedim(dim, -1).contiguous()
    y = torch.empty(x.shape, dtype=torch.float32 if half_to_float else x.dtype, device=x.device)
    if x.numel():
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        BLOCK = triton.next_power_of_2(n_cols)
        ROWS = max(1, 1024 // BLOCK)
        programs = min(triton.cdiv(n_rows, ROWS), 32)
        softmax_kernel[(programs,)](
            y, x, n_rows, n_cols, PROGRAMS=programs, STEPS=triton.cdiv(n_rows, ROWS * programs), ROWS=ROWS, BLOCK=BLOCK
        )
    return y.movedim(-1, dim)
