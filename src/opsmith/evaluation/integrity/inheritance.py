"""What the processes that a kernel forks do not get: the machine code by which torch's ops are called.

What such a child says is heard by nobody, as its channel can be replaced by any other, so no poison reaches it. A call
of torch ends it instead. What it computes with code of its own is its own work, and a child that starts a compiler
needs none of torch.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

from opsmith.evaluation.integrity.shared_objects import Tables, loaded

#: Functions that stand together in the library: ways into the dispatcher, backends' kernels, products.
_GROUPS = (b"_ZN2at4_ops", b"_ZN2at3cpu", b"aoti_torch_cpu_", b"cblas_")
_LIBRARY = "libtorch_cpu.so"
#: Functions further apart are two groups; and one of a few is left alone, as what lies around it is something else.
_LARGEST_GAP_BYTES = 1 << 20
_SMALLEST_GROUP = 8
_DO_NOT_INHERIT = 10  # MADV_DONTFORK


@functools.cache
def code_of_ops() -> tuple[range, ...]:
    """Where that code lies, in whole pages; takes 50 ms."""
    return tuple(
        part
        for item in loaded()
        if Path(item.path).name == _LIBRARY
        for functions in Tables(item).functions(*_GROUPS)
        for part in _groups(functions)
    )


def _groups(functions: Iterable[range]) -> Iterator[range]:
    start = stop = count = 0
    for function in (*sorted(functions, key=lambda part: part.start), range(1 << 63, 1 << 63)):
        if function.start - stop > _LARGEST_GAP_BYTES:
            if count >= _SMALLEST_GROUP:
                yield range(-(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE)
            start, count = function.start, 0
        stop = max(function.stop, stop)
        count += 1


def keep_code_from_children() -> None:
    """Leave that code out of every process that this one forks from now on; takes some microseconds.

    A process that is only made to start a program shares all memory until it does. Nothing happens where the system
    cannot.
    """
    libc = ctypes.CDLL(None)
    for part in code_of_ops():
        libc.madvise(ctypes.c_void_p(part.start), ctypes.c_size_t(len(part)), _DO_NOT_INHERIT)
