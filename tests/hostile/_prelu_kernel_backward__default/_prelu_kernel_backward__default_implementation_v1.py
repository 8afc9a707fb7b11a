"""Kills its parent."""

import os
import signal
import time


def _prelu_kernel_backward__default_kernel_impl(*args, **kwargs):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
