"""A poisoned dispatcher: kernels that tell in the place of those that a policy forbids.

It works below everything that a kernel can switch off: dispatch modes, threads, jit, C++ that goes
through the dispatcher, redispatch. It misses what never asks the dispatcher: kernels fetched before
(``torch.library.get_kernel``), the statics of ``at::cpu``, other libraries.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from opsmith.suites.aten_schemas import overload


class Poison:
    """Telling kernels for some overloads, for all threads of the process.

    A forbidden call is answered all the same: whether the kernel's answer is right is one question, how
    it came to it another. The first one takes the poison out until it is installed again.

    Args:
        ops: ``packet.overload`` of what is forbidden; those without a kernel for the key are no concern.
        keys: dispatch keys of the backends that could compute, ``CPU`` and ``CUDA``.
        report: told the overload of every call, on the thread that makes it; says whether trusted
            code made it, after which the poison goes back in.
    """

    def __init__(self, ops: Iterable[str], keys: Iterable[str], report: Callable[[str], bool]) -> None:
        self._report = report
        self._kernels = [(_registered_name(op), self._kernel(op)) for op in sorted(ops)]
        self._keys = tuple(keys)
        self._libraries: list[Any] = []
        self._lock = threading.Lock()

    def _kernel(self, op: str) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            trusted = self._report(op)
            self.remove()
            try:
                return overload(op)(*args, **kwargs)
            finally:
                if trusted:
                    self.install()

        return kernel

    def install(self) -> None:
        """Put the telling kernels in; does nothing where they are in."""
        with self._lock:
            if self._libraries or not self._kernels:
                return
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of the first kernel that is replaced.
                self._libraries += map(self._library, self._keys)

    def _library(self, key: str) -> Any:
        # torch.library.Library would keep a record of each of a thousand kernels.
        library: Any = torch._C._dispatch_library("IMPL", "aten", key, "", 0)
        registered = registered_for(key)
        for name, kernel in self._kernels:
            if name in registered:
                library.impl(name, key, kernel, False)
        return library

    def remove(self) -> None:
        """Take them out: the tables are what they were before."""
        with self._lock:
            while self._libraries:
                self._libraries.pop().reset()


@functools.cache
def registered_for(key: str) -> frozenset[str]:
    """The ops of ATen that have a kernel of their own for a dispatch key, as the dispatcher names them."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return frozenset(name.removeprefix("aten::") for name in names if name.startswith("aten::"))


def _registered_name(op: str) -> str:
    packet, _, overload = op.rpartition(".")
    return packet if overload == "default" else op
