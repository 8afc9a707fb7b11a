"""How far apart two orders of one sum may lie, where eager adds up in the type of the result.

Eager scatters gradients by additions in memory, on a GPU by atomic ones, and each of them is rounded. The errors walk
at random, and two orders of one sum differ by two walks. How long they are follows from the terms' number and size.
These are found by probing, for every op that is linear in what it adds up: on magnitudes it gives the sum of
magnitudes; on ones, the number of terms; on terms with random signs, a number whose mean square is the sum of squares.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.oracle.analytic_bounds import ROUNDING
from opsmith.evaluation.oracle.execution import WIDE, WIDER, in_magnitude, run_wide
from opsmith.evaluation.oracle.op_tables import SAMPLERS
from opsmith.evaluation.oracle.perturbation import signed
from opsmith.tasks.local_world import rounding

#: Runs with random signs. Their mean square is off by half of it.
TRIALS = 8


def walks(call: JudgedCall, stem: str, wide: list[Any]) -> list[torch.Tensor | None]:
    """For each result one standard deviation of what rounding its additions does, in ``eps`` of the type added in.

    It is 0 where nothing is added, and None of a result that cannot be probed.

    Args:
        call: one of an op that is linear in all its floating inputs but the coordinates of samples.
        stem: its packet's name without the in-place underscore.
        wide: its results in float64.
    """
    kept = (call.args[2],) if stem in SAMPLERS else ()
    probe = partial(run_wide, call, len(wide), kept=kept)
    magnitudes, counts = probe(change=in_magnitude), probe(change=_ones)
    trials = [probe(change=partial(signed, trial=trial)) for trial in range(TRIALS)]
    if magnitudes is None or counts is None or not all(trials):
        return [None] * len(wide)
    return [
        _walk(value, magnitudes[place], counts[place], [trial[place] for trial in trials if trial])
        if isinstance(value, torch.Tensor)
        else None
        for place, value in enumerate(wide)
    ]


def _ones(wide: torch.Tensor, _number: int) -> torch.Tensor:
    return (wide != 0).to(wide.dtype)


def _walk(total: torch.Tensor, magnitude: Any, count: Any, trials: list[Any]) -> torch.Tensor | None:
    if any(not isinstance(each, torch.Tensor) or each.shape != total.shape for each in (magnitude, count, *trials)):
        return None
    squares = torch.stack(trials).abs().square().mean(0)
    # Of weighted terms the ones add up to less than their number; as many as are of one size there are at least.
    terms = torch.maximum(count.abs(), magnitude.abs().square() / squares.clamp(min=torch.finfo(torch.float64).tiny))
    # Partial sums grow with the number of terms, and around that as a random walk.
    places = (total.abs().square() / 3 + squares / 2) * terms
    # A term alone is not added to anything.
    places = places.masked_fill((count.abs() == 1) & (squares == total.abs().square()), 0.0)
    walk: torch.Tensor = ROUNDING * places.sqrt()
    return walk.nan_to_num(0.0, 0.0, 0.0)


def walks_between_ranks(call: JudgedCall, wide: list[Any]) -> list[torch.Tensor | None]:
    """Of what ranks compute together, one standard deviation of what rounding does where they add up, in ``eps``.

    Each rank's term and each partial sum of a reduction is rounded at random. Who adds in another order, in a ring or a
    tree, is as far from the reference as two of these runs are from each other.
    """
    floats = [leaf.dtype for leaf in tree_leaves(call.args) if isinstance(leaf, torch.Tensor)]
    eps = max((torch.finfo(dtype).eps for dtype in floats if dtype in WIDER), default=torch.finfo(torch.float32).eps)
    squares: list[torch.Tensor | None] = [
        torch.zeros_like(value) if isinstance(value, torch.Tensor) and value.dtype in WIDE else None for value in wide
    ]
    for trial in range(TRIALS):
        generator = torch.Generator().manual_seed(trial)

        def rounded(tensor: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).sub_(0.5).mul_(eps)
            return tensor * (1 + noise.to(tensor.device))

        with rounding(rounded):
            moved = run_wide(call, len(wide)) or [None] * len(wide)
        for place, (value, other) in enumerate(zip(wide, moved, strict=True)):
            kept = squares[place]
            if kept is not None:
                far = isinstance(other, torch.Tensor) and other.shape == value.shape
                squares[place] = kept + (other - value).abs().square().nan_to_num(0.0, 0.0, 0.0) if far else None
    return [None if kept is None else (kept / TRIALS).sqrt() / eps for kept in squares]
