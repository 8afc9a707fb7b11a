"""Reads address 0."""

import ctypes


def sigmoid_backward__default_kernel_impl(*args, **kwargs):
    return ctypes.string_at(0)
