import torch
import triton
import triton.language as tl

DIMS = 5


@triton.jit
def lerp(x_ptr, end_ptr, weight, n, s1, s2, s3, s4, x0, x1, x2, x3, x4, e0, e1, e2, e3, e4, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    i4, rest = i % s4, i // s4
    i3, rest = rest % s3, rest // s3
    i2, rest = rest % s2, rest // s2
    i1, i0 = rest % s1, rest // s1
    at = x_ptr + i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3 + i4 * x4
    x = tl.load(at, mask=inside)
    end = tl.load(end_ptr + i0 * e0 + i1 * e1 + i2 * e2 + i3 * e3 + i4 * e4, mask=inside)
    # Counted from the nearer end, so that a weight of one gives exactly the end.
    y = tl.where(tl.abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1.0 - weight))
    tl.store(at, y, mask=inside)


def lerp___Scalar_kernel_impl(self, end, weight):
    if self.dtype != torch.float32 or end.dtype != torch.float32 or self.dim() > DIMS or isinstance(weight, complex):
        raise NotImplementedError("float32 of at most five dimensions only")
    end = end.expand(self.shape)
    missing = DIMS - self.dim()
    shape = (1,) * missing + tuple(self.shape)
    if self.numel():
        lerp[(triton.cdiv(self.numel(), 128),)](
            self,
            end,
            float(weight),
            self.numel(),
            *shape[1:],
            *(0,) * missing,
            *self.stride(),
            *(0,) * missing,
            *end.stride(),
            BLOCK=128,
        )
    return self
