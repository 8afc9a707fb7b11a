"""The float64 oracle: runs the reference of a call on upcast inputs and says how far a result may be from it.

It is only asked where a result leaves the plain tolerance around eager's: then either the candidate is off or eager is.
What it grants, and the experiments behind that, stand in docs/explanation/numerics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opsmith.core.op import TaskKind
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.oracle.analytic_bounds import layer_norm_slack, product_slack, sampling_slopes, small_products
from opsmith.evaluation.oracle.attention import BACKWARDS, FORWARDS, LOGSUMEXP, attention, gradients, logsumexp
from opsmith.evaluation.oracle.error_bound import LINEAR_SLACK, NORMWISE_SLACK, Opinion
from opsmith.evaluation.oracle.execution import WIDE, WIDER, in_magnitude, run_wide
from opsmith.evaluation.oracle.op_tables import (
    ADDED_IN_MEMORY,
    EXCLUDED,
    ISOTROPIC,
    LINEAR,
    LINEAR_REDUCTIONS,
    LOSS_GRADIENTS,
    NORMWISE,
    PRODUCTS,
    SAMPLERS,
    SAMPLING,
    SENSITIVE,
    WITH_MEAN,
)
from opsmith.evaluation.oracle.orders import walks, walks_between_ranks
from opsmith.evaluation.oracle.perturbation import PERTURBATION_SLACK, farthest_moves

#: The second result of ops with a mean, and of a gradient of sampling.
_MEAN = _OF_GRID = 1


class Oracle:
    """The float64 run of one call, made when it is first asked for.

    Args:
        call: the call that both sides answered.
        stem: the packet's name without the in-place underscore.
        count: how many results an execution has, written inputs included.
    """

    def __init__(self, call: JudgedCall, stem: str, count: int) -> None:
        self._call, self._stem, self._count = call, stem, count
        self._farthest: dict[float, list[torch.Tensor]] = {}

    def opinion(self, index: int) -> Opinion | None:
        """What the oracle says about result ``index``, or None where it has nothing to say."""
        if self._stem in FORWARDS and index == LOGSUMEXP:
            return self._logarithms
        if self._stem in FORWARDS | BACKWARDS:
            return self._attention[index] if index < len(self._attention) else None
        value = self._values[index] if self._values else None
        if not isinstance(value, torch.Tensor) or value.dtype not in WIDE:
            return None
        orders = partial(self._orders, index) if self._adds_in_memory or self._adds_between_ranks else None
        return Opinion(value, self._slack(index, value), partial(self._rounding, index, value), orders)

    def _slack(self, index: int, value: torch.Tensor) -> torch.Tensor | None:
        """What float32's roundings explain of result ``index``."""
        eps = torch.finfo(torch.float32).eps
        if self._stem in ISOTROPIC:
            rms = value.abs().square().mean().sqrt()
            return LINEAR_SLACK * eps * rms.expand(value.shape)
        if self._stem == "native_layer_norm" and index != _MEAN:
            assert self._values is not None
            return layer_norm_slack(self._call, self._values[2], value)
        if self._stem in PRODUCTS:
            return product_slack(self._call, self._stem, value, eps)
        if self._call.schema.kind.of_problems or self._stem in SENSITIVE:
            moved = PERTURBATION_SLACK * self._movement(index, eps)
            if self._stem in SAMPLERS and index == _OF_GRID:
                moved = torch.maximum(moved, LINEAR_SLACK * eps * sampling_slopes(self._call).to(moved.device))
            return moved
        magnitude = self._magnitude(index, value)
        if magnitude is None:
            return None
        slack = LINEAR_SLACK * eps * magnitude
        if self._stem in NORMWISE and magnitude.numel():
            dims = list(range(NORMWISE[self._stem], magnitude.dim()))
            slack = slack.clamp(min=NORMWISE_SLACK * eps * magnitude.amax(dims, keepdim=True))
        return slack

    def _rounding(self, index: int, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What roundings to ``dtype``, or to that of an input, on the way explain of result ``index``."""
        if self._stem in SAMPLING:
            return torch.full_like(value, torch.inf)
        tensors = [leaf for leaf in tree_leaves((self._call.args, self._call.kwargs)) if isinstance(leaf, torch.Tensor)]
        eps = max(torch.finfo(each).eps for each in (dtype, *(t.dtype for t in tensors if t.dtype in WIDER)))
        if self._stem in LOSS_GRADIENTS:
            return LINEAR_SLACK * (eps * value.abs() + small_products(self._call, self._stem, value, dtype))
        magnitude = self._magnitude(index, value)
        return PERTURBATION_SLACK * self._movement(index, eps) if magnitude is None else LINEAR_SLACK * eps * magnitude

    def _magnitude(self, index: int, value: torch.Tensor) -> torch.Tensor | None:
        """What the terms of a linear result add up to in magnitude."""
        if self._stem in WITH_MEAN and index != _MEAN:
            return None
        magnitude = self._magnitudes[index] if self._magnitudes else None
        if not isinstance(magnitude, torch.Tensor) or magnitude.shape != value.shape:
            return None
        return magnitude.abs().nan_to_num(0.0, 0.0, 0.0)

    def moved(self, index: int, eps: float) -> torch.Tensor:
        """How far each element of result ``index`` goes at most when all that it is made of moves by ``eps``."""
        if eps not in self._farthest:
            assert self._values is not None
            self._farthest[eps] = farthest_moves(self._call, self._stem, self._values, eps)
        return self._farthest[eps][index]

    def _movement(self, index: int, eps: float) -> torch.Tensor:
        """Likewise, and the median element's where that is farther: all trials may leave one of thousands in place."""
        farthest = self.moved(index, eps)
        return farthest.clamp(min=farthest.median()) if farthest.numel() else farthest

    @cached_property
    def _logarithms(self) -> Opinion | None:
        """What is known of the logarithms that a fused attention returns, which few calls are asked about."""
        return logsumexp(self._stem, self._call.bound())

    @cached_property
    def _attention(self) -> Sequence[Opinion]:
        """What is known of a fused attention's first result, or of all its gradients."""
        arguments = self._call.bound()
        if self._stem in BACKWARDS:
            return gradients(arguments) or ()
        found = attention(arguments)
        return () if found is None else [found]

    @cached_property
    def _values(self) -> list[Any] | None:
        if self._stem in EXCLUDED or self._call.bound().get("rounding_mode"):
            return None
        values = run_wide(self._call, self._count)
        return self._with_poles(values) if self._stem == "polygamma" and values else values

    def _with_poles(self, values: list[Any]) -> list[Any]:
        """Trigamma's poles, which eager leaves finite in every dtype: its ``sin(pi x)`` is 0 for no integer x."""
        arguments = self._call.bound()
        x = arguments["self"].double()
        at_pole = (x <= 0) & (x == x.floor()) & (arguments["n"] == 1)
        return [value.masked_fill(at_pole.to(value.device), torch.inf) for value in values]

    @cached_property
    def _sums_reduction(self) -> bool:
        return self._stem in LINEAR_REDUCTIONS and self._call.bound().get("reduce") in ("sum", "add", "mean")

    @cached_property
    def _adds_in_memory(self) -> bool:
        return self._stem in ADDED_IN_MEMORY | SAMPLERS or self._sums_reduction

    @property
    def _adds_between_ranks(self) -> bool:
        return self._call.schema.kind is TaskKind.PARALLEL

    @cached_property
    def _walks(self) -> list[torch.Tensor | None]:
        if self._adds_between_ranks:
            return walks_between_ranks(self._call, self._values or [])
        return walks(self._call, self._stem, self._values or [])

    def _orders(self, index: int) -> torch.Tensor | None:
        return self._walks[index]

    @cached_property
    def _magnitudes(self) -> list[Any] | None:
        if self._stem not in LINEAR | WITH_MEAN and not self._sums_reduction:
            return None
        return run_wide(self._call, self._count, change=in_magnitude)
