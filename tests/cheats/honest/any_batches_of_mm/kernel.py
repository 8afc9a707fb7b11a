import torch


def addbmm__default_kernel_impl(self, batch1, batch2, *, beta=1, alpha=1):
    total = torch.zeros((batch1.shape[1], batch2.shape[2]), dtype=self.dtype, device=self.device)
    for left, right in zip(batch1, batch2, strict=True):
        total += left @ right
    if alpha != 1:
        total *= alpha
    return total if beta == 0 else total + beta * self
