"""What plans know of torch's settings ``fp32_precision``, such as that of ``torch.backends.cuda.matmul``.

They are not in signatures, because few kernels ask for them. A recording sees which ones are read: ``torch.backends``
asks one function of torch's for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from opsmith.dispatch.plans.plan import Precision


def in_force(precisions: Iterable[Precision]) -> bool:
    """Whether all these settings have these values now."""
    return all(torch._C._get_fp32_precision_getter(backend, op) == value for backend, op, value in precisions)


@contextmanager
def watched_precisions(watcher: Callable[[Precision], None]) -> Iterator[None]:
    """Tell ``watcher`` of each setting that this thread reads, and its value; one at a time in a process."""
    read, this_thread = torch._C._get_fp32_precision_getter, threading.get_ident()

    def watching(backend: str, op: str) -> str:
        value: str = read(backend, op)
        if threading.get_ident() == this_thread:
            watcher(Precision(backend, op, value))
        return value

    torch._C._get_fp32_precision_getter = watching
    try:
        yield
    finally:
        torch._C._get_fp32_precision_getter = read
