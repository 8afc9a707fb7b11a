"""Views: the memory of an argument under other sizes and strides.

No element moves and nothing is launched: a view is a storage, the place of its first element, sizes and strides. These
are worked out in :mod:`.strided_views`. Traffic: none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import strided_views
from .strided_views import View

#: The complex type whose numbers are pairs of a type, and the other way round.
_COMPLEX = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
_REAL = {pairs: numbers for numbers, pairs in _COMPLEX.items()}


def seen(tensor: torch.Tensor) -> View:
    """How a tensor looks at its storage.

    Raises:
        NotImplementedError: a layout that has no strides, or a type that has scales beside its numbers.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise NotImplementedError(f"views of {tensor.dtype} tensors of layout {tensor.layout} are not served")
    return View(int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride())


def tensor_over(storage: torch.UntypedStorage, view: View, dtype: torch.dtype) -> torch.Tensor:
    """A tensor that looks at a storage."""
    handle = torch.empty(0, dtype=dtype, device=storage.device)
    return handle.set_(storage, *view)


def viewed(tensor: torch.Tensor, view: View) -> torch.Tensor:
    """The memory of a tensor under another view; lazy conjugation and negation stay."""
    out = tensor_over(tensor.untyped_storage(), view, tensor.dtype)
    if tensor.is_conj():
        torch._C._set_conj(out, True)
    if tensor.is_neg():
        torch._C._set_neg(out, True)
    return out


def become(tensor: torch.Tensor, view: View) -> torch.Tensor:
    """Let a tensor itself look at its storage in another way."""
    return tensor.set_(tensor.untyped_storage(), *view)


# ---------------------------------------------------------------- the same elements


def alias(self: torch.Tensor) -> torch.Tensor:
    """The same view once more."""
    return viewed(self, seen(self))


def lift_fresh(self: torch.Tensor) -> torch.Tensor:
    """The argument itself."""
    return self


