"""The random state under which a call runs."""

from __future__ import annotations

import torch

from opsmith.devices import kind_of


def seed_of(seed: int, execution: int, repeats: int) -> int:
    """What the generators are seeded with before one of ``repeats`` executions of a call; the last begins as the first.

    Draws that follow from the random state come out the same then.
    """
    return seed if execution == repeats - 1 else seed + execution


def random_state(device: torch.device) -> tuple[torch.Tensor, ...]:
    """The states of the default generators of the CPU and of ``device``; a call that draws changes them."""
    if device.type == "cuda":
        return torch.get_rng_state(), torch.cuda.get_rng_state(device)
    if device.type == "cpu":
        return (torch.get_rng_state(),)
    return torch.get_rng_state(), kind_of(device.type).random_state(device)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the default generators of the CPU and of ``device``.

    ``torch.manual_seed`` also seeds every device that is not there yet, which formats a traceback
    for each: about a millisecond, more than most calls take.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)
