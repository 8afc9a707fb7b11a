"""relu in Triton: ``max(x, 0)``, reading and writing ``2 * numel * itemsize`` bytes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@triton.jit
def relu_kernel(out_ptr: tl.tensor, x_ptr: tl.tensor, numel: tl.tensor, BLOCK: tl.constexpr) -> None:  # noqa: N803
    """One block of a tensor without gaps. The comparison is false for NaN, which is kept as it is."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < numel)
    tl.store(out_ptr + index, tl.where(x < 0, tl.zeros_like(x), x), mask=index < numel)


def relu__default_kernel_impl(self: torch.Tensor) -> torch.Tensor:
    """``max(self, 0)`` of a floating-point tensor.

    Raises:
        NotImplementedError: any other dtype or layout.
    """
    if self.layout is not torch.strided or self.dtype not in FLOATS or self.is_neg():
        raise NotImplementedError(f"{self.layout} tensors of {self.dtype} are not served")
    out = torch.empty_like(self)  # Dense, in the order of self's strides: eager's layout.
    # The kernel runs along memory; an input with gaps or overlaps is packed like the output first.
    packed = self if self.stride() == out.stride() else torch.empty_like(self).copy_(self)
    if out.numel():
        relu_kernel[(triton.cdiv(out.numel(), 1024),)](out, packed, out.numel(), BLOCK=1024)
    return out
