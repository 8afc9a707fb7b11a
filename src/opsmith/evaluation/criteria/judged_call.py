"""What the referee looks at when it judges one case: live tensors, all of them its own copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map

from opsmith.aten.arguments import bind, overload_of
from opsmith.core.op import OpSchema
from opsmith.core.verdict import ErrorFigures, Status

#: From here on one core takes longer to compare two results than to copy them to a GPU: with so many elements the
#: sixteen repetitions of eager that a difference asks for take it 0.13 s.
LARGE_ELEMENTS = 1 << 18
#: A result: a tensor, or a number, bool or None that an op returns as it is.
Result = torch.Tensor | bool | int | float | complex | str | None


@dataclass(frozen=True, kw_only=True)
class JudgedCall:
    """The call that both sides answered.

    Attributes:
        schema: the overload called.
        args: positional arguments with their values from before the call.
        kwargs: keyword arguments likewise.
        tolerance: (rtol, atol) that the suite's author declared for this op, or None.
        seed: what the generators were seeded with before eager's first execution, or None where nobody knows.
        small_results: results far below 1 are asked on purpose, so the absolute tolerance follows their size.
    """

    schema: OpSchema
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tolerance: tuple[float, float] | None = None
    seed: int | None = None
    small_results: bool = False

    def bound(self) -> dict[str, Any]:
        """The arguments by their names; see :func:`opsmith.aten.arguments.bind`."""
        return bind(self.schema, self.args, self.kwargs)

    def with_numbers_in(self, dtype: torch.dtype) -> JudgedCall:
        """The call of an op with its floating numbers, defaults too but not its tensors, rounded to a dtype."""
        left_out = overload_of(self.schema)._schema.arguments[len(self.args) :]
        defaults = {each.name: each.default_value for each in left_out if type(each.default_value) is float}
        rounded = partial(_rounded, dtype=dtype)
        return replace(self, args=tree_map(rounded, self.args), kwargs=tree_map(rounded, defaults | self.kwargs))


def _rounded(leaf: Any, *, dtype: torch.dtype) -> Any:
    return torch.tensor(leaf, dtype=dtype).item() if type(leaf) is float else leaf


#: The results of one execution: the leaves of the return value in order, then every input tensor
#: that eager writes to and does not also return. Both sides have the same number of leaves, and
#: each pair the same type, dtype, shape and device, before any values are compared.
Results = Sequence[Result]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a comparison found.

    Attributes:
        status: PASSED or the reason why not.
        detail: one line with the worst element or the broken promise; empty when PASSED.
        figures: distance from the reference, where values were compared elementwise.
    """

    status: Status
    detail: str = ""
    figures: ErrorFigures | None = None

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED
