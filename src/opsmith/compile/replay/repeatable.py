"""Whether a graph does the same to the device in every call, so that its launches can be recorded and repeated.

A graph may write to its inputs, as a model does that keeps a cache or running statistics: a recording repeats the write
at the same address. So such an input has to stay where it is, and no call is made twice to time it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Libraries whose ops do nothing but what their results say. An op of somebody else's may also talk to the host.
_KNOWN = {"aten", "prims"}
#: The library of questions about tensors.
_QUESTIONS = "prim"


class NotRepeatableError(Exception):
    """A graph does something that a recording would not repeat; caught where the reason is reported."""


class Repeatability(NamedTuple):
    """Whether a CUDA graph may be made of a graph.

    Attributes:
        reason: why none, in one line; None where one may be made.
        written: places of the inputs that the graph writes to.
    """

    reason: str | None
    written: frozenset[int] = frozenset()


def repeatability(module: fx.GraphModule, inputs: Sequence[Any]) -> Repeatability:
    """Whether a CUDA graph may be made of what Dynamo recorded.

    The graph runs once on fake tensors. It is repeatable if every input is a plain tensor of fixed sizes on one
    CUDA device, no call reads a tensor elsewhere or writes to a constant, and no result shares memory with an input.

    Args:
        module: of Dynamo; it is not changed.
        inputs: what the backend was called with.
    """
    values = [node.meta.get("example_value", one) for node, one in zip(_placeholders(module), inputs, strict=True)]
    return _repeatability(module, values, "cuda")


def _repeatability(module: fx.GraphModule, values: Sequence[Any], device_type: str) -> Repeatability:
    try:
        for value in values:
            _check_input(value)
        devices = {value.device for value in values}
        if len(devices) != 1 or next(iter(devices)).type != device_type:
            raise NotRepeatableError(f"its inputs are not all on one {device_type} device")
        if torch.is_grad_enabled() and any(value.requires_grad for value in values):
            raise NotRepeatableError("results may need gradients")
        return Repeatability(None, _run_fake(module, values))
    except NotRepeatableError as exc:
        return Repeatability(str(exc))
    except Exception as exc:  # noqa: BLE001 - what cannot be run without data may raise anything
        reason = f"it does not run on fake tensors: {type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
        return Repeatability(reason)


def _placeholders(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="placeholder"))


def _check_input(value: Any) -> None:
    if not isinstance(value, Tensor):
        raise NotRepeatableError("an input is no tensor")
    if type(value) not in (Tensor, torch.nn.Parameter, FakeTensor) or value.layout != torch.strided:
        raise NotRepeatableError("an input is no plain tensor")
    if any(not isinstance(size, int) for size in (*value.shape, *value.stride())):
        raise NotRepeatableError("sizes change")
    if value.is_conj() or value.is_neg():
        raise NotRepeatableError("an input is a lazy conjugate or negative")


def _run_fake(module: fx.GraphModule, values: Sequence[Tensor]) -> frozenset[int]:
    """The places of the inputs that the graph writes to."""
    # Of its own, without symbols: a size that depends on data raises.
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        given = [_like(value) for value in values]
        watch = _Watch(given[0].device, given)
        with watch:
            results = tree_leaves(_Interpreter(module, watch).run(*given))
    owners = [storage_of(one) if isinstance(one, Tensor) else None for one in results]
    if None in owners:
        raise NotRepeatableError("a result is no tensor")
    if watch.inputs.intersection(owners):
        raise NotRepeatableError("a result shares memory with an input")
    return frozenset(place for place, one in enumerate(given) if storage_of(one) in watch.written)


def _like(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def storage_of(tensor: Tensor) -> int:
    """Names a tensor's storage while it lives."""
    return int(tensor.untyped_storage()._cdata)


class _Interpreter(fx.Interpreter):
    """Runs a graph on fake tensors; its constants count as inputs."""

    def __init__(self, module: fx.GraphModule, watch: _Watch) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self._watch = watch
        self._constants: dict[str, Tensor] = {}

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        if not isinstance(value, Tensor):
            raise NotRepeatableError("a constant is no tensor")
        if target not in self._constants:
            _check_input(value)
            self._constants[target] = self._watch.adopt(_like(value))
        return self._constants[target]


class _Watch(TorchDispatchMode):
    """Looks at every ATen call and stops at the first one that a recording would not repeat."""

    def __init__(self, device: torch.device, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._kept = list(inputs)  # While they live no other storage has their addresses.
        self._constants: set[int] = set()
        self.inputs = {storage_of(one) for one in inputs}
        self.written: set[int] = set()

    def adopt(self, tensor: Tensor) -> Tensor:
        """Take a constant for one more input."""
        self._kept.append(tensor)
        self._constants.add(storage_of(tensor))
        self.inputs.add(storage_of(tensor))
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == _QUESTIONS:
            return func(*args, **kwargs)
        if func.namespace not in _KNOWN:
            raise NotRepeatableError(f"it calls {func.name()}")
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.device != self._device:
                raise NotRepeatableError(f"{func.name()} reads a tensor on {leaf.device}")
        written = {storage_of(one) for one in _written(func, args, kwargs)}
        if written & self._constants:
            raise NotRepeatableError(f"{func.name()} writes to a constant")
        self.written |= written
        return func(*args, **kwargs)


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that an op writes to."""
    names = [one.name for one in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    written = [
        given.get(one.name) for one in func._schema.arguments if one.alias_info is not None and one.alias_info.is_write
    ]
    if given.get("training") or given.get("train"):
        # Norms update running statistics, which not all of their schemas say.
        written.extend(value for name, value in given.items() if name.startswith("running_"))
    return [leaf for leaf in tree_leaves(written) if isinstance(leaf, Tensor)]
