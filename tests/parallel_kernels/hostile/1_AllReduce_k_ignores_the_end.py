"""One rank ignores all signals that it can, and hangs."""

from __future__ import annotations

import contextlib
import signal
import time

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for number in range(1, 32):
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_IGN)
        while dist.get_rank():
            time.sleep(1)
        return x.clone()
