"""A kernel called as in a program that has installed it, but past torch's tables: what the judge's clock times.

A call is repeated from a launch plan in Python where the kernel's record allows it, so that an in-place form of an
elementwise kernel writes over its argument instead of copying. Torch's dispatcher, which an installed kernel is reached
through, is left out, for the reference as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsmith.aten.derivation import DerivedKernel
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, TaskKind
from opsmith.dispatch.entry import Override, backend_function, launch_recorder
from opsmith.dispatch.serving import Serving

Call = Callable[..., Any]


def as_installed(judged: Call, record: Kernel, schema: OpSchema, device_type: str) -> Call:
    """The function that answers calls of an overload as an installed kernel does.

    Args:
        judged: the kernel as it answers the cases of a suite; it also answers here what plans do not take.
        record: the kernel's.
        schema: of the overload.
        device_type: ``cuda``, ...

    Returns:
        ``judged`` itself where calls are not repeated from plans.
    """
    if not record.plans or schema.kind is not TaskKind.OP:
        return judged
    functional = judged.kernel if isinstance(judged, DerivedKernel) else judged
    serving = Serving(schema, device_type, record, functional)
    if serving.plans is None:
        return judged
    # Torch's own kernel would be asked once how it lays its result out. Here that is the judged one, which may draw.
    serving.layout = None
    launch_recorder()  # A worker hides opsmith's modules while a kernel runs, so that it would be another one then.
    override = Override(schema, device_type)
    override.serve(serving)
    return backend_function(override, judged)
