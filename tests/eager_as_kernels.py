"""Every functional ATen op of this torch as a kernel: the op itself, so that only dispatch can make a difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.core.op import Variant

table: dict[str, Callable[..., Any]] = {
    op: overload(op) for op, schema in aten_schemas().items() if schema.variant is Variant.FUNCTIONAL
}
