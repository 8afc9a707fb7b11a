"""Makes a launch plan out of one call of a kernel: what it allocates, which views it takes, what it launches.

A dispatch mode sees everything that the kernel asks of ATen, wrappers see Triton's launches and the settings that are
read. Tensors are told apart as objects, not by address: two arguments may lie at one address now and at two in the
next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.aten.arguments import tensors_in
from opsmith.aten.strides import extent
from opsmith.dispatch.plans.fp32_precision import watched_precisions
from opsmith.dispatch.plans.plan import (
    Copy,
    Form,
    HostScalar,
    Launch,
    LaunchPlan,
    Memory,
    Number,
    Precision,
    Reach,
    Refusal,
    Result,
)
from opsmith.dispatch.plans.rng_state import COUNTER, Draws, watched_draws
from opsmith.dispatch.plans.triton_launches import Place, Unrepeatable, counted_launches, repeatable, watched_launches

_aten = torch.ops.aten
_ALLOCATIONS = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_strided.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)
#: What they return follows from the signature.
_METADATA = frozenset(
    {
        _aten.can_cast.default,
        _aten.is_same_size.default,
        _aten.promote_types.default,
        *(getattr(_aten.result_type, overload) for overload in _aten.result_type.overloads()),
    }
)

#: Of the memory that a call is recorded with, gaps included, this much is never too much.
_SMALL_BYTES = 1 << 26


class LaunchRecorder(TorchDispatchMode):
    """Records one call of a kernel.

    Args:
        tensors: the arguments that are tensors, in their order.
        written: those of them that the op writes to.
        elementwise: the kernel may write over an argument, see :class:`opsmith.core.kernel.Kernel`.
        device: where the call's results are to be; needed where it has no tensors.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        written: Iterable[Tensor],
        *,
        elementwise: bool,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._elementwise = elementwise
        self._tensors = [*tensors]  # Arguments, then what is allocated.
        self._arguments = len(self._tensors)
        self._device = tensors[0].device if tensors else device
        self._written = [*written]
        #: Of each tensor that is known by now. A tensor that is gone would leave its id to another one.
        self._places: dict[int, tuple[Tensor, Place]] = {}
        self._host_scalars: dict[int, Tensor] = {}
        for number, tensor in enumerate(tensors):
            self._places.setdefault(id(tensor), (tensor, (number, 0)))
        self._steps: list[Launch | Copy] = []
        self._precisions: set[Precision] = set()
        self._draws = Draws()
        self._refusal: Refusal | None = None
        self._result: Any = None
        self._answered = False
        #: Allocations whose form is known: they are copied from, or returned as another view of them.
        self._settled: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """To keep torch's compiler away from the method below, torch would import the compiler: two seconds."""
        return False

    def watching(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """``kernel``, recorded when it is called."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with (
                watched_launches(self._launched),
                watched_precisions(self._precisions.add),
                watched_draws(self._draws),
                counted_launches() as launches,
                self,
            ):
                self._result = kernel(*args, **kwargs)
            self._answered = True
            if len(launches) != sum(isinstance(step, Launch) for step in self._steps):
                self._refuse(Refusal.LAUNCH)
            return self._result

        return call

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _ALLOCATIONS:
            result = self._as_destination(result)
            self._allocated(result)
        elif func is _aten.copy_.default:
            self._copied(*args[:2])
        elif _is_view(func):
            for view in tensors_in(result if isinstance(result, (list, tuple)) else (result,)):
                self._viewed(view, args[0])
        elif func not in _METADATA:
            self._refuse(Refusal.OPERATION)
        return result

    def plan(self, result: Any) -> LaunchPlan | Refusal:
        """What was recorded.

        Args:
            result: what the call returned in the end, which may be laid out in another way than the kernel's result.
        """
        if self._refusal is not None:
            return self._refusal
        if not self._answered:
            return Refusal.FALLBACK
        if self._draws.unknown or (self._draws.words and not self._passes_draws()):
            return Refusal.RANDOM
        form = _form(result)
        if form is None:
            return Refusal.RESULT
        results, own = (_several(one, form) for one in (result, self._result))
        if any(one is not other for one, other in zip(results, own, strict=True) if not isinstance(one, int)):
            return Refusal.LAYOUT
        numbers = [self._returned(one) for one in results]
        if self._refusal is not None:
            return self._refusal
        plan = LaunchPlan(
            tensors=self._arguments,
            device=-1 if self._device is None or self._device.index is None else self._device.index,
            allocations=tuple(map(_memory, self._tensors[self._arguments :])),
            steps=tuple(self._steps),
            results=tuple(numbers),
            form=form,
            reaches=self._reaches(),
            precisions=tuple(sorted(self._precisions)),
            draws=self._draws.words,
        )
        return _without(plan, self._needless(plan))

    def _passes_draws(self) -> bool:
        """Whether a launch has the whole counter among its parameters."""
        launches = [step for step in self._steps if isinstance(step, Launch)]
        return any(sum(pointer.number < 0 for pointer in launch.pointers) == len(COUNTER) for launch in launches)

    def _reaches(self) -> tuple[Reach, ...]:
        written = {id(tensor) for tensor in self._written}
        distinct = {id(tensor): n for n, tensor in reversed([*enumerate(self._tensors[: self._arguments])])}
        reaches = [Reach(n, _span(self._tensors[n]), name in written) for name, n in distinct.items()]
        found = tuple(sorted(reach for reach in reaches if reach.size_bytes))
        return found if len(found) > 1 and any(reach.written for reach in found) else ()

    def _needless(self, plan: LaunchPlan) -> dict[int, int]:
        """Allocations that are only copied into an argument, by number, and that argument.

        The argument can be written to at once where it has the same form and no launch reads it, or only while it
        writes the same element. That it overlaps no other argument is seen to at each call.
        """
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        overwritable = self._elementwise and len(launches) == 1
        used = {pointer.number for launch in launches for pointer in launch.pointers}
        copies = [step for step in plan.steps if isinstance(step, Copy)]
        sources, destinations = [copy.source for copy in copies], [copy.to for copy in copies]
        return {
            source: to
            for to, source in copies
            if source >= plan.tensors > to
            and source not in plan.results
            and (to not in used or overwritable)
            and sources.count(source) == destinations.count(to) == 1
            and _memory(self._tensors[source]) == _memory(self._tensors[to])
            and self._tensors[to].data_ptr() % 16 == 0
        }

    def _refuse(self, reason: Refusal) -> None:
        self._refusal = self._refusal or reason

    def _place_of(self, tensor: Tensor) -> Place | None:
        found = self._places.get(id(tensor))
        return found and found[1]

    def _as_destination(self, tensor: Tensor) -> Tensor:
        """Memory with the strides of the argument that the result is to be copied into, where it would else be dense.

        An elementwise kernel writes at the strides of what it gets, so that the copy is needless.
        """
        if not self._elementwise or len(self._written) != 1:
            return tensor
        (destination,) = self._written
        fits = tensor.shape == destination.shape and tensor.device == destination.device
        # A kernel may ask for bits of that size and return them as numbers.
        if not fits or tensor.itemsize != destination.itemsize or _is_scattered(destination):
            return tensor
        return torch.empty_strided(tensor.shape, destination.stride(), dtype=tensor.dtype, device=tensor.device)

    def _allocated(self, tensor: Tensor) -> None:
        if self._device is not None and _is_host_scalar(tensor, self._device):
            self._host_scalars[id(tensor)] = tensor
            return
        if tensor.is_meta:  # For its strides; a launch or a result of it is refused, for the plan does not know it.
            return
        if tensor.device != self._device or type(tensor) is not Tensor:
            self._refuse(Refusal.OPERATION)
        self._places[id(tensor)] = tensor, (len(self._tensors), 0)
        self._tensors.append(tensor)

    def _viewed(self, view: Tensor, of: Any) -> None:
        if id(of) in self._host_scalars:
            self._host_scalars[id(view)] = view
        place = self._place_of(of)
        # A tensor without elements has no address, so none can be told from that of what it is a part of.
        if place is not None and (view.numel() or not of.numel()):
            offset_bytes = view.data_ptr() - of.data_ptr()
            self._places.setdefault(id(view), (view, (place[0], place[1] + offset_bytes)))

    def _copied(self, to: Tensor, source: Tensor) -> None:
        destination, origin = self._whole(to), self._whole(source)
        if origin is None:
            origin = self._made_as(source)
        if destination is None or origin is None:
            self._refuse(Refusal.OPERATION)
        else:
            self._settled.add(origin)
            self._steps.append(Copy(destination, origin))

    def _whole(self, tensor: Tensor) -> int | None:
        """The number of a tensor that is no mere part of one; a detached one is as good as the tensor itself."""
        number, offset_bytes = self._place_of(tensor) or (None, 0)
        if number is None or offset_bytes or _memory(tensor) != _memory(self._tensors[number]):
            return None
        return number

    def _made_as(self, view: Tensor) -> int | None:
        """The number of the allocation that this is all of, which is made in this form from now on, or None."""
        number, offset_bytes = self._place_of(view) or (None, 0)
        if number is None or number < self._arguments or number in self._settled or offset_bytes:
            return None
        if _span(self._tensors[number]) != _span(view):
            return None
        self._settled.add(number)
        self._tensors[number] = view
        return number

    def _launched(self, compiled: Any, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> None:
        try:
            drawn = self._draws.counter
            launch = repeatable(compiled, grid, args, meta, place_of=self._place_of, counter=drawn)
        except Unrepeatable:
            self._refuse(Refusal.ARGUMENT)
            return
        if any(self._is_address(slot) for slot in launch.slots):
            self._refuse(Refusal.ARGUMENT)
        self._steps.append(launch)

    def _is_address(self, slot: int) -> bool:
        """Whether a number lies in a tensor's memory: an address that was passed as a number."""
        storages = (tensor.untyped_storage() for tensor in self._tensors)
        return any(0 < storage.data_ptr() <= slot < storage.data_ptr() + storage.nbytes() for storage in storages)

    def _returned(self, result: Any) -> Result:
        """The number of a result; memory is allocated in the form in which it is returned."""
        if result is None:
            return None
        if isinstance(result, int) and not isinstance(result, bool):
            return Number(result)
        if id(result) in self._host_scalars:
            return HostScalar(result.dtype)
        place = self._place_of(result)
        if place is None:
            self._refuse(Refusal.RESULT)
            return None
        if self._tensors[place[0]] is not result and self._made_as(result) is None:
            self._refuse(Refusal.RESULT)
        return place[0]


def _form(result: Any) -> Form | None:
    """What results are returned in, or None where no plan returns it."""
    forms = {Tensor: Form.TENSOR, tuple: Form.TUPLE, list: Form.LIST, type(None): Form.NOTHING}
    return next((form for kind, form in forms.items() if isinstance(result, kind)), None)


def _several(result: Any, form: Form) -> Sequence[Any]:
    return (result,) if form is Form.TENSOR else () if form is Form.NOTHING else result


def _is_host_scalar(tensor: Tensor, device: torch.device) -> bool:
    """Whether a tensor without dimensions is on the host, and the call is not."""
    return tensor.device.type == "cpu" and not tensor.ndim and device.type != "cpu"


def _is_view(func: OpOverload) -> bool:
    """Whether an op's results share memory with its first argument and nothing is written."""
    schema = func._schema
    return (
        all(returned.alias_info is not None and not returned.alias_info.is_write for returned in schema.returns)
        and bool(schema.returns)
        and not any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    )


def _memory(tensor: Tensor) -> Memory:
    return Memory(tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _span(tensor: Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    return extent(tensor.shape, tensor.stride(), 0) * tensor.element_size()


def _is_scattered(tensor: Tensor) -> bool:
    """Whether elements share memory, or gaps would make recording a call take much more memory than the call."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return _span(tensor) > max(_SMALL_BYTES, 4 * tensor.nbytes)


def _without(plan: LaunchPlan, needless: dict[int, int]) -> LaunchPlan:
    """The plan without these allocations: arguments stand in for them."""

    def renumbered(number: int) -> int:
        return needless.get(number, number - sum(one < number for one in needless))

    steps = tuple(
        step._replace(pointers=tuple(p._replace(number=renumbered(p.number)) for p in step.pointers))
        if isinstance(step, Launch)
        else Copy(step.to, renumbered(step.source))
        for step in plan.steps
        if isinstance(step, Launch) or step.source not in needless
    )
    return plan._replace(
        allocations=tuple(m for number, m in enumerate(plan.allocations, plan.tensors) if number not in needless),
        steps=steps,
        results=tuple(renumbered(one) if isinstance(one, int) else one for one in plan.results),
    )
