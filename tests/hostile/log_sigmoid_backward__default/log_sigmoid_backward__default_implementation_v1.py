"""Raises GeneratorExit."""


def log_sigmoid_backward__default_kernel_impl(*args, **kwargs):
    raise GeneratorExit
