"""Raises SystemExit."""

import sys


def tanh_backward__default_kernel_impl(*args, **kwargs):
    sys.exit(0)
