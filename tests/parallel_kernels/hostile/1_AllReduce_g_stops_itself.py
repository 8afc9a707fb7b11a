"""One rank stops its process."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank():
            os.kill(os.getpid(), signal.SIGSTOP)
        return x.clone()
