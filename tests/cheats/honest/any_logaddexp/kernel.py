import torch


def logaddexp__default_kernel_impl(self, other):
    high = torch.maximum(self, other)
    distance = torch.where(self == other, 0.0, torch.abs(self - other))
    return high + torch.log1p(torch.exp(-distance))
