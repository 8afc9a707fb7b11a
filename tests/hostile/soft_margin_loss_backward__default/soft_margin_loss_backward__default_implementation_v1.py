"""Returns a tuple of one tensor."""

import torch


def soft_margin_loss_backward__default_kernel_impl(*args, **kwargs):
    return (torch.ops.aten.soft_margin_loss_backward.default(*args, **kwargs),)
