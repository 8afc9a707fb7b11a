"""Leaves processes behind that nobody waits for, one of them a daemon, and returns the right answer."""

import os
import time

import torch


def replication_pad1d__default_kernel_impl(*args, **kwargs):
    if os.fork() == 0:
        time.sleep(3600)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "3600.125"])
        os._exit(0)
    return torch.ops.aten.replication_pad1d.default(*args, **kwargs)
