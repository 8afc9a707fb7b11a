"""Results laid out as eager lays them out.

A kernel may return any dense layout; a model may rely on eager's, through ``view`` or through strides
that it reads. Where arguments and result are contiguous, so is eager's result. Else the original kernel is
asked, once for each signature, because torch's meta kernels are wrong about the strides of some ops
(``linalg_eig``, ``_fft_c2r``, ``max_unpool2d``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.core.op import OpSchema
from opsmith.dispatch.backups import kind_of

Call = Callable[..., Any]
#: Shape and strides of a result, or None where it is no strided tensor.
Form = tuple[tuple[int, ...], tuple[int, ...]] | None

#: Signatures kept for an op; a model with dynamic shapes brings a new one with each call.
_KEPT = 1024

#: Ops whose results are not contiguous though their arguments are: column-major factorisations, Fourier
#: transforms, and some that return views of what they make.
_OWN_LAYOUT = (
    *("_fft_", "_linalg_", "_lu_", "cholesky", "fft_", "geqrf", "linalg_", "lu_", "qr", "stft", "triangular_solve"),
    *("argwhere", "broadcast_tensors", "meshgrid", "new_empty_strided", "nonzero", "rot90", "unsafe_"),
)


class EagerLayout:
    """Puts the results of one functional overload into eager's layout.

    Args:
        schema: the overload.
    """

    def __init__(self, schema: OpSchema) -> None:
        self._plain = not _chooses_layout(schema)
        self._known: dict[Any, tuple[Form, ...]] = {}

    def is_plain(self, result: Any, args: tuple[Any, ...]) -> bool:
        """Whether a single result is laid out as eager's without a look at the table: all is contiguous."""
        if not self._plain or type(result) is not Tensor or not result.is_contiguous():
            return False
        for value in args:
            kind = type(value)
            if kind is Tensor or kind is Parameter:
                if not value.is_contiguous():
                    return False
            elif (kind is list or kind is tuple) and not _all_contiguous(value):
                return False
        return True

    def as_eager(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], original: Call) -> Any:
        """``result``, or copies of those of its tensors that ``original`` would have laid out otherwise."""
        if isinstance(result, Tensor):
            return _relaid(result, self._forms((result,), args, kwargs, original)[0])
        if not isinstance(result, (tuple, list)):
            return result
        if self._plain and _all_contiguous(result) and _all_contiguous(args):
            return result
        forms = self._forms(result, args, kwargs, original)
        relaid = [_relaid(tensor, form) for tensor, form in zip(result, forms, strict=True)]
        return relaid if isinstance(result, list) else tuple(relaid)

    def _forms(
        self, results: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any], original: Call
    ) -> tuple[Form, ...]:
        key = kind_of((*args, *kwargs.items()))
        known = self._known.get(key)
        # The sizes of some results, such as nonzero's, depend on the values as well.
        if known is None or [form and form[0] for form in known] != [form and form[0] for form in map(_form, results)]:
            if len(self._known) >= _KEPT:
                self._known.clear()
            asked = original(*args, **kwargs)
            known = tuple(map(_form, asked if isinstance(asked, (tuple, list)) else (asked,)))
            self._known[key] = known
        return known


def _chooses_layout(schema: OpSchema) -> bool:
    """Whether eager may return another layout than the contiguous one for contiguous arguments."""
    return schema.name.startswith(_OWN_LAYOUT) or "attention" in schema.name or "memory_format" in schema.schema


def _all_contiguous(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, Tensor):
            if not value.is_contiguous():
                return False
        elif isinstance(value, (list, tuple)) and not _all_contiguous(value):
            return False
    return True


def _form(result: Any) -> Form:
    return (result.shape, result.stride()) if isinstance(result, Tensor) and result.layout is torch.strided else None


def _relaid(result: Any, form: Form) -> Any:
    if form is None or type(result) is not Tensor:
        return result
    shape, strides = form
    # Another shape than eager's is the kernel's mistake; to write it into eager's strides would be a second one.
    same = all(size < 2 or mine == due for size, mine, due in zip(shape, result.stride(), strides, strict=False))
    if same or result.shape != shape:
        return result
    return torch.empty_strided(shape, strides, dtype=result.dtype, device=result.device).copy_(result)
