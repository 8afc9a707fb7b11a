"""What a kernel asks of ATen while it answers one call: a log, with the place in its own files.

The watch sees the thread that makes the call; :mod:`.poison` sees the others. It also finds results
that a copy wrote last: the memory of the result is what it was right after a ``copy_`` or ``clone``.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opsmith.core.conduct import AtenCall, CallConduct, Offence
from opsmith.evaluation.integrity.namespaces import known, registered_name
from opsmith.evaluation.integrity.policy import COPIES, computes, stem

#: Calls that are reported of one execution; a loop in Python may make millions.
MAX_CALLS = 200
#: Of each end of a storage, to see whether it changed.
CHECKED_BYTES = 2 << 20
#: The place of a call on a thread that no Python code of a kernel's runs on.
NO_PYTHON = "a thread without Python code"
_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
#: Who calls kernels; below such a frame everything is the kernel's.
_CALLERS = tuple(f"{Path(__file__).parents[2]}/{name}/" for name in ("evaluation", "runner", "tasks"))


class CodeOf:
    """The code objects of modules that are known before a stranger's code runs.

    A frame is told by its code object, not by its file's name, which anybody can claim.

    Args:
        modules: whose functions and methods are meant.
    """

    def __init__(self, modules: Iterable[types.ModuleType]) -> None:
        self._codes: dict[int, types.CodeType] = {}
        for module in modules:
            for value in vars(module).values():
                if getattr(value, "__module__", None) == module.__name__:
                    self._add(value, str(module.__file__))

    def _add(self, value: Any, path: str) -> None:
        if isinstance(value, type):
            for member in vars(value).values():
                self._add(member, path)
        elif isinstance(value, (staticmethod, classmethod)):
            self._add(value.__func__, path)
        elif isinstance(value, types.FunctionType) and value.__code__.co_filename == path:
            self._add_code(value.__code__)  # Not what a decorator of another module put around a function.

    def _add_code(self, code: types.CodeType) -> None:
        self._codes[id(code)] = code  # Held, so that no other object gets its id.
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant)

    def __contains__(self, code: types.CodeType) -> bool:
        return id(code) in self._codes


class DispatchWatch(TorchDispatchMode):
    """Logs the ATen calls of one execution; a context manager.

    Args:
        forbidden: overloads whose call alone breaks the policy.
        trusted: code whose calls are the system's and not the kernel's.
        inputs: arguments of which a whole copy may be the result: where that is the right answer, no more than
            a copy was needed, and elsewhere it is wrong.
        delivers: a result may be copied to the device that the caller asked for.
        newly_forbidden: what an import that came later registered and the policy forbids as well; asked for ops
            that nobody knew before.
    """

    def __init__(
        self,
        forbidden: frozenset[str],
        trusted: CodeOf,
        inputs: Iterable[torch.Tensor] = (),
        *,
        delivers: bool = False,
        newly_forbidden: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._forbidden = forbidden
        self._trusted = trusted
        self._inputs = frozenset(map(_window, inputs)) - {None}
        self._delivers = delivers
        self._newly_forbidden = newly_forbidden
        self._calls: list[AtenCall] = []
        self._breaches: list[AtenCall] = []
        self._hidden: list[AtenCall] = []
        #: Threads in a call that this mode was asked about, once for each.
        self._dispatching: list[int] = []
        #: Start of a storage -> the copy that wrote it and a checksum of what it held then.
        self._copied: dict[int, tuple[AtenCall, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        thread = threading.get_ident()
        self._dispatching.append(thread)
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self._dispatching.remove(thread)
        place = self.place(sys._getframe(1))
        if place is None or _describes(args, kwargs):
            return result
        name = str(func).removeprefix("aten.")
        call = AtenCall(name, place)
        if len(self._calls) < MAX_CALLS and computes(name):
            self._calls.append(call)
        if name in self._forbidden or (self._is_new(name) and name in self._newly_forbidden()):
            self._breaches.append(call)
        packet = stem(name.rpartition(".")[0])
        if packet in COPIES and isinstance(result, torch.Tensor) and result.layout is torch.strided:
            storage = result.untyped_storage()
            source = args[1] if packet == "copy" else args[0]
            is_delivery = self._delivers and source.device != result.device
            if is_delivery or (_window(source) in self._inputs and result.shape == source.shape):
                self._copied.pop(storage.data_ptr(), None)
            else:
                self._copied[storage.data_ptr()] = call, _checksum(storage)
        return result

    @staticmethod
    def _is_new(name: str) -> bool:
        return name.count(".") > 1 and registered_name(name) not in known()

    def forbidden_call(self, op: str) -> tuple[AtenCall, Offence] | None:
        """Note the forbidden call that the poisoned dispatcher got, and whether it was hidden.

        Returns:
            the call and what it is; None if trusted code made it.
        """
        place = self.place(sys._getframe(1))
        if place is None:
            return None
        call = AtenCall(op, place)
        hidden = not self._is_dispatching(place)
        (self._hidden if hidden else self._breaches).append(call)
        return call, Offence.CONCEALMENT if hidden else Offence.COMPOSITION

    def _is_dispatching(self, place: str) -> bool:
        """Whether this mode has been asked about what a thread calls now; ATen's own threads work for one that has."""
        if place == NO_PYTHON:
            return bool(self._dispatching)
        return threading.get_ident() in self._dispatching

    def place(self, frame: types.FrameType | None) -> str | None:
        """``file:line`` of the kernel's own code that made a call; None if trusted code made it."""
        without_file = None
        while frame is not None:
            if frame.f_code in self._trusted:
                return None
            path = frame.f_code.co_filename
            if path.startswith("<"):
                without_file = without_file or f"{path}:{frame.f_lineno}"
            elif path.startswith(_CALLERS) and not path.startswith(_OWN):
                return without_file or "a function of torch's that is the kernel"
            elif not path.startswith((_TORCH, _OWN)):
                return f"{Path(path).name}:{frame.f_lineno}"
            frame = frame.f_back
        return NO_PYTHON

    def conduct(self, result: Any, *, launches: int) -> CallConduct:
        """What is known of the execution now that it returned ``result``.

        Args:
            launches: kernels of a DSL that were launched meanwhile.
        """
        copied = [
            self._copied[start][0]
            for start, checksum in _storages(result)
            if start in self._copied and self._copied[start][1] == checksum
        ]
        return CallConduct(
            calls=tuple(self._calls),
            forbidden=tuple(dict.fromkeys(self._breaches)),
            hidden=tuple(dict.fromkeys(self._hidden)),
            copied_results=tuple(copied),
            launches=launches,
        )


