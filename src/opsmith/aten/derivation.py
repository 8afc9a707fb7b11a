"""In-place and ``out=`` overloads answered by the functional kernel of their group plus a copy.

The pairing follows ``torchgen.model.FunctionSchema.signature``: the functional overload takes the
same arguments without the ``out=`` ones, and returns what the variant returns followed by one
result for every argument that the variant writes to and does not return (``self`` first, then
``out=``, then the others). What eager checks before it writes is checked here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opsmith.aten.arguments import share_memory, tensors_in

#: Factory arguments that the functional overload takes and the ``out=`` overload reads from ``out``.
_FACTORY_ARGUMENTS = {"dtype", "device"}


#: What torch says of a tensor two of whose elements certainly share memory.
_OVERLAPS = 1
#: Packets beside the pointwise ones whose ``out=`` may have a wider dtype than the result.
_CASTING = frozenset(
    {
        *("sum", "nansum", "mean", "prod", "cumsum", "cumprod", "logsumexp", "std", "var", "cat", "stack"),
        *("_chunk_cat", "mse_loss", "smooth_l1_loss", "huber_loss", "addr", "glu", "im2col", "floor_divide", "norm"),
        *("linalg_vector_norm", "arange", "eye", "full", "linspace", "logspace", "ones", "zeros", "scalar_tensor"),
        *("full_like", "ones_like", "zeros_like", "new_full", "new_ones", "new_zeros"),
    }
)


class DoesNotFit(RuntimeError):
    """A result that eager would not write where it is to go; nothing has been written yet."""


def derived_exactly(
    kernel: Callable[..., Any], variant: torch._ops.OpOverload, functional: torch._ops.OpOverload
) -> Callable[..., Any]:
    """As :class:`DerivedKernel`, for the plain case alone; what is not is left to eager.

    The destination has the result's shape and dtype already, and overlaps no other argument: there eager
    raises, or its result depends on how it is computed.

    Returns:
        a function that raises :class:`DoesNotFit` before it writes to anything.
    """
    general = DerivedKernel(kernel, variant, functional, converts=False)
    arguments = variant._schema.arguments
    written = [(index, argument.name) for index, argument in enumerate(arguments) if argument.alias_info is not None]
    if general.writes_one_tensor:
        return _into_one_tensor(kernel, *written[0], may_be_read=general.reads_what_it_writes)

    def call(*args: Any, **kwargs: Any) -> Any:
        destinations = [args[index] if index < len(args) else kwargs[name] for index, name in written]
        if share_memory(destinations, (*args, *kwargs.values())):
            raise DoesNotFit("an argument that is written to overlaps another")
        return general(*args, **kwargs)

    return call


def _into_one_tensor(kernel: Callable[..., Any], position: int, name: str, *, may_be_read: bool) -> Callable[..., Any]:
    """The frequent case, in as few steps as it takes: it is most of what an in-place call costs on the host."""
    tensor, overlaps = torch.Tensor, torch._C._overlaps

    def call(*args: Any, **kwargs: Any) -> Any:
        destination = args[position] if position < len(args) else kwargs.pop(name)
        for value in args:
            kind = type(value)
            if kind is list or kind is tuple:
                met = share_memory((destination,), value, or_are_one=not may_be_read)
            else:
                # Sharing a storage is found fast, overlapping in it is not.
                met = (
                    not may_be_read
                    if value is destination
                    else isinstance(value, tensor)
                    and overlaps(value, destination)
                    and share_memory((destination,), (value,))
                )
            if met:
                raise DoesNotFit("the argument that is written to overlaps another")
        result = kernel(*args, **kwargs)
        if (
            result.dtype is not destination.dtype
            or result.shape != destination.shape
            or result.device != destination.device
        ):
            raise DoesNotFit("the result has another shape, dtype or device than the argument that it goes to")
        destination.copy_(result)
        return destination

    return call


class DerivedKernel:
    """Calls a functional kernel as if it were the in-place or ``out=`` overload ``variant``.

    Args:
        kernel: takes the arguments of ``functional``.
        variant: the overload to stand in for.
        functional: the functional overload of the same group.
        converts: give an ``out=`` argument of another shape the shape of the result and cast to an argument
            of another dtype, as most of eager's ops do; else only the same shape and dtype fit.

    Attributes:
        kernel: as given.
        writes_one_tensor: it copies its one result into its one destination, a tensor, and returns that.
        reads_what_it_writes: an argument may also be the one that is written to: of ops that are elementwise, or
            have an in-place form.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        variant: torch._ops.OpOverload,
        functional: torch._ops.OpOverload,
        *,
        converts: bool = True,
    ) -> None:
        arguments = variant._schema.arguments
        self.kernel = kernel
        self._names = [argument.name for argument in arguments]
        self._out_names = {argument.name for argument in arguments if argument.is_out}
        self._returned = [_written_by(returned, arguments) for returned in variant._schema.returns]
        self._written = self._returned + [name for name in _written(arguments) if name not in self._returned]
        self._result_count = len(functional._schema.returns)
        is_pointwise = torch.Tag.pointwise in variant.tags
        packet = variant._schema.name.removeprefix("aten::")
        has_in_place_form = hasattr(torch.ops.aten, f"{packet}_")
        self.reads_what_it_writes = is_pointwise or has_in_place_form or not self._out_names
        self._converts = converts
        self._casts = converts and (is_pointwise or packet in _CASTING)
        self._factory_arguments = _FACTORY_ARGUMENTS & {a.name for a in functional._schema.arguments} - {*self._names}
        self.writes_one_tensor = (
            self._returned == self._written
            and len(self._written) == 1 == self._result_count
            and all(isinstance(a.type, torch.TensorType) for a in arguments if a.name in self._written)
            and not self._factory_arguments
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the functional result and copy it into the arguments that the variant writes to.

        Raises:
            DoesNotFit: eager would refuse the destination's dtype, device or (in-place) shape, or the memory that it
                shares with itself or with an argument.
            TypeError: the functional kernel returned another structure than its schema says.
        """
        bound = {**dict(zip(self._names, args, strict=False)), **kwargs}
        if self._out_names:
            self._check_memory(bound)
        results = self._unpacked(self.kernel(*args, **self._functional_kwargs(kwargs)))
        writes = [(result, name) for result, name in zip(results, self._written, strict=True) if name is not None]
        for result, name in writes:
            is_out = name in self._out_names
            casts = self._casts if is_out else self._converts
            _check(result, bound[name], name, resizable=is_out and self._converts, casts=casts)
            if is_out:
                _check_growth(result, bound[name], args)
        for result, name in writes:
            _store(result, bound[name])
        returned = [
            result if name is None else bound[name] for result, name in zip(results, self._returned, strict=False)
        ]
        return returned[0] if len(returned) == 1 else tuple(returned) or None

    def _check_memory(self, bound: dict[str, Any]) -> None:
        destinations = tensors_in(bound[name] for name in self._written if name is not None)
        if any(torch._debug_has_internal_overlap(tensor) == _OVERLAPS for tensor in destinations):
            raise DoesNotFit("several elements of the tensor that is written to share memory")
        read = [value for name, value in bound.items() if name not in self._written]
        if share_memory(destinations, read, or_are_one=not self.reads_what_it_writes):
            raise DoesNotFit("the tensor that is written to overlaps an argument")

    def _functional_kwargs(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in kwargs.items() if name not in self._out_names}
        if self._factory_arguments and self._out_names:
            out = next(kwargs[name] for name in self._names if name in self._out_names)
            kept |= {name: getattr(out, name) for name in self._factory_arguments}
        return kept

    def _unpacked(self, result: Any) -> Sequence[Any]:
        if self._result_count == 1:
            return (result,)
        if not isinstance(result, (tuple, list)) or len(result) != self._result_count:
            raise TypeError(
                f"the functional kernel returned {_kind(result)}; its schema has {self._result_count} results"
            )
        return result


def _written_by(returned: Any, arguments: Sequence[Any]) -> str | None:
    """The argument that a return value is, or None for a fresh result."""
    if returned.alias_info is None:
        return None
    aliases = {frozenset(a.alias_info.before_set): str(a.name) for a in arguments if a.alias_info is not None}
    return aliases[frozenset(returned.alias_info.before_set)]


def _written(arguments: Sequence[Any]) -> list[str]:
    """The arguments written to, in the order in which the functional overload returns them."""
    written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    return [str(a.name) for a in sorted(written, key=lambda a: (a.name != "self", not a.is_out))]


def _check(result: Any, destination: Any, name: str, *, resizable: bool, casts: bool) -> None:
    if isinstance(destination, (list, tuple)):
        if not isinstance(result, (list, tuple)) or len(result) != len(destination):
            raise TypeError(
                f"the functional kernel returned {_kind(result)} for the {len(destination)} tensors of {name}"
            )
        for one_result, one_destination in zip(result, destination, strict=True):
            _check(one_result, one_destination, name, resizable=resizable, casts=casts)
        return
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"the functional kernel returned {_kind(result)} where {name} needs a tensor")
    if result.dtype is not destination.dtype and not (casts and torch.can_cast(result.dtype, destination.dtype)):
        raise DoesNotFit(f"a result of {result.dtype} cannot be cast to the {destination.dtype} of {name}")
    if result.device != destination.device:
        raise DoesNotFit(f"a result on {result.device} cannot be written to {name} on {destination.device}")
    if result.shape != destination.shape and not resizable:
        raise DoesNotFit(f"a result of shape {[*result.shape]} does not fit {name} of shape {[*destination.shape]}")


def _check_growth(result: Any, destination: Any, values: Sequence[Any]) -> None:
    """Refuse a tensor that would be given another size in memory that an argument looks at."""
    is_resized = isinstance(result, torch.Tensor) and result.shape != destination.shape
    if is_resized and any(torch._C._overlaps(source, destination) for source in tensors_in(values)):
        raise DoesNotFit("the tensor that is to be resized shares its memory with an argument")


def _store(result: Any, destination: Any) -> None:
    if isinstance(destination, (list, tuple)):
        for one_result, one_destination in zip(result, destination, strict=True):
            _store(one_result, one_destination)
        return
    if destination.shape != result.shape:
        destination.resize_(result.shape)
        # Eager, too, chooses the layout then: the result's order of dimensions, without gaps.
        destination.as_strided_(result.shape, torch.empty_like(result, device="meta").stride())
    destination.copy_(result)


def _kind(value: Any) -> str:
    return f"{len(value)} results" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
