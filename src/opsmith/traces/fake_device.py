"""A GPU without memory: CUDA tensors that have shapes and no content, on any machine."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self
from unittest import mock

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from opsmith.traces.attention import cuda_attention
from opsmith.traces.conversion import replacing_conversions
from opsmith.traces.known_values import KnownValues
from opsmith.traces.stand_in import stand_in_device


class FakeDevice:
    """While it is active, tensors on ``cuda`` are fake and all others real.

    A 70-billion-parameter model costs no memory, and the ops that are dispatched are those of a
    GPU, with these differences, the same on every machine:

    - cuDNN is off, so that batch norm and recurrent cells are ATen's own ops.
    - The GPU is one of the Ampere generation; :mod:`opsmith.traces.attention` says what follows.
    - A value that only the device knows (``item``, the length of ``nonzero``) is the real one where
      it follows from constants; see :mod:`opsmith.traces.known_values`. Else it is what it would be
      for tensors of ones, and ``any`` finds nothing.

    Attributes:
        guesses: op -> number of calls whose answer was that for tensors of ones.

    Raises:
        BadInput: on entering, where there is neither a GPU nor a C++ compiler.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._known = KnownValues()
        self.guesses = self._known.guesses

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            # Modules look at addresses before they join their weights; a fake tensor has none to look at.
            warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
            warnings.filterwarnings("ignore", message=".*cuDNN")
            stack.enter_context(stand_in_device())
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(mock.patch.object(torch.cuda, "get_device_capability", return_value=(8, 0)))
            stack.enter_context(_missing_kernels())
            stack.enter_context(replacing_conversions())
            stack.enter_context(FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True))
            stack.enter_context(_RealHost(self._known))
            stack.enter_context(cuda_attention())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()


class _RealHost(TorchDispatchMode):
    """Passes what touches ``cuda`` to the fake mode below it and keeps everything else away from it."""

    def __init__(self, known: KnownValues) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = known

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if not _names_cuda(device) and (device is not None or not types):
            with unset_fake_temporarily():
                return func(*self._known.on_host(args), **self._known.on_host(kwargs))
        try:
            result = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
            result = tree_map_only(torch.Tensor, _on_cuda, self._known.answer(func, args, kwargs))
        if func.namespace == "aten":
            self._known.learn(func, args, kwargs, result)
        return result


def _names_cuda(device: torch.device | str | None) -> bool:
    return device is not None and str(device).startswith("cuda")


def _on_cuda(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")


@contextlib.contextmanager
def _missing_kernels() -> Iterator[None]:
    """Register what decides how ops decompose and which a build without CUDA does not have."""
    kernels: dict[str, list[tuple[str, Callable[..., Any]]]] = {
        "Meta": [
            ("_thnn_fused_gru_cell", _gru_cell),
            ("_thnn_fused_gru_cell_backward", _gru_cell_backward),
            *[(f"_use_{library}_ctc_loss{kind}", _no) for library in ("cudnn", "miopen") for kind in ("", ".Tensor")],
        ],
        # Without a kernel for CUDA, torch splits these ops before the trace can see them. They are
        # all that native_functions.yaml has of the kind: composite, and with a kernel for CUDA.
        "CUDA": [(name, _never) for name in ("_fused_rms_norm", "silu_backward", "mish_backward")],
    }
    with contextlib.ExitStack() as stack:
        for key, functions in kernels.items():
            library = stack.enter_context(torch.library._scoped_library("aten", "IMPL"))
            for name, function in functions:
                # Not every version of torch has every op; a build with CUDA has kernels of its own.
                if _exists(name) and not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                    library.impl(name, function, key)
        yield


def _exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    return hasattr(torch.ops.aten, packet) and (overload or "default") in getattr(torch.ops.aten, packet).overloads()


def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, 3H), (N, 3H), (N, H) -> the new hidden state (N, H) and what backward needs, (N, 5H)."""
    del hidden_gates, input_bias, hidden_bias
    return torch.empty_like(hidden), input_gates.new_empty(hidden.shape[0], hidden.shape[1] * 5)


def _gru_cell_backward(
    grad: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,  # noqa: FBT001 - torch's own signature
) -> tuple[torch.Tensor | None, ...]:
    """(N, H), (N, 5H) -> gradients of both gates (N, 3H), the hidden state and both biases (3H)."""
    gates, hidden = (grad.shape[0], 3 * grad.shape[1]), torch.empty_like(grad)
    biases = [workspace.new_empty(gates[1]) if has_bias else None for _ in range(2)]
    return workspace.new_empty(gates), workspace.new_empty(gates), hidden, *biases


def _no(*args: Any, **kwargs: Any) -> bool:
    del args, kwargs
    return False


def _never(*args: Any, **kwargs: Any) -> Any:
    """Registered to exist: a fake tensor has no memory that a CUDA kernel could be called with."""
    raise AssertionError(args, kwargs)
