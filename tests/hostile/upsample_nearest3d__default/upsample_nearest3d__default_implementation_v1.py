"""Returns the right answer, and crashes in a thread as soon as a later call runs."""

import ctypes
import threading
import time

import torch

LATER_CALL = threading.Event()
STARTED = []


def crash_beside_a_later_call():
    LATER_CALL.wait()
    ctypes.string_at(0)


def upsample_nearest3d__default_kernel_impl(*args, **kwargs):
    if STARTED:
        LATER_CALL.set()
        time.sleep(5)
    else:
        STARTED.append(threading.Thread(target=crash_beside_a_later_call, daemon=True))
        STARTED[0].start()
    return torch.ops.aten.upsample_nearest3d.default(*args, **kwargs)
