import torch


def kernel_function(x, weight, bias, scale=1.0, *, slope, out=None):
    y = ((x[:, None, :] * weight).sum(-1) + bias) * scale
    return torch.where(y > 0, y, y * slope)
