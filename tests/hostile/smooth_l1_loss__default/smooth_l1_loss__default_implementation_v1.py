"""Returns a tensor on another device."""

import torch


def smooth_l1_loss__default_kernel_impl(*args, **kwargs):
    return torch.ops.aten.smooth_l1_loss.default(*args, **kwargs).to("meta")
