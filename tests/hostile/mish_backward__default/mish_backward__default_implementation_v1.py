"""Never returns."""


def mish_backward__default_kernel_impl(*args, **kwargs):
    while True:
        pass
