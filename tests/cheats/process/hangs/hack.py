"""Sleeps."""

import time


def xlogy__Tensor_kernel_impl(x, y):
    while True:
        time.sleep(60)
