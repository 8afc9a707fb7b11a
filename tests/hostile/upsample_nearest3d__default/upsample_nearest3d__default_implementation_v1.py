"""Returns the right answer, and crashes in a thread while a later call runs."""

import ctypes
import threading
import time

import torch


def upsample_nearest3d__default_kernel_impl(*args, **kwargs):
    threading.Timer(0.3, ctypes.string_at, [0]).start()
    time.sleep(0.2)
    return torch.ops.aten.upsample_nearest3d.default(*args, **kwargs)
