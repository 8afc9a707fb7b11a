import torch
from torch import nn


def forward_fn(x: torch.Tensor, gate: torch.Tensor, shift: torch.Tensor, slope: float) -> torch.Tensor:
    """Each row times the sigmoid of a gate, moved, and leaky below zero."""
    return nn.functional.leaky_relu(x * gate.sigmoid() + shift, slope)


class Model(nn.Module):
    def __init__(self, width: int = 8, init_method: str = "normal"):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(width) if init_method == "zeros" else torch.randn(width))
        self.register_buffer("shift", torch.ones(width))
        self.slope = 0.1

    def forward(self, x: torch.Tensor, fn=forward_fn) -> torch.Tensor:
        return fn(x, self.gate, shift=self.shift, slope=self.slope)


def get_inputs(rows: int = 4, width: int = 8):
    return [torch.randn(rows, width)]


input_names = ["x"]
