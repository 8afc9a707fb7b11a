"""Tensors of one value: full, zeros, ones, their relatives after the model of another tensor, and fill.

Traffic: ``numel * itemsize`` bytes written, none read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..common.elementwise import map_into, same
from ..common.launch import delivered, require_plain_memory, require_served, workplace
from ..pointwise.basic import require_holds

Number = bool | int | float | complex


def full(
    size: Sequence[int],
    fill_value: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """A tensor of ``fill_value``; without a dtype, of its kind: bool, int64, or the default float or complex type."""
    kind = dtype or _type_of(fill_value)
    return filled(empty(size, kind, layout, device, pin_memory), fill_value)


def _type_of(value: Number) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    default = torch.get_default_dtype()
    if isinstance(value, complex):
        return torch.complex128 if default == torch.float64 else torch.complex64
    return default


def empty(
    size: Sequence[int],
    dtype: torch.dtype | None,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
) -> torch.Tensor:
    """An unwritten tensor, as the arguments of a creation op ask for it.

    Raises:
        NotImplementedError: a layout or a kind of memory that no kernel here writes.
    """
    require_plain_memory(layout, pin_memory)
    return torch.empty(size, dtype=dtype, device=device)


def filled(out: torch.Tensor, value: Number) -> torch.Tensor:
    """Write ``value`` into every element of ``out``; a complex one as its two parts.

    Raises:
        OverflowError: ``out``'s type does not hold the value.
    """
    if out.is_complex():
        real, imaginary = torch.view_as_real(out).unbind(-1)
        filled(real, complex(value).real)
        filled(imaginary, complex(value).imag)
        return out
    require_served(out)
    if isinstance(value, complex):
        raise OverflowError(f"{value!r} is no {out.dtype} value")
    if out.dtype == torch.bool:
        value = bool(value)
    else:
        require_holds(out.dtype, value)
    map_into(out, same, [value], [out.dtype])
    return out


def zero_(self: torch.Tensor) -> torch.Tensor:
    """Write 0 everywhere."""
    return filled(self, 0)


def scalar_tensor(
    s: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """A tensor without dimensions, of the default float type unless ``dtype`` says else."""
    return filled(empty([], dtype, layout, device, pin_memory), s)


# ---------------------------------------------------------------- after the model of another tensor


def full_like(
    self: torch.Tensor,
    fill_value: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """A tensor of ``fill_value`` with the shape and, where it is dense, the strides of ``self``."""
    out = empty_after(self, dtype, layout, device, pin_memory, memory_format)
    return delivered(filled(out, fill_value), device)


def empty_after(
    model: torch.Tensor,
    dtype: torch.dtype | None,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
    memory_format: torch.memory_format | None,
) -> torch.Tensor:
    """An unwritten tensor laid out as ``model``, or as ``memory_format`` says; on the :func:`.workplace`.

    Raises:
        NotImplementedError: a layout or a kind of memory that no kernel here writes.
    """
    require_plain_memory(model.layout, pin_memory)
    require_plain_memory(layout, pin_memory)
    strides = memory_format or torch.preserve_format
    return torch.empty_like(model, dtype=dtype, device=workplace(device, model), memory_format=strides)


def new_full(
    self: torch.Tensor,
    size: Sequence[int],
    fill_value: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """A tensor of ``fill_value`` with the dtype and on the device of ``self``."""
    out = empty(size, dtype or self.dtype, layout, workplace(device, self), pin_memory)
    return delivered(filled(out, fill_value), device)


Op = Callable[..., torch.Tensor]


def constants(value: int) -> tuple[Op, Op, Op]:
    """Tensors of ``value``: of a size, laid out as ``self``, and of a size with dtype and device of ``self``."""

    def op(
        size: Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> torch.Tensor:
        return filled(empty(size, dtype, layout, device, pin_memory), value)

    def like(
        self: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> torch.Tensor:
        out = empty_after(self, dtype, layout, device, pin_memory, memory_format)
        return delivered(filled(out, value), device)

    def new(
        self: torch.Tensor,
        size: Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> torch.Tensor:
        return new_full(self, size, value, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)

    return op, like, new


zeros, zeros_like, new_zeros = constants(0)
ones, ones_like, new_ones = constants(1)


def fill_scalar(self: torch.Tensor, value: Number) -> torch.Tensor:
    """A tensor of ``value``, laid out as ``self``."""
    return full_like(self, value)


def fill_tensor(self: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As :func:`fill_scalar`, with the one element of a tensor.

    Raises:
        ValueError: ``value`` has dimensions.
    """
    if value.ndim:
        raise ValueError(f"fill takes a tensor without dimensions, not one with {value.ndim}")
    require_served(self, value, joins_numbers=True)
    out = torch.empty_like(self)
    map_into(out, same, [value], [out.dtype])
    return out
