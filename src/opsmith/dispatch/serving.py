"""A kernel in use for one overload on one device type: how it is loaded and prepared, and what it counts."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from opsmith.aten.arguments import tensors_in, undeclared
from opsmith.aten.derivation import derived_exactly
from opsmith.aten.numbers import tensor_positions
from opsmith.aten.schemas import overload
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, Variant
from opsmith.dispatch.backups import with_backups
from opsmith.dispatch.choice.choosing import Choices
from opsmith.dispatch.guards import Fallback, bypass_guard
from opsmith.dispatch.layout import EagerLayout
from opsmith.dispatch.plans.cache import PlanCache
from opsmith.dispatch.plans.cuda_driver import driver
from opsmith.dispatch.plans.encoding import Table
from opsmith.dispatch.plans.mode import LaunchMode, launch_mode
from opsmith.errors import BadInput
from opsmith.loading import function_of

Call = Callable[..., Any]


class FallbackWarning(UserWarning):
    """A kernel was set aside in a way that its user will want to know; warned of once for each op."""


class DoesNotLoad(RuntimeError):
    """A kernel that was to be loaded at its first call cannot be; nothing has been written yet."""


class Counts(NamedTuple):
    """How many calls a kernel has answered, and how many it has not, by reason."""

    answered: int
    fallbacks: dict[Fallback, int]


class Serving:
    """A kernel in use for one overload on one device type, with what it counts.

    Args:
        schema: the overload.
        device_type: ``cpu``, ``cuda``, ...
        record: where the kernel comes from.
        function: what was loaded from there; takes the arguments of the overload, or of the functional one that
            the record says it is derived from. None: it is loaded at the first call.
        under_jit: whether ``torch.jit.trace`` may reach it.

    Attributes:
        kernel: answers calls of the overload.
        layout: lays out what the kernel returns, or None where that is an argument.
        calls: how many it answered.
        fallbacks: how many it did not, and why.
        choices: which calls it is asked to answer; None: all.
        tried: how many of its calls were trials'.
        plans: the launch plans of its calls, or None where it has none.
        takes_numbers: whether it is handed the numbers that torch passes for tensors, as in ``x * 2``. A kernel that
            writes to its arguments is not, nor is one whose op takes a single tensor.
    """

    __slots__ = (
        "_table",
        "_warned",
        "calls",
        "choices",
        "device_type",
        "fallbacks",
        "kernel",
        "layout",
        "plans",
        "record",
        "schema",
        "takes_numbers",
        "tried",
    )

    def __init__(
        self, schema: OpSchema, device_type: str, record: Kernel, function: Call | None, *, under_jit: bool = True
    ) -> None:
        self.schema, self.device_type, self.record = schema, device_type, record
        self.calls = self.tried = 0
        self.choices: Choices | None = None
        self._table: Table | None = None
        self.fallbacks: dict[Fallback, int] = {}
        self._warned = False
        self.kernel: Call = self._first_call if function is None else self._prepared(function)
        # A kernel with a destination of its own has no say in the layout.
        of_result = schema.variant is Variant.FUNCTIONAL and record.derived_from is None
        self.layout = EagerLayout(schema) if of_result else None
        self.takes_numbers = self.retryable and len(tensor_positions(overload(schema.name))) > 1
        self.plans = _plans(record, schema, device_type, under_jit=under_jit)

    def _prepared(self, function: Call) -> Call:
        if self.record.dtypes:
            function = _of_declared_dtypes(function, self.record.dtypes)
        if self.device_type != "cpu":
            function = _on_their_device(function, self.device_type)
        if self.record.derived_from is not None:
            return derived_exactly(function, overload(self.schema.name), overload(self.record.derived_from))
        return function if self.retryable else with_backups(function, overload(self.schema.name))

    def _first_call(self, *args: Any, **kwargs: Any) -> Any:
        """Load the kernel, put it in this method's place and call it.

        Raises:
            DoesNotLoad: it cannot be loaded; later calls raise this at once.
        """
        try:
            self.kernel = self._prepared(function_of(self.record))
        except BadInput as exc:
            self.kernel = _unloadable
            self.warn(f"{exc}; PyTorch's own kernel answers")
        return self.kernel(*args, **kwargs)

    @property
    def table(self) -> Table | None:
        """What C++ knows of its calls, once a front uses it."""
        return self._table if self.plans is None else self.plans.table

    def table_in(self, library: ctypes.CDLL) -> Table | None:
        """What a front in C++ is to use: plans, and calls that are left to PyTorch."""
        if self.plans is not None:
            return self.plans.table_in(library)
        if self.choices is not None and self._table is None:
            self._table = Table(library)
        return self._table

    @property
    def left(self) -> int:
        """How many calls were left to PyTorch, because its own kernel is faster or nobody knows yet."""
        if self.choices is None:
            return 0
        return self.choices.left + (0 if self.table is None else self.table.left)

    def counts(self) -> Counts:
        """What was counted so far."""
        return Counts(self.calls + self.planned, dict(self.fallbacks))

    def uncount(self, before: Counts) -> Fallback | None:
        """Take out what was counted since, which were calls of a trial; returns why one of them fell back, if any."""
        reasons = [reason for reason, count in self.fallbacks.items() if count > before.fallbacks.get(reason, 0)]
        self.tried += self.calls + self.planned - before.answered
        self.fallbacks = before.fallbacks
        if self.plans is not None:
            self.plans.fast_path = None  # Its calls may be left to PyTorch from now on.
        return reasons[0] if reasons else None

    @property
    def planned(self) -> int:
        """How many calls were answered by plans, in Python or in C++."""
        return 0 if self.plans is None else self.plans.replayed + self.plans.replayed_in_cpp

    @property
    def retryable(self) -> bool:
        """Whether PyTorch can answer after the kernel raised: it has written to no argument, and no copy is needed."""
        return self.schema.variant is Variant.FUNCTIONAL or self.record.derived_from is not None

    def fall_back(self, reason: Fallback) -> None:
        """Count a call that the kernel did not answer."""
        self.fallbacks[reason] = self.fallbacks.get(reason, 0) + 1

    def warn(self, what: str) -> None:
        """Warn, the first time."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"{self.schema.name} on {self.device_type}: {what}", FallbackWarning, stacklevel=3)


def _plans(record: Kernel, schema: OpSchema, device_type: str, *, under_jit: bool) -> PlanCache | None:
    """Where the plans of a kernel will be, or None where it allows none or they cannot be carried out."""
    if not record.plans or launch_mode() is LaunchMode.OFF:
        return None
    found = driver(device_type)
    return None if found is None else PlanCache(found, bypass=bypass_guard(schema, under_jit=under_jit))


def _on_their_device(function: Call, device_type: str) -> Call:
    """With several devices, make the one that the tensors lie on the current one, as torch's own kernels do."""
    module = torch.get_device_module(device_type)
    if module.device_count() < 2:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = tensors_in(args) or tensors_in(kwargs.values())
        with module.device(tensors[0].device) if tensors else nullcontext():
            return function(*args, **kwargs)

    return call


def _of_declared_dtypes(function: Call, dtypes: tuple[str, ...]) -> Call:
    """Declines what a kernel's author says that it does not serve."""

    def call(*args: Any, **kwargs: Any) -> Any:
        why_not = undeclared(dtypes, args, kwargs)
        if why_not is not None:
            raise NotImplementedError(why_not)
        return function(*args, **kwargs)

    return call


def _unloadable(*_: Any, **__: Any) -> Any:
    """What stands for a kernel that cannot be loaded."""
    raise DoesNotLoad
