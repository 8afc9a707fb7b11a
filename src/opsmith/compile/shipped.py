"""Shipped kernels in compiled graphs: for overloads that they are known to answer faster than Inductor.

Which these are says ``measured.json``, next to this file: a row for each overload, dtype and GPU on which runs
against the baseline ``compile`` were won. ``benchmarks/compile/kernel_table.py`` writes it from the records of
such runs. Without a row, as on every CPU, Inductor generates the code.

A row is about a call by itself. In a graph Inductor makes one kernel of elementwise calls and what is around them,
which no kernel of one call can win against; so they never have a row. And a row of float32 is about products in
float32: it does not count where TF32 is allowed.

A kernel enters a graph through the table of decompositions: while AOTAutograd traces, a call that a kernel
answers becomes a call of an opaque overload (:mod:`opsmith.compile.graph.opaque`). What Inductor leaves to libraries
needs no row: :mod:`opsmith.compile.lowered.library_calls` tries it out where the graph is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.schemas import overload
from opsmith.backends.shipped import Shipped
from opsmith.compile.graph.opaque import opaque_overload
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, Variant
from opsmith.dispatch.exclusions import why_excluded
from opsmith.dispatch.kernel_set import runs_on
from opsmith.dispatch.selection import offered, split_patterns
from opsmith.errors import UnknownName

_TABLE = Path(__file__).with_name("measured.json")

Decompositions: TypeAlias = dict[Any, Callable[..., Any]]
Covers: TypeAlias = Callable[[torch.Tensor], bool]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An overload that a shipped kernel answers faster than Inductor's code.

    Attributes:
        op: the overload.
        dtype: short name of the dtype of its first tensor.
        hardware: the device's name.
        speedup: geometric mean over the record's inputs.
        inputs: how many these were; on none of them Inductor's code was faster.
        record: the run that says so.
    """

    op: str
    dtype: str
    hardware: str
    speedup: float
    inputs: int
    record: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``measured.json``."""

    format: int
    rows: tuple[Row, ...]


@functools.cache
def measured() -> tuple[Row, ...]:
    """The rows of the shipped table."""
    return msgspec.json.decode(_TABLE.read_bytes(), type=Table).rows


def may_have_row(op: str) -> bool:
    """Whether what a run shows of an overload by itself says something of graphs: nothing fuses through it."""
    return torch.Tag.pointwise not in overload(op).tags


def check_kernels(wanted: str) -> str:
    """``measured``, ``none`` or patterns of overloads, as given.

    Raises:
        UnknownName: a pattern matches no overload with a shipped kernel.
    """
    if wanted not in {"measured", "none"} and not list(_wanted_records(wanted)):
        raise UnknownName("shipped kernel", wanted, ("measured", "none"))
    return wanted


def kernel_decompositions(wanted: str) -> Decompositions | None:
    """Inductor's table of decompositions with shipped kernels in it; None if there is none to put in.

    Args:
        wanted: ``measured``, ``none``, or overloads, packets and wildcards with commas between them.
    """
    chosen = list(_wanted_records(wanted))
    if not chosen:
        return None
    from torch._inductor.decomposition import select_decomp_table

    table: Decompositions = dict(select_decomp_table())
    for schema, record, covers in chosen:
        op = overload(record.task)
        table[op] = _choosing(op, opaque_overload(schema, record), covers, table.get(op))
    return table


def _wanted_records(wanted: str) -> Iterator[tuple[OpSchema, Kernel, Covers]]:
    """The kernels that may be called, each with the tensors that it is called for."""
    if wanted == "none":
        return
    if wanted != "measured":
        for schema, record in offered(Shipped(), split_patterns(wanted), ()):
            computes = why_excluded(schema) not in ("metadata", "memory")
            plain = schema.variant is Variant.FUNCTIONAL and "(a" not in schema.schema and computes
            if plain and any(runs_on(record, device) for device in _device_types()):
                yield schema, record, functools.partial(_on_device, record)
        return
    rows: dict[str, list[Row]] = {}
    for row in measured():
        rows.setdefault(row.op, []).append(row)
    for schema, record in offered(Shipped(), list(rows), ()) if rows else ():
        if schema.name in rows:
            yield schema, record, functools.partial(_measured_for, rows[schema.name])


def _device_types() -> tuple[str, ...]:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


def _on_device(record: Kernel, tensor: torch.Tensor) -> bool:
    return runs_on(record, tensor.device.type)


def _measured_for(rows: list[Row], tensor: torch.Tensor) -> bool:
    if tensor.device.type != "cuda":
        return False
    if tensor.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32":
        return False
    name = torch.cuda.get_device_name(tensor.device)
    return any(row.hardware == name and getattr(torch, TORCH_NAMES[row.dtype]) == tensor.dtype for row in rows)


def _choosing(
    op: torch._ops.OpOverload,
    opaque: torch._ops.OpOverload,
    covers: Covers,
    otherwise: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """A decomposition that calls the kernel where it should, and else does what Inductor's does."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if tensors and covers(tensors[0]):
            return opaque(*args, **kwargs)
        return NotImplemented if otherwise is None else otherwise(*args, **kwargs)

    decompose.__name__ = str(op)
    return decompose
