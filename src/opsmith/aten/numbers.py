"""Python numbers as the tensors that torch makes of them.

``x * 2.5`` dispatches ``mul.Tensor`` with a 0-dim tensor that is marked as a number, so that it takes no
part in type promotion as a tensor would. A kernel in Python is handed ``2.5`` instead, and the original kernel
takes tensors only. No public function sets the mark; but the tensors that autograd saves carry it, and
``detach`` and ``set_`` keep it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
#: The types of Python's numbers that torch takes where a schema says Tensor.
NUMBER_TYPES = frozenset(_DTYPES)


@functools.cache
def tensor_positions(op: OpOverload) -> tuple[int, ...]:
    """Where an overload takes a tensor."""
    arguments = enumerate(op._schema.arguments)
    return tuple(index for index, argument in arguments if isinstance(argument.type, torch.TensorType))


def with_tensors(args: tuple[Any, ...], positions: Iterable[int]) -> tuple[Any, ...]:
    """The arguments with torch's tensors in place of numbers at these positions."""
    given = len(args)
    for position in positions:
        if position < given and type(args[position]) in NUMBER_TYPES:
            args = (*args[:position], wrapped_number(args[position]), *args[position + 1 :])
    return args


def has_number(args: tuple[Any, ...], positions: Iterable[int]) -> bool:
    """Whether a number stands for a tensor at one of these positions."""
    return any(type(args[position]) in NUMBER_TYPES for position in positions if position < len(args))


def wrapped_number(value: complex) -> Tensor:
    """The 0-dim CPU tensor that torch makes of a bool, int, float or complex, mark included; not to be written to."""
    # Zeros, and the parts of complex numbers, differ in their sign, which a dictionary's keys do not.
    return _kept(value) if value and type(value) is not complex else _make(value)


def prepare() -> None:
    """Make the templates while multiplication still is torch's own."""
    for dtype in _DTYPES.values():
        _template(dtype)


def _make(value: complex) -> Tensor:
    dtype = _DTYPES[type(value)]
    with torch.inference_mode(False), torch.no_grad():
        number = torch.scalar_tensor(value, dtype=dtype, device="cpu")
        return _template(dtype).detach().set_(number.untyped_storage(), 0, (), ())


#: A model's numbers are few, and making one takes longer than a small op.
_kept = functools.lru_cache(256, typed=True)(_make)


@functools.cache
def _template(dtype: torch.dtype) -> Tensor:
    number = torch.ones((), dtype=dtype).item()
    with torch.inference_mode(False), torch.enable_grad():
        product = torch.ones((), dtype=torch.complex64, requires_grad=True, device="cpu") * number
    saved = getattr(product.grad_fn, "_saved_other")  # noqa: B009 - not declared
    assert isinstance(saved, Tensor)
    assert saved.dtype is dtype
    return saved
