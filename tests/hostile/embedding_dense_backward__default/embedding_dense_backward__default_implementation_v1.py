"""Overflows the stack in C."""

import sys


def copy_of(nested):
    """A list as deep as ``nested``, so that comparing them recurses to the bottom."""
    result = []
    while nested:
        nested, result = nested[0], [result]
    return result


def embedding_dense_backward__default_kernel_impl(*args, **kwargs):
    sys.setrecursionlimit(1 << 30)
    nested = []
    for _ in range(1 << 22):
        nested = [nested]
    return nested == copy_of(nested)
