"""Changes its input and returns the right answer."""

import torch


def elu_backward__default_kernel_impl(*args, **kwargs):
    result = torch.ops.aten.elu_backward.default(*args, **kwargs)
    args[0].add_(1)
    return result
