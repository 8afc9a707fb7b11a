import torch
from task import input_t, output_t
from utils import close, generator


def generate_input(rows: int, columns: int, seed: int) -> input_t:
    x = torch.randn(rows, columns, device="cuda", generator=generator(seed)) + 1
    return x, torch.empty(rows, device="cuda")


def ref_kernel(data: input_t) -> output_t:
    x, means = data
    means = x.double().mean(1)
    return means


def check_implementation(data, output):
    reason = close(output, ref_kernel(data), 1e-5)
    return not reason, reason
