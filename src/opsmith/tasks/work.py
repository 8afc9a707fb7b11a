"""What one call of a Model takes, counted on fake tensors, which have shapes and no content."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

#: Where counting ends: a recurrent layer over a long sequence is tens of thousands of calls.
MOST_COUNTED_CALLS = 2_500
#: And where values are needed to count, so that every call is made.
MOST_MADE_BYTES = 1 << 28

MakeModel = Callable[[], torch.nn.Module]
MakeInputs = Callable[[], list[Any]]


class Work(NamedTuple):
    """The work of one call.

    Attributes:
        flops: of products and convolutions.
        moved_bytes: arguments and results of every ATen call.
        case_bytes: inputs, parameters and buffers.
        calls: of ATen, views left out; :data:`MOST_COUNTED_CALLS` where there are more.
    """

    flops: int
    moved_bytes: int
    case_bytes: int
    calls: int


def work(make_model: MakeModel, make_inputs: MakeInputs) -> Work:
    """Count one call.

    What reads values on its way is called with real ones. Counting then ends after :data:`MOST_MADE_BYTES`, with
    the number of calls at which all counting ends.

    Raises:
        Exception: whatever they raise.
    """
    with torch.no_grad():
        try:
            with _fake():
                model = make_model()
        except DataDependentOutputException:
            model = make_model()
        try:
            with _fake():
                return _counted(model, make_inputs(), _Counter())
        except (DataDependentOutputException, DynamicOutputShapeException):
            return _counted_with_values(make_model, make_inputs)


def _fake() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)


def _counted_with_values(make_model: MakeModel, make_inputs: MakeInputs) -> Work:
    with _fake():
        held_bytes = _held_bytes(make_model(), make_inputs())
    if held_bytes > MOST_MADE_BYTES:
        return Work(0, 0, held_bytes, MOST_COUNTED_CALLS)
    return _counted(make_model(), make_inputs(), _Counter(MOST_MADE_BYTES))


def _counted(model: torch.nn.Module, inputs: list[Any], counter: _Counter) -> Work:
    held_bytes = _held_bytes(model, inputs)
    try:
        with counter:
            model(*inputs)
    except _Enough:
        return Work(counter.flops, counter.moved_bytes, held_bytes, MOST_COUNTED_CALLS)
    return Work(counter.flops, counter.moved_bytes, held_bytes, counter.calls)


class _Enough(Exception):
    """There is more than is counted."""


class _Counter(TorchDispatchMode):
    def __init__(self, most_bytes: float = math.inf) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.moved_bytes = self.calls = 0
        self._most_bytes = most_bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.is_view:
            return result
        self.calls += 1
        self.moved_bytes += sum(map(_bytes, tree_leaves((args, kwargs, result))))
        if func._overloadpacket in flop_registry:
            self.flops += int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=result))
        if self.calls >= MOST_COUNTED_CALLS or self.moved_bytes > self._most_bytes:
            raise _Enough
        return result


def _held_bytes(model: torch.nn.Module, inputs: list[Any]) -> int:
    return sum(map(_bytes, [*tree_leaves(inputs), *model.parameters(), *model.buffers()]))


def _bytes(leaf: Any) -> int:
    return math.prod(leaf.shape) * leaf.element_size() if isinstance(leaf, torch.Tensor) else 0
