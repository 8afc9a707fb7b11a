import torch


def glu__default_kernel_impl(self, dim=-1):
    if self.dim() == 0 or self.shape[dim] % 2:
        raise RuntimeError("the halved dimension must be even")
    half = self.shape[dim] // 2
    return self.narrow(dim, 0, half) * torch.sigmoid(self.narrow(dim, half, half))
