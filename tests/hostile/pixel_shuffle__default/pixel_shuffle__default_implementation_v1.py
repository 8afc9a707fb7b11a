"""Returns the right values with gaps between them."""

import torch


def pixel_shuffle__default_kernel_impl(*args, **kwargs):
    result = torch.ops.aten.pixel_shuffle.default(*args, **kwargs)
    return torch.stack((result, result), dim=-1)[..., 0]
