"""What a kernel writes to, copied before its first call of a kind: a kernel that raises has changed nothing then.

PyTorch can answer after a kernel raised if nothing was written. Of a kernel that writes to its arguments nobody knows
that: it may raise between two launches. Nearly all that a kernel raises it raises at its first call with arguments of
a kind, so that is when a copy is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.aten.arguments import written_by
from opsmith.aten.derivation import DoesNotFit

Call = Callable[..., Any]

#: Kinds of calls kept for an op; a model with dynamic shapes brings a new one with each call.
_KEPT = 1024


class Restored(RuntimeError):
    """A kernel raised, as the cause says, and what it may have written to is as it was before the call."""


def with_backups(kernel: Call, op: torch._ops.OpOverload) -> Call:
    """A kernel that writes to its arguments, which are put back if it raises at its first call of a kind.

    There is no copy if memory is short, nor while a CUDA graph is captured, which would repeat it.

    Args:
        kernel: takes the arguments of the overload.
        op: the overload.

    Returns:
        a function that raises :class:`Restored` from what the kernel raises.
    """
    answered: set[Hashable] = set()
    written = written_by(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        kind = kind_of((*args, *kwargs.items()))
        if kind in answered:
            return kernel(*args, **kwargs)
        tensors = written(args, kwargs)
        copies = _copies(tensors)
        try:
            result = kernel(*args, **kwargs)
        except (NotImplementedError, DoesNotFit):
            raise
        except Exception as exc:
            if copies is None:
                raise
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)
            raise Restored from exc
        if len(answered) >= _KEPT:
            answered.clear()
        answered.add(kind)
        return result

    return call


def _copies(tensors: Sequence[Tensor]) -> list[Tensor] | None:
    if any(tensor.is_cuda for tensor in tensors) and torch.cuda.is_current_stream_capturing():
        return None
    try:
        return [tensor.clone() for tensor in tensors]
    except torch.OutOfMemoryError:
        return None


def kind_of(values: Iterable[Any]) -> Hashable:
    """Dtypes, shapes and strides of tensors, and all other values, of lists as well."""
    return tuple(
        (value.shape, value.stride(), value.dtype)
        if isinstance(value, Tensor)
        else kind_of(value)
        if isinstance(value, (list, tuple))
        else value
        for value in values
    )
