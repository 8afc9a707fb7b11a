"""Takes memory until it is stopped."""

import torch


def softplus_backward__default_kernel_impl(*args, **kwargs):
    hoard = []
    while True:
        hoard.append(torch.ones(1 << 25))
