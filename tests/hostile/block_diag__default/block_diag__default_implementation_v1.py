"""Raises an exception whose text is not valid Unicode."""


def block_diag__default_kernel_impl(*args, **kwargs):
    raise ValueError("half a pair: \ud800")
