"""Does the tolerance tell float32 from float16?

Model runs a second time with its inputs, its state and the result of every ATen call rounded to float16 and back:
what a solution returns that keeps everything in half precision and accumulates in float32. If that answer passes,
nobody can tell such a solution from an honest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from opsmith.aten.schemas import aten_schemas
from opsmith.audit.draws import Draws, alike
from opsmith.audit.redundancy import has_floats, op_name, writes_itself
from opsmith.core.audit import AuditFinding, Check
from opsmith.core.op import Variant


def findings(draws: Draws) -> Iterator[AuditFinding]:
    """Whether half precision passes for single."""
    if not any(result.dtype is torch.float32 for result in draws.answers[0]):
        return
    if not has_floats((draws.inputs[0], draws.state)):
        return
    inputs = tree_map(_rounded, draws.inputs[0])
    state = {name: _rounded(tensor) for name, tensor in draws.state.items()}
    if alike(draws.answers[0], draws.answer(inputs, state, mode=_HalfResults())):
        yield AuditFinding(
            check=Check.TOLERANCE, detail="inputs, weights and every result rounded to float16 pass for float32"
        )


class _HalfResults(TorchDispatchMode):
    """Rounds the float32 results of every call to float16."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        schema = aten_schemas().get(op_name(func))
        if schema is None or schema.variant is Variant.VIEW:
            return result  # What a view shows was rounded when it was made.
        if writes_itself(func):
            written = args[0]
            return written.copy_(_rounded(written)) if isinstance(written, torch.Tensor) else result
        return tree_map(_rounded, result)


def _rounded(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.dtype is not torch.float32:
        return leaf
    return leaf.half().float()
