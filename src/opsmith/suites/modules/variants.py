"""Other values for the inputs of a problem, where a solution may have relied on those that it knows.

Public problems draw their inputs from one narrow range, often between 0 and 1, where ``abs`` and
``relu`` do nothing and sums never cancel. A variant is asked only where the reference is sure of its answer: see
:func:`is_sound`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import PACKED, SCALES, dequantized, is_low, places, quantized, readable
from opsmith.aten.low_precision import same_values as same
from opsmith.tasks.module_state import is_mask, perturbed

#: Inputs are moved by this many roundings to see whether the results stay where they are.
NUDGE_ROUNDINGS = 2.0
#: So many roundings of a result's root mean square may they move, and this much in any case: a good deal less than
#: the tolerance, since a solution's own roundings add up on the way.
MOST_ROUNDINGS = 8.0
MOST_ABSOLUTE = 1e-6

#: Ops that end the process on a device, or refuse, where a float is out of range: such inputs stay.
BOUNDED = frozenset(
    {
        *("binary_cross_entropy.default", "multinomial.default", "bernoulli.default", "bernoulli.p"),
        *("bernoulli_.Tensor", "poisson.default", "binomial.default"),
    }
)

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _scaled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Larger or smaller by a power of two, by which no digit is lost."""
    exponent = (-4, -2, 3, 4)[int(torch.randint(4, (), generator=generator))]
    return tensor * 2.0**exponent


def _shifted(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Moved up or down by one to three times the largest root mean square of its values."""
    rms = tensor.double().square().mean().sqrt().item()
    distance = rms * (1 + 2 * float(torch.rand((), generator=generator)))
    return tensor + (distance if bool(torch.randint(2, (), generator=generator)) else -distance)


def _signed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every element with a sign of its own."""
    signs = torch.randint(2, tensor.shape, generator=generator).mul_(2).sub_(1)
    return tensor * signs.to(tensor.device, tensor.dtype)


def _constant(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every other row (of a vector its first half) made of its first element."""
    rows = tensor.clone(memory_format=torch.contiguous_format)
    rows = rows.view(2, -1) if tensor.ndim == 1 and tensor.numel() % 2 == 0 else rows.view(-1, tensor.shape[-1])
    first = int(torch.randint(2, (), generator=generator)) if rows.shape[0] > 1 else 0
    rows[first::2] = rows[first::2, :1].clone()
    return rows.view(tensor.shape)


def _times(factor: float) -> Change:
    return lambda tensor, _: tensor * factor


def _moved(distances: float) -> Change:
    return lambda tensor, _: tensor + distances * tensor.double().square().mean().sqrt().item()


#: Where what is right about a problem's own draws may be wrong: far away, close to zero, on both sides of it.
MAGNITUDES: tuple[Change, ...] = (
    *(_times(16.0), _times(-1.0), _moved(4.0), _moved(-4.0), _times(2.0**-6)),
    *(_times(256.0), _times(-64.0)),
)

VARIANTS: dict[str, Change] = {"scaled": _scaled, "shifted": _shifted, "signed": _signed, "constant": _constant}


def varied(inputs: Sequence[Any], change: Change, generator: torch.Generator) -> list[Any] | None:
    """The inputs with every float tensor changed, masks left out; None where there is none."""
    if not any(map(_is_variable, tree_leaves(list(inputs)))):
        return None
    return _mapped(inputs, lambda tensor: change(tensor, generator))


def redrawn(inputs: Sequence[Any], generator: torch.Generator) -> list[Any]:
    """Other values for inputs that a problem does not draw at random (``torch.ones``)."""
    return _mapped(inputs, lambda tensor: perturbed(tensor, generator))


def same_values(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two draws of a problem's inputs have the same float tensors."""
    pairs = zip(tree_leaves(list(one)), tree_leaves(list(other)), strict=False)
    return all(isinstance(b, torch.Tensor) and a.shape == b.shape and same(a, b) for a, b in pairs if _is_variable(a))


def is_sound(
    answer: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], plain: Any, generator: torch.Generator
) -> bool:
    """Whether the reference is sure of its answer on inputs that the problem did not choose.

    It answers without an error, with finite numbers wherever it does on inputs of the problem's own
    (``plain``), and its answer stays where it is when the inputs move by a rounding. A layer norm
    of a constant row and an ``argmax`` among equals do not: honest solutions differ there.
    """
    first = _answered(answer, inputs)
    second = _answered(answer, _mapped(inputs, lambda tensor: _nudged(tensor, generator), _is_nudged))
    if first is None or second is None or [one.shape for one in first] != [other.shape for other in second]:
        return False
    nudged_by = max((torch.finfo(leaf.dtype).eps for leaf in tree_leaves(list(inputs)) if _is_nudged(leaf)), default=0)
    return _are_finite(first, plain) and all(map(partial(_stays, nudged_by=nudged_by), first, second))


def is_finite(answer: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], plain: Any) -> bool:
    """Whether the reference answers without an error, with finite numbers wherever ``plain`` has them."""
    found = _answered(answer, inputs)
    return found is not None and _are_finite(found, plain)


def _answered(answer: Callable[[Sequence[Any]], Any], inputs: Sequence[Any]) -> list[torch.Tensor] | None:
    try:
        return _tensors(answer(inputs))
    except torch.AcceleratorError:
        raise  # The device context is lost.
    except Exception:  # noqa: BLE001 - a Model refuses in any way it likes
        return None


def _are_finite(results: Sequence[torch.Tensor], plain: Any) -> bool:
    wanted = [bool(readable(result).isfinite().all()) for result in _tensors(plain)]
    return len(wanted) == len(results) and all(
        not asked or bool(readable(result).isfinite().all()) for asked, result in zip(wanted, results, strict=True)
    )


def _stays(result: torch.Tensor, nudged: torch.Tensor, *, nudged_by: float) -> bool:
    """Whether a result moves by no more than its own roundings, or those that the inputs moved by."""
    if is_low(result):
        return bool(((places(result) - places(nudged)).abs() <= 1).all())
    if not result.is_floating_point():
        return torch.equal(result, nudged)
    values, moved = result.double().nan_to_num(), nudged.double().nan_to_num()
    if not values.numel():
        return True
    rms = values.square().mean().sqrt().item()
    most = MOST_ROUNDINGS * max(torch.finfo(result.dtype).eps, nudged_by) * rms + MOST_ABSOLUTE
    return bool(((values - moved).abs() <= most).all())


def _nudged(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    there = generator
    if tensor.device.type != "cpu":  # To draw millions on a host takes seconds.
        there = torch.Generator(tensor.device).manual_seed(int(torch.randint(1 << 31, (), generator=generator)))
    noise = torch.rand(tensor.shape, generator=there, dtype=torch.float64, device=tensor.device).mul_(2).sub_(1)
    step = noise * (NUDGE_ROUNDINGS * torch.finfo(tensor.dtype).eps)
    return (tensor.double() * (1 + step)).to(tensor.dtype)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _is_variable(leaf: Any) -> bool:
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided or leaf.is_nested:
        return False
    if not leaf.is_floating_point() or leaf.dtype in (PACKED, SCALES):
        return False
    return leaf.numel() > 1 and not is_mask(readable(leaf))


def _is_nudged(leaf: Any) -> bool:
    return _is_variable(leaf) and not is_low(leaf)


def _mapped(
    inputs: Sequence[Any],
    change: Callable[[torch.Tensor], torch.Tensor],
    chosen: Callable[[Any], bool] = _is_variable,
) -> list[Any]:
    def mapped(leaf: Any) -> Any:
        if not chosen(leaf):
            return leaf
        return quantized(change(dequantized(leaf)), leaf.dtype) if is_low(leaf) else change(leaf)

    changed: list[Any] = tree_map(mapped, list(inputs))
    return changed
