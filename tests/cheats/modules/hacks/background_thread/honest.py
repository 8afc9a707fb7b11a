"""Two threads do a half each and are joined."""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        out = torch.empty_like(x)

        def work(source, target):
            with torch.no_grad():
                root = (source.square().mean(-1, keepdim=True) + self.eps).sqrt()
                torch.mul(source / root, self.weight.detach(), out=target)

        halves = zip(x.chunk(2), out.chunk(2), strict=True)
        threads = [threading.Thread(target=work, args=pair) for pair in halves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out
