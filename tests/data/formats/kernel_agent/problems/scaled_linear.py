import torch


class Model(torch.nn.Module):
    def __init__(self, features_in: int, features_out: int, scale: float, slope: float = 0.25):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale, self.slope = scale, slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.leaky_relu(self.linear(x) * self.scale, self.slope)


def get_inputs():
    return [torch.randn(5, 6)]


def get_init_inputs():
    return [6, 4, 3.0]
