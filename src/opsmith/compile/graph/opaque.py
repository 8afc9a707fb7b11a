"""Shipped kernels as overloads that a compiler calls and does not look into.

Each is an overload of the library ``opsmith`` with the schema of ATen's. It answers as ATen's does where the kernel is
installed: from a launch plan where the kernel allows that, in eager's layout, and from ATen if the kernel declines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.schemas import overload
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.dispatch.entry import Override, backend_function
from opsmith.dispatch.serving import Serving

_defined: dict[str, torch._ops.OpOverload] = {}


def opaque_overload(schema: OpSchema, record: Kernel) -> torch._ops.OpOverload:
    """The overload ``opsmith::_softmax__default`` that runs the kernel of ``_softmax.default``.

    The kernel's file is loaded by the first call on a device.
    """
    name = record.task.replace(".", "__")
    if name not in _defined:
        op = overload(record.task)
        _defined[name] = define_like(name, op, _running(schema, record, op), op)
    return _defined[name]


def define_like(
    name: str, op: torch._ops.OpOverload, run: Callable[..., Any], fake: Callable[..., Any]
) -> torch._ops.OpOverload:
    """The overload ``opsmith::name``, with the schema of ``op``, that compilers call in the layouts they were given.

    Args:
        name: not defined yet.
        op: ATen's.
        run: answers calls.
        fake: answers them on fake tensors.
    """
    schema = str(op._schema)
    _library().define(name + schema[schema.index("(") :], tags=(torch.Tag.needs_fixed_stride_order,))
    _library().impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"opsmith::{name}", fake, lib=_library())
    defined: torch._ops.OpOverload = getattr(torch.ops.opsmith, name).default
    return defined


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library("opsmith", "FRAGMENT")


def _running(schema: OpSchema, record: Kernel, op: torch._ops.OpOverload) -> Callable[..., Any]:
    @functools.cache
    def answering(device_type: str) -> Callable[..., Any]:
        override = Override(schema, device_type)
        override.serve(Serving(schema, device_type, record, None, under_jit=False))
        return backend_function(override, op)

    def run(*args: Any, **kwargs: Any) -> Any:
        given = next((one for one in args if isinstance(one, torch.Tensor)), None)
        if given is None:
            given = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
        return answering(given.device.type)(*args, **kwargs)

    return run
