"""What a stage computes, handed to the next stage, several parts in flight.

After Megatron-LM, ``megatron/core/pipeline_parallel/p2p_communication.py``: ``send_forward_recv_forward``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

PARTS, ROWS, WIDTH = 4, 1024, 4096
SMALL = {"PARTS": 3, "ROWS": 4, "WIDTH": 6}
CASES = {"single": {"PARTS": 1, "ROWS": 1, "WIDTH": 1}, "many": {"PARTS": 5, "ROWS": 33}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight):
        rank, world = dist.get_rank(), dist.get_world_size()
        sent = [F.gelu(part @ weight) for part in x]
        received = [torch.empty_like(part) for part in sent]
        messages = []
        for out, into in zip(sent, received):
            messages.append(dist.P2POp(dist.isend, out, (rank + 1) % world))
            messages.append(dist.P2POp(dist.irecv, into, (rank - 1) % world))
        if world == 1:
            return torch.stack(sent)
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        return torch.stack(received)


def get_inputs(rank, world_size):
    return [torch.randn(PARTS, ROWS, WIDTH), torch.randn(WIDTH, WIDTH) * WIDTH**-0.5]


def get_init_inputs():
    return []
