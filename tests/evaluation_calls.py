"""Calls on ATen overloads as the referee would hand them to a comparison."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opsmith.core.op import OpSchema, Variant
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Result, Results


def schema_of(overload: Any, variant: Variant = Variant.FUNCTIONAL) -> OpSchema:
    """The record of ``overload``, for example ``torch.ops.aten.add.Tensor``."""
    return OpSchema(
        name=str(overload).removeprefix("aten."),
        schema=str(overload._schema),
        variant=variant,
        tags=tuple(tag.name for tag in overload.tags),
    )


def call_of(overload: Any, *args: Any, **kwargs: Any) -> JudgedCall:
    """A call without a declared tolerance."""
    return JudgedCall(schema=schema_of(overload), args=args, kwargs=kwargs)


def leaves(result: Any) -> list[Result]:
    """The leaves of a return value in order."""
    return list(result) if isinstance(result, tuple | list) else [result]


def judge(overload: Any, args: tuple[Any, ...], candidate: Any, *, tolerance: str = "strict", **kwargs: Any) -> Finding:
    """Compare ``candidate`` with what eager answers on clones of ``args``."""
    fresh = tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)
    reference: Results = leaves(overload(*fresh, **kwargs))
    return compare(call_of(overload, *args, **kwargs), [reference], [leaves(candidate)], tolerance=tolerance)


class WithoutUnsigned(TorchDispatchMode):
    """A torch that copies unsigned numbers of more than 8 bits and compares them, as 2.11 does and hardly more."""

    _KNOWN = frozenset(
        {
            *("eq", "ne", "equal", "_to_copy", "copy_", "clone", "_local_scalar_dense", "detach", "empty", "stack"),
            *("view", "_unsafe_view", "select", "slice", "flatten", "reshape", "_reshape_alias", "unsqueeze"),
            *("expand", "as_strided", "transpose", "permute", "alias", "lift_fresh", "cat"),
        }
    )
    _UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if func.overloadpacket.__name__ not in self._KNOWN and any(leaf.dtype in self._UNSIGNED for leaf in leaves):
            raise NotImplementedError(f"{func} not implemented for {[leaf.dtype for leaf in leaves]}")
        return func(*args, **(kwargs or {}))
