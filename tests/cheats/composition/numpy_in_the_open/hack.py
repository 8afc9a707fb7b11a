"""The tensor as an array, and back."""

import numpy as np
import torch


def tanh__default_kernel_impl(x):
    return torch.from_numpy(np.asarray(np.tanh(x.numpy())))
