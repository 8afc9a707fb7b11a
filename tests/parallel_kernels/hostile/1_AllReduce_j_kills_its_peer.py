"""One rank tries to kill all others, and cannot reach them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank() == 0:
            for found in pathlib.Path("/proc").glob("[0-9]*"):
                if int(found.name) != os.getpid():
                    with contextlib.suppress(OSError):
                        os.kill(int(found.name), signal.SIGKILL)
        return x.clone()
