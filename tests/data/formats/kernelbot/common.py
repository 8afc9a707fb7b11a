import torch


def close(received, expected, tolerance):
    if received.shape != expected.shape:
        return f"{list(received.shape)} instead of {list(expected.shape)}"
    distance = (received - expected).abs().max().item()
    return "" if distance <= tolerance else f"off by {distance:.3g}"


def generator(seed):
    made = torch.Generator(device="cuda")
    made.manual_seed(seed)
    return made
