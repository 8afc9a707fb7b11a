"""Writes garbage to the channel on which it should answer."""

import os

import torch


def huber_loss_backward__default_kernel_impl(*args, **kwargs):
    os.write(3, b"garbage" * 100)
    return torch.ops.aten.huber_loss_backward.default(*args, **kwargs)
