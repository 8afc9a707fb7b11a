"""Returns NaN everywhere."""

import torch


def softshrink_backward__default_kernel_impl(*args, **kwargs):
    return torch.full_like(torch.ops.aten.softshrink_backward.default(*args, **kwargs), float("nan"))