def permute(self: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Dimension ``d`` of the result is dimension ``dims[d]``."""
    return viewed(self, strided_views.permuted(seen(self), dims))


def transpose(self: torch.Tensor, dim0: int, dim1: int) -> torch.Tensor:
    """Two dimensions for each other."""
    return viewed(self, strided_views.transposed(seen(self), dim0, dim1))


def transpose_(self: torch.Tensor, dim0: int, dim1: int) -> torch.Tensor:
    """As :func:`transpose`, of the tensor itself."""
    return become(self, strided_views.transposed(seen(self), dim0, dim1))


def t(self: torch.Tensor) -> torch.Tensor:
    """A matrix transposed; fewer dimensions as they are."""
    return viewed(self, strided_views.transposed_matrix(seen(self)))


def t_(self: torch.Tensor) -> torch.Tensor:
    """As :func:`t`, of the tensor itself."""
    return become(self, strided_views.transposed_matrix(seen(self)))


def squeeze(self: torch.Tensor) -> torch.Tensor:
    """Without dimensions of size 1."""
    return viewed(self, strided_views.squeezed(seen(self)))


def squeeze_dim(self: torch.Tensor, dim: int) -> torch.Tensor:
    """Without a dimension, if its size is 1."""
    return viewed(self, strided_views.squeezed(seen(self), [dim]))


def squeeze_dims(self: torch.Tensor, dim: Sequence[int]) -> torch.Tensor:
    """Without those of some dimensions whose size is 1."""
    return viewed(self, strided_views.squeezed(seen(self), dim))


def squeeze_(self: torch.Tensor) -> torch.Tensor:
    """As :func:`squeeze`, of the tensor itself."""
    return become(self, strided_views.squeezed(seen(self)))


def squeeze_dim_(self: torch.Tensor, dim: int) -> torch.Tensor:
    """As :func:`squeeze_dim`, of the tensor itself."""
    return become(self, strided_views.squeezed(seen(self), [dim]))


def squeeze_dims_(self: torch.Tensor, dim: Sequence[int]) -> torch.Tensor:
    """As :func:`squeeze_dims`, of the tensor itself."""
    return become(self, strided_views.squeezed(seen(self), dim))


def unsqueeze(self: torch.Tensor, dim: int) -> torch.Tensor:
    """With a dimension of size 1 put in at ``dim``."""
    return viewed(self, strided_views.unsqueezed(seen(self), dim))


def unsqueeze_(self: torch.Tensor, dim: int) -> torch.Tensor:
    """As :func:`unsqueeze`, of the tensor itself."""
    return become(self, strided_views.unsqueezed(seen(self), dim))


def expand(self: torch.Tensor, size: Sequence[int], *, implicit: bool = False) -> torch.Tensor:  # noqa: ARG001 - Of vmap.
    """Repeated along dimensions of size 1 and new ones, without memory for it."""
    return viewed(self, strided_views.expanded(seen(self), size))


def view(self: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """The elements in their order under another shape."""
    return viewed(self, strided_views.reshaped(seen(self), size))


# ---------------------------------------------------------------- some of the elements


def select(self: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """One place of a dimension, which goes."""
    return viewed(self, strided_views.selected(seen(self), dim, index))


def slice_tensor(
    self: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> torch.Tensor:
    """Every ``step``-th place of a dimension, from ``start`` to before ``end``."""
    return viewed(self, strided_views.sliced(seen(self), dim, start, end, step))


def split(self: torch.Tensor, split_size: int, dim: int = 0) -> list[torch.Tensor]:
    """Stretches of ``split_size`` places of a dimension; the last one may be shorter."""
    return [viewed(self, part) for part in strided_views.split_evenly(seen(self), split_size, dim)]


def split_with_sizes(self: torch.Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    """Stretches of these sizes, which make up the dimension."""
    return [viewed(self, part) for part in strided_views.split_into(seen(self), split_sizes, dim)]


def unbind(self: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    """Each place of a dimension."""
    return [viewed(self, part) for part in strided_views.unbound(seen(self), dim)]


def diagonal(self: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """The diagonal ``offset`` above the main one, in a dimension behind the others."""
    return viewed(self, strided_views.diagonal_of(seen(self), offset, dim1, dim2))


def unfold(self: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Windows of ``size`` places, ``step`` apart; what lies in a window is the last dimension."""
    return viewed(self, strided_views.unfolded(seen(self), dimension, size, step))


# ---------------------------------------------------------------- whatever is asked for


def as_strided(
    self: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> torch.Tensor:
    """Any view of the storage; without an offset, from where ``self`` begins."""
    return viewed(self, _anywhere(self, size, stride, storage_offset))


def as_strided_(
    self: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> torch.Tensor:
    """As :func:`as_strided`, of the tensor itself."""
    return become(self, _anywhere(self, size, stride, storage_offset))


def _anywhere(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int | None) -> View:
    view = strided_views.anywhere(sizes, strides, seen(tensor).offset if offset is None else offset)
    if view.end * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise RuntimeError(
            f"elements up to {view.end} do not lie in a storage of {tensor.untyped_storage().nbytes()} bytes"
        )
    return view


# ---------------------------------------------------------------- complex numbers


def conj(self: torch.Tensor) -> torch.Tensor:
    """The conjugates: the same memory, whose imaginary parts count with the other sign."""
    out = alias(self)
    torch._C._set_conj(out, not self.is_conj())
    return out


def view_as_real(self: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones, in a dimension behind the others.

    Raises:
        RuntimeError: real numbers, or complex ones that are conjugated lazily.
    """
    if not self.is_complex() or self.is_conj():
        raise RuntimeError("view_as_real takes complex numbers that are not conjugated lazily: call resolve_conj first")
    offset, sizes, strides = seen(self)
    pairs = View(2 * offset, (*sizes, 2), (*(2 * stride for stride in strides), 1))
    out = tensor_over(self.untyped_storage(), pairs, _REAL[self.dtype])
    if self.is_neg():
        torch._C._set_neg(out, True)
    return out


def view_as_complex(self: torch.Tensor) -> torch.Tensor:
    """Pairs of real numbers, in the last dimension, as complex ones.

    Raises:
        RuntimeError: another type, or pairs that do not lie as complex numbers do.
    """
    offset, sizes, strides = seen(self)
    if self.dtype not in _COMPLEX:
        raise RuntimeError(f"view_as_complex takes half, float or double numbers, not {self.dtype}")
    if sizes[-1:] != (2,) or strides[-1] != 1 or any(place % 2 for place in (offset, *strides[:-1])):
        raise RuntimeError(f"view_as_complex takes pairs that lie beside each other, not {sizes} at strides {strides}")
    numbers = View(offset // 2, sizes[:-1], tuple(stride // 2 for stride in strides[:-1]))
    return tensor_over(self.untyped_storage(), numbers, _COMPLEX[self.dtype])
