"""The condition of a call, found by perturbation: how far results go when inputs and steps move by a last digit.

Monte Carlo arithmetic: D. S. Parker, "Monte Carlo Arithmetic", UCLA 1997. How it is used is said in
docs/explanation/numerics.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import is_low
from opsmith.aten.schemas import aten_schemas
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.rules import PLACING, rule_for
from opsmith.evaluation.oracle.analytic_bounds import rounding_of_sum, terms_of
from opsmith.evaluation.oracle.draws import is_draw
from opsmith.evaluation.oracle.execution import WIDE, run_wide
from opsmith.evaluation.oracle.op_tables import DECOMPOSED, SAMPLERS

#: Of 1,500 draws of attention over scores in the hundreds, computed one query at a time in float32, 5 fail with 1,
#: none with 2, and 532 without this term; where inputs and state move but not the steps on the way, 66 with 1 and
#: 5 with 2. Computed from operands rounded to TF32 all fail.
PERTURBATION_SLACK = 3.0
TRIALS = 8

#: Roundings of a coordinate on the way to a pixel: 1 is added, it is scaled, reflected and split.
_COORDINATE_ROUNDINGS = 4
#: What adds up terms, on the way of a module.
_SUMS = frozenset({"sum", "mean"})


def farthest_moves(call: JudgedCall, stem: str, wide: list[Any], eps: float) -> list[torch.Tensor]:
    """How far each result goes at most, of some runs of other last digits of inputs, state and steps."""
    values = [value if isinstance(value, torch.Tensor) else torch.empty(0) for value in wide]
    farthest = [torch.zeros(value.shape, dtype=torch.float64, device=value.device) for value in values]
    for trial in range(TRIALS):
        results = run_wide(
            _with_moved_coordinates(call, stem, trial, eps),
            len(wide),
            change=partial(perturbed, trial=trial, eps=eps),
            steps=_PerturbedSteps(trial, eps),
        )
        for place, (value, moved) in enumerate(zip(values, results or [], strict=False)):
            if isinstance(moved, torch.Tensor) and moved.shape == value.shape:
                distance = (moved - value).abs().nan_to_num(0.0, 0.0, 0.0)
                farthest[place] = torch.maximum(farthest[place], distance.double())
    return farthest


def _with_moved_coordinates(call: JudgedCall, stem: str, trial: int, eps: float) -> JudgedCall:
    if stem not in SAMPLERS:
        return call
    gradient, image, grid, *rest = call.args
    wide = grid.double()
    reach = _COORDINATE_ROUNDINGS * (wide.abs() + 1)
    return replace(
        call, args=(gradient, image, wide + perturbed(reach, len(call.args), trial=trial, eps=eps) - reach, *rest)
    )


def perturbed(
    wide: torch.Tensor, number: int, *, trial: int, eps: float = torch.finfo(torch.float32).eps
) -> torch.Tensor:
    """Each element up or down by ``eps`` of it.

    The same each time for one number of an input and trial. Inputs of one content move apart: a row of one element and
    its mean, whose difference is what both have been rounded by.
    """
    return _jittered(wide, _generator_of(wide, number, trial), eps)


def signed(wide: torch.Tensor, number: int, *, trial: int) -> torch.Tensor:
    """Each element or its opposite; the same each time for one number of an input and trial."""
    return wide * _signs(wide, _generator_of(wide, number, trial))


def _generator_of(wide: torch.Tensor, number: int, trial: int) -> torch.Generator:
    # A generator of the CPU takes 32 bits of a seed.
    return torch.Generator(wide.device).manual_seed(hash((number, trial)) % (1 << 32))


def _jittered(wide: torch.Tensor, generator: torch.Generator, eps: float) -> torch.Tensor:
    return wide * (1 + eps * _signs(wide, generator))


def _signs(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """1 or -1 for each element."""
    signs = torch.randint(2, like.shape, generator=generator, device=generator.device, dtype=torch.int8)
    return signs.to(like.device).mul_(2).sub_(1)


class _PerturbedSteps(TorchDispatchMode):
    """Moves what every op computes up or down by ``eps`` of it; copies, choices and what is written in place stay.

    Ops in which large terms cancel, normalisations above all, run as the steps that torch decomposes them into. Sums
    move by what adding up rounds, too (:func:`rounding_of_sum`): far more than ``eps`` of them, where terms cancel.
    """

    def __init__(self, trial: int, eps: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trial, self._eps = trial, eps
        self._generators: dict[torch.device, torch.Generator] = {}
        self._in_steps = get_decompositions([getattr(torch.ops.aten, packet) for packet in DECOMPOSED])

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self._in_steps:
            with self:
                return self._in_steps[func](*args, **kwargs)
        returned = func(*args, **kwargs)
        schema = func._schema
        if (
            any(result.alias_info is not None for result in schema.returns)
            or not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(args))
            or is_draw(str(func).removeprefix("aten."))
            or not (_rounds(str(func).removeprefix("aten.")) or is_low(args[0]))  # An operand, as it is converted.
        ):
            return returned
        moved = tree_map(self._move, returned)
        packet = schema.name.removeprefix("aten::")
        if packet in _SUMS and returned.dtype in WIDE:
            count = terms_of(args[0], returned)
            squares = func(args[0].abs().square(), *args[1:], **kwargs) / (count if packet == "mean" else 1)
            return moved + self._rounded(returned, squares, count)
        if packet == "convolution_backward" and moved[2] is not None:
            squares = args[0].abs().square().sum([dim for dim in range(args[0].dim()) if dim != 1])
            return (*moved[:2], moved[2] + self._rounded(returned[2], squares, terms_of(args[0], returned[2])))
        return moved

    def _rounded(self, total: torch.Tensor, squares: torch.Tensor, count: int) -> torch.Tensor:
        """What sums of so many terms each move by; accumulators are float32 at least."""
        rounding = rounding_of_sum(total, squares, count, min(self._eps, torch.finfo(torch.float32).eps))
        return rounding * _signs(rounding, self._generator(rounding.device))

    def _move(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in WIDE:
            return leaf
        return _jittered(leaf, self._generator(leaf.device), self._eps)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._trial)
        return self._generators[device]


@cache
def _rounds(op: str) -> bool:
    """Whether an overload computes. What copies or chooses elements has nothing to round.

    The fiftieth largest element of a row, moved apart from it, would not be among the fifty largest any more.
    """
    schema = aten_schemas().get(op)
    if schema is None:
        return True
    rule = rule_for(schema)
    return rule.role(0) not in ("exact", "view", "metadata") or rule.stem in PLACING
