"""Stops itself."""

import os
import signal


def upsample_nearest2d__default_kernel_impl(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGSTOP)
