"""Returns the right values in the wrong shape."""

import torch


def mse_loss_backward__default_kernel_impl(*args, **kwargs):
    return torch.ops.aten.mse_loss_backward.default(*args, **kwargs).unsqueeze(0)
