"""Returns the right values in the wrong dtype."""

import torch


def mse_loss__default_kernel_impl(*args, **kwargs):
    return torch.ops.aten.mse_loss.default(*args, **kwargs).double()
