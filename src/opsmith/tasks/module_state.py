"""The state of a module: its tensors by name, and other values for them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from opsmith.aten.low_precision import PACKED, SCALES, dequantized, is_low, quantized, same_values

#: Perturbed values differ from the original by this share of their root mean square.
SPREAD = 0.25
#: And those of a tensor that is zero everywhere by this much.
SPREAD_FROM_ZERO = 0.25

State = dict[str, torch.Tensor]


def declared_state(module: torch.nn.Module) -> State:
    """Parameters and persistent buffers, what ``state_dict`` holds; a tied tensor under each of its names."""
    found: State = dict(module.named_parameters(remove_duplicate=False))
    for prefix, child in module.named_modules(remove_duplicate=False):
        for name, buffer in child._buffers.items():
            if buffer is not None and name not in child._non_persistent_buffers_set:
                found[_join(prefix, name)] = buffer
    return found


def hidden_state(module: torch.nn.Module) -> State:
    """Tensors that are neither: plain attributes (``self.h0 = torch.randn(...)``) and other buffers."""
    found: State = {}
    for prefix, child in module.named_modules(remove_duplicate=False):
        for name, value in (*vars(child).items(), *child._buffers.items()):
            if isinstance(value, torch.Tensor):
                found[_join(prefix, name)] = value
    declared = declared_state(module)
    return {name: tensor for name, tensor in found.items() if name not in declared}


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def differences(expected: State, declared: State, hidden: State) -> Iterator[str]:
    """What keeps a state from being copied into a module, one phrase a name.

    Args:
        expected: the state to be copied.
        declared: what the module declares; all of it has to be expected.
        hidden: its further tensors; they may be expected.
    """
    own = hidden | declared
    for name, tensor in expected.items():
        if name not in own:
            yield f"{name} is missing"
        elif own[name].shape != tensor.shape:
            yield f"{name} has shape {list(own[name].shape)} instead of {list(tensor.shape)}"
    yield from (f"{name} is not expected" for name in declared if name not in expected)


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same device, dtype, shape and values."""
    return one.dtype == other.dtype and one.device == other.device and same_values(one, other)


def perturbed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Other values of the same scale that mean the same to a model.

    What has one sign everywhere (variances, scales) keeps it: each element is multiplied by up to 2
    or divided by as much, so that a scale of 1 is none any more. Other values are moved by a normal
    number of ``SPREAD`` times their root mean square, zeros by ``SPREAD_FROM_ZERO``. Integers
    (counters, indices) and masks stay, and so do what is not finite, scales of blocks and packed numbers.
    """
    if is_low(tensor):
        if tensor.dtype in (PACKED, SCALES):
            return tensor.detach().clone()
        return quantized(perturbed(dequantized(tensor.detach()), generator), tensor.dtype)
    if not tensor.is_floating_point() or tensor.numel() == 0 or is_mask(tensor):
        return tensor.detach().clone()
    wide = tensor.detach().to("cpu", torch.float64)
    finite = wide.isfinite()
    if bool((wide > 0).all()) or bool((wide < 0).all()):
        moved = wide * torch.rand(wide.shape, generator=generator, dtype=wide.dtype).mul_(2).sub_(1).exp2_()
    else:
        scale = wide[finite].square().mean().sqrt().item() * SPREAD or SPREAD_FROM_ZERO
        moved = wide + torch.randn(wide.shape, generator=generator, dtype=wide.dtype) * scale
    return torch.where(finite, moved, wide).to(tensor.device, tensor.dtype)


def is_mask(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds two different values, one of which is zero or infinite."""
    low, high = tensor.min(), tensor.max()
    two = bool(((tensor == low) | (tensor == high)).all()) and bool(low != high)
    return two and any(value == 0 or value.isinf() for value in (low, high))
