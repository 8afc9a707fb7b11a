"""Returns its input."""


def threshold_backward__default_kernel_impl(*args, **kwargs):
    return args[0]
