"""Launches of Triton kernels as plans hold them: what triton 3.6 to 3.7 leaves in a compiled kernel.

A compiled kernel takes its arguments in the order of its signature, tuples flattened and constants left out, then
the addresses of two scratch memories. (``triton/backends/nvidia/driver.py``, whose launcher is written out for each
signature in 3.6 and reads the signature in 3.7.)
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

from opsmith.dispatch.plans.plan import Launch, Pointer
from opsmith.dispatch.plans.rng_state import COUNTER

#: Number and byte offset of a tensor in a plan, or None for one that the plan does not know.
Place = tuple[int, int]
PlaceOf = Callable[[Tensor], Place | None]
#: Told of a launch: what the kernel was compiled to, the grid, the arguments by position and by name.
Watcher = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], None]

#: Bits of the integer parameters. 16-bit floats, which Triton makes of no argument by itself, are left out.
_INTEGER_BITS = {f"{sign}{bits}": bits for sign in "iu" for bits in (8, 16, 32, 64)} | {"i1": 8, "u1": 8}
#: A float's own bytes, and the same ones as a number.
_FLOAT_FORMATS = {"fp32": ("<f", "<I"), "f32": ("<f", "<I"), "fp64": ("<d", "<Q")}


class Unrepeatable(Exception):
    """A launch that a plan cannot repeat."""


def repeatable(
    compiled: Any,
    grid: Any,
    args: tuple[Any, ...],
    meta: dict[str, Any],
    *,
    place_of: PlaceOf,
    counter: tuple[int, ...] | None = None,
) -> Launch:
    """A launch as a plan holds it.

    Args:
        compiled: what the launch returned: a ``triton.compiler.CompiledKernel``.
        grid: its numbers of programs, or a function of the arguments by name that gives them.
        args: its arguments by position.
        meta: its arguments by name, and options of the compiler.
        place_of: tells the plan's tensors.
        counter: what the call has drawn, as parameters of the names :data:`.draws.COUNTER` have it.

    Raises:
        Unrepeatable: the kernel needs more than its parameters (scratch memory, clusters), or a parameter is none
            that can be repeated.
    """
    source, metadata = getattr(compiled, "src", None), getattr(compiled, "metadata", None)
    if source is None or metadata is None:
        raise Unrepeatable  # Not a compiled kernel.
    if (
        metadata.num_ctas != 1
        or metadata.launch_cooperative_grid
        or metadata.global_scratch_size
        or metadata.profile_scratch_size
    ):
        raise Unrepeatable
    values = dict(zip(source.fn.arg_names, args, strict=False)) | meta
    triples = [
        (name, *pair)
        for name, kind in source.signature.items()
        if kind != "constexpr"
        for pair in _flattened(kind, values.get(name))
    ]
    slots, pointers = [0] * (len(triples) + 2), []
    for slot, (name, kind, value) in enumerate(triples):
        if counter is not None and name in COUNTER:
            which = COUNTER.index(name)
            if _bits(kind, value) != counter[which]:
                raise Unrepeatable
            pointers.append(Pointer(slot, which - len(COUNTER), 0))
        elif kind.startswith("*"):
            pointers.append(Pointer(slot, *_place(value, place_of)))
        else:
            slots[slot] = _bits(kind, value)
    x, y, z = (*(grid(values) if callable(grid) else grid), 1, 1)[:3]
    return Launch(
        compiled.function,
        (x, y, z),
        metadata.num_warps,
        metadata.shared,
        metadata.launch_pdl,
        tuple(slots),
        tuple(pointers),
        compiled,
    )


def _flattened(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Types and values of what a parameter consists of, without constants."""
    if not isinstance(kind, tuple):
        if kind != "constexpr":
            yield kind, value
        return
    if not isinstance(value, tuple) or len(value) != len(kind):
        raise Unrepeatable
    for one_kind, one in zip(kind, value, strict=True):
        yield from _flattened(one_kind, one)


def _place(value: Any, place_of: PlaceOf) -> Place:
    place = place_of(value) if isinstance(value, Tensor) else None
    if place is None:
        raise Unrepeatable
    return place


def _bits(kind: str, value: Any) -> int:
    """A number as the 64 bits whose first bytes are the parameter (little-endian, as everything CUDA runs on)."""
    if kind in _INTEGER_BITS and isinstance(value, int):
        return value & ((1 << _INTEGER_BITS[kind]) - 1)
    if kind in _FLOAT_FORMATS and isinstance(value, (int, float)):
        as_float, as_integer = _FLOAT_FORMATS[kind]
        return int(struct.unpack(as_integer, struct.pack(as_float, value))[0])
    raise Unrepeatable


@contextmanager
def watched_launches(watcher: Watcher) -> Iterator[None]:
    """Tell ``watcher`` of what this thread launches as ``kernel[grid](...)``; one at a time in a process."""
    run, this_thread = JITFunction.run, threading.get_ident()

    @functools.wraps(run)
    def watching(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = run(self, *args, grid=grid, warmup=warmup, **kwargs)
        if threading.get_ident() == this_thread and not warmup:
            watcher(compiled, grid, args, kwargs)
        return compiled

    JITFunction.run = watching
    try:
        yield
    finally:
        JITFunction.run = run


@contextmanager
def counted_launches() -> Iterator[list[None]]:
    """A list with an entry for everything that this thread launches through Triton meanwhile, in any way."""
    launches: list[None] = []
    this_thread = threading.get_ident()

    def count(_: Any) -> None:
        if threading.get_ident() == this_thread:
            launches.append(None)

    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(count)
    try:
        yield launches
    finally:
        hooks.remove(count)