def _describes(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """Whether a call is about tensors without elements: a compiler works results' shapes out so, and gets no values."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return bool(tensors) and all(
        type(tensor) is FakeTensor or (type(tensor) is torch.Tensor and tensor.is_meta) for tensor in tensors
    )


def _window(tensor: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """What of memory a tensor looks at; None of what is no plain tensor."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def plain_results(result: Any) -> list[torch.Tensor]:
    """The results of a call that are strided tensors with elements."""
    leaves = result if isinstance(result, (list, tuple)) else [result]
    return [leaf for leaf in leaves if type(leaf) is torch.Tensor and leaf.layout is torch.strided and leaf.numel()]


def _storages(result: Any) -> list[tuple[int, int]]:
    """Start and checksum of the memory of every result that has elements."""
    storages = [tensor.untyped_storage() for tensor in plain_results(result)]
    return [(storage.data_ptr(), _checksum(storage)) for storage in storages]


def _checksum(storage: torch.UntypedStorage) -> int:
    """Of its first and last bytes; all of them where they are few."""
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    flat.set_(storage, 0, (storage.nbytes(),), (1,))
    checksum = 0
    for part in (flat[:CHECKED_BYTES], flat[CHECKED_BYTES:][-CHECKED_BYTES:]):
        on_host = part.cpu()
        checksum = zlib.crc32(ctypes.string_at(on_host.data_ptr(), on_host.numel()), checksum)
    return checksum
