"""A poisoned dispatcher: kernels that tell in the place of those that a policy forbids.

It works below everything that a kernel can switch off: dispatch modes, threads, jit, C++ that goes
through the dispatcher, redispatch. It misses what never asks the dispatcher: kernels fetched before
(``torch.library.get_kernel``), the statics of ``at::cpu``, other libraries.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from opsmith.aten.numbers import NUMBER_TYPES, prepare, tensor_positions, with_tensors
from opsmith.evaluation.integrity.namespaces import TALKING, overload_of, parts, registered_name

#: The layouts of tensors that have dispatch keys of their own: a conversion leads to these.
_LAYOUTS = ("Mkldnn", "Quantized", "Sparse", "SparseCsr", "NestedTensor")


class Poison:
    """Telling kernels for some overloads, for all threads of the process.

    A forbidden call is answered all the same: whether the kernel's answer is right is one question, how
    it came to it another. The first one takes the poison out until it is installed again.

    Putting a thousand kernels in takes 10 ms, one of them 8 us. So each overload can be taken out alone: for a call
    that trusted code makes, and for what the process computes for itself.

    Args:
        ops: ``packet.overload`` of what is forbidden, outside ATen with its namespace before it. Those of ATen without
            a kernel for the key are no concern: they call others. Elsewhere it is not known what an op calls.
        devices: the devices that could compute, ``CPU`` and ``CUDA``.
        report: told the overload of every call, on the thread that makes it; says whether trusted
            code made it, after which the poison goes back in.
        layouts: an op that has a kernel for plain tensors tells for those of other layouts as well, to which nothing
            that is forbidden need have led.
    """

    def __init__(
        self, ops: Iterable[str], devices: Sequence[str], report: Callable[[str], bool], *, layouts: bool
    ) -> None:
        prepare()  # By multiplying, which is about to be poisoned.
        self._report = report
        self._kernels = {
            op: (self._kernel(op), keys)
            for op in sorted(ops)
            if (keys := [key for device in devices for key in _concerned(op, device, layouts=layouts)])
        }
        #: Of each overload that is in, what holds its telling kernels.
        self._libraries: dict[str, list[Any]] = {}
        self._lock = threading.Lock()
        #: The thread that computes for the process itself, what it has called before, and what is out for it now.
        self._computing: int | None = None
        self._called: set[str] = set()
        self._taken_out: set[str] = set()

    def _kernel(self, op: str) -> Callable[..., Any]:
        def answer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            function = overload_of(op)
            if not NUMBER_TYPES.isdisjoint(map(type, args)):
                with self.computing():
                    args = with_tensors(args, tensor_positions(function))
            return function(*args, **kwargs)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._computing:
                self._called.add(op)
                self._taken_out |= self._take_out([op])
                return answer(args, kwargs)
            if not self._report(op):
                self.remove()
                return answer(args, kwargs)
            out = self._take_out([op])
            try:
                return answer(args, kwargs)
            finally:
                self._put_in(out)

        return kernel

    def install(self) -> None:
        """Put the telling kernels in; does nothing where they are in."""
        if len(self._libraries) < len(self._kernels):
            self._put_in(self._kernels)

    def remove(self) -> None:
        """Take them out: the tables are what they were before."""
        self._take_out(self._kernels)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Within it this thread computes for the process itself; afterwards what was in before is in again."""
        if self._computing is not None:
            yield
            return
        self._computing = threading.get_ident()
        self._taken_out = self._take_out(self._called)
        try:
            yield
        finally:
            self._computing = None
            self._put_in(self._taken_out)

    def _put_in(self, ops: Iterable[str]) -> None:
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of the first kernel that is replaced.
            for op in ops:
                if op not in self._libraries:
                    kernel, keys = self._kernels[op]
                    self._libraries[op] = [_library(op, key, kernel) for key in keys]

    def _take_out(self, ops: Iterable[str]) -> set[str]:
        """Take out those of these that are in; which they are."""
        with self._lock:
            out = {op for op in ops if op in self._libraries}
            for op in out:
                for library in self._libraries.pop(op):
                    library.reset()
            return out


@functools.cache
def _concerned(op: str, device: str, *, layouts: bool) -> tuple[str, ...]:
    """The dispatch keys of a device for which an op gets a telling kernel."""
    namespace, name = parts(op)[0], registered_name(op)
    if namespace in TALKING:
        return ()  # The watch sees them, and what ranks wait in should not be Python.
    plain, *others = dispatch_keys(device)
    of_layouts = tuple(key for key in others if name in registered_for(key))
    if name in registered_for(plain) or (namespace != "aten" and not of_layouts):
        return (plain, *of_layouts) if layouts else (plain,)
    return of_layouts


def _library(op: str, key: str, kernel: Callable[..., Any]) -> Any:
    # torch.library.Library would keep a record of each of a thousand kernels.
    name = registered_name(op)
    library: Any = torch._C._dispatch_library("IMPL", parts(op)[0], key, "", 0)
    library.impl(name.partition("::")[2], key, kernel, False)
    return library


@functools.cache
def registered_for(key: str) -> frozenset[str]:
    """The ops that have a kernel of their own for a dispatch key, as the dispatcher names them."""
    return frozenset(torch._C._dispatch_get_registrations_for_dispatch_key(key))


def dispatch_keys(device: str) -> tuple[str, ...]:
    """The keys of a device's tensors, that of plain ones first."""
    return (device, *(f"{layout}{device}" for layout in _LAYOUTS if (layout, device) != ("Mkldnn", "CUDA")))
