import math

import torch


def std_mean__correction_kernel_impl(self, dim=None, *, correction=None, keepdim=False):
    dims = tuple(dim) if dim else tuple(range(self.dim()))
    n = math.prod(self.shape[d] for d in dims)
    freedom = max(n - (1 if correction is None else correction), 0)
    mean = self.sum(dims, keepdim=True) / n if n else self.sum(dims, keepdim=True) * float("nan")
    squares = torch.square(self - mean).sum(dims, keepdim=True)
    std = torch.sqrt(squares / freedom if freedom else squares / torch.zeros_like(squares))
    if not keepdim:
        shape = [s for d, s in enumerate(self.shape) if d not in {d % self.dim() for d in dims}] if self.dim() else []
        std, mean = std.reshape(shape), mean.reshape(shape)
    return std, mean
