import torch


def silu__default_kernel_impl(self):
    return self * torch.sigmoid(self)
