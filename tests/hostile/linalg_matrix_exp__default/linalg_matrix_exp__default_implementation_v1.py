"""Raises an exception that raises when it is printed."""


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not me either")


def linalg_matrix_exp__default_kernel_impl(*args, **kwargs):
    raise Unprintable
