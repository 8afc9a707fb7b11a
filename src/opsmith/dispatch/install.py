"""``opsmith.enable()`` and its kin: one choice of kernels for the process, at a time.

What is enabled holds for all threads, as torch's dispatch tables do.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from opsmith.aten import numbers
from opsmith.aten.schemas import overload
from opsmith.core.judging import refuse_while_judging
from opsmith.core.kernel import is_shipped
from opsmith.devices import kind_of
from opsmith.dispatch import deferred
from opsmith.dispatch.activity import Active, ServedClass, ServedOp
from opsmith.dispatch.choice.background import background_compiler
from opsmith.dispatch.choice.choosing import EAGER, KERNEL, Allowance, Choices, Choose, ClassChoice
from opsmith.dispatch.choice.shipped_trials import find_shipped
from opsmith.dispatch.kernel_set import KernelSet, merged
from opsmith.dispatch.plans import native
from opsmith.dispatch.registry import Registry
from opsmith.dispatch.serving import Serving
from opsmith.trials.book import book_of


class _Installation:
    """The choice in force and the entries that it uses."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.choice: KernelSet | None = None
        self.packages: dict[str, KernelSet] = {}
        self.registry = Registry()

    def install(self, choice: KernelSet | None) -> None:
        """Put a choice in force in place of the one before; None stands for torch's own kernels."""
        with self.lock:
            self.registry.switch_off()
            self.choice = choice
            if choice is None:
                self.registry.remove()
                return
            numbers.prepare()
            _decide_by_class(choice)
            self.registry.ensure((serving.schema, serving.device_type) for serving in choice.servings)
            for serving in choice.servings:
                self.registry.overrides[serving.schema.name, serving.device_type].serve(serving)


def _decide_by_class(choice: KernelSet) -> None:
    """Let classes decide which calls the kernels answer, unless all are asked for or that was done before."""
    undecided = [serving for serving in choice.servings if serving.choices is None]
    if choice.choose is Choose.ALL or not undecided:
        return
    allowance = Allowance() if choice.choose is Choose.MEASURED else None
    for serving in undecided:
        op, kind, record = serving.schema.name, serving.device_type, serving.record
        book = functools.cache(functools.partial(book_of, "choices", torch.device(kind)))
        shipped = functools.partial(find_shipped, kind)
        serving.choices = Choices(op, kind, record, book, allowance, shipped, _readiness(serving, wait=choice.wait))


def _readiness(serving: Serving, *, wait: bool) -> Callable[[str, Sequence[Any], Mapping[str, Any]], bool]:
    """Whether a call need not wait for a compiler; only shipped kernels of Triton's are compiled elsewhere."""
    record = serving.record
    if wait or not kind_of(serving.device_type).nvidia_driver or record.dsl != "triton" or not is_shipped(record):
        return lambda _key, _args, _kwargs: True
    taken = {argument.name for argument in overload(record.derived_from or serving.schema.name)._schema.arguments}

    def ready(key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        # Where a functional kernel answers and its result is copied, it is not told where to.
        kwargs = {name: value for name, value in kwargs.items() if name in taken}
        compiler = background_compiler(torch.device("cuda", torch.cuda.current_device()))
        return compiler.ready(key, record.entry, args, kwargs)

    return ready


_installed = _Installation()


def enable(
    kernels: str | Path = "opsmith",
    *,
    ops: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: str | None = None,
    choose: str | None = None,
    approved: bool = False,
    wait: bool = False,
) -> None:
    """Let PyTorch's eager mode use kernels in this process, in place of those enabled before.

    A call is answered by the kernel if the kernel was faster than PyTorch's own in calls of its class: of its dtypes,
    layouts and sizes. The second call of a class that nothing is known of is timed both ways, on its own arguments;
    such trials take at most a second and a twentieth of the time that passes. What they find is kept on disk.

    The kernels' files are imported here, with all that this process may do: judge strangers' first.

    Args:
        kernels: what ``opsmith run --backend`` takes: a backend's name, a kernel directory or file, or
            ``package.module:attribute``.
        ops: overloads, packets or wildcards, in a list or with commas between them; all by default. A functional
            overload stands for its in-place and ``out=`` forms too.
        exclude: of the same kind, taken out again.
        device: a device type; by default the CPU and the machine's accelerator.
        choose: ``measured``, as above; ``kept``: by earlier trials alone, and no new ones are held; ``all``: every call
            that the kernels can answer, which is for judging and for study. By default what ``OPSMITH_CHOOSE`` says in
            the environment, else ``measured``.
        approved: install only kernels that people approved as they are now, see ``opsmith review``; ``kernels`` is a
            kernel directory or file then, or the name of a package of kernels.
        wait: compile a kernel in the call that first needs it. By default the shipped Triton kernels are compiled by
            other processes, and PyTorch's kernels answer until they are; with ``all`` calls always wait.

    Raises:
        BadInput: there is no kernel to install, one does not load, or ``choose`` is none of the three.
        EnabledWhileJudging: this process judges kernels.
        UnknownName: no such backend, or a pattern that no overload matches.
    """
    from opsmith.dispatch import selection

    deferred.finish()
    refuse_while_judging()
    choice = selection.choose(kernels, ops=ops, exclude=exclude, device=device, which=choose, approved=approved)
    choice = choice._replace(wait=wait)
    if any(serving.plans is not None for serving in choice.servings):
        native.build()
    _installed.install(choice)


def add_package(choice: KernelSet) -> None:
    """Enable what an installed package serves, beside the packages before it; its name is the choice's.

    Raises:
        EnabledWhileJudging: this process judges kernels.
    """
    refuse_while_judging()
    with _installed.lock:
        _installed.packages[choice.kernels] = choice
        _installed.install(merged(_installed.packages.values()))


def disable() -> None:
    """Go back to PyTorch's own kernels, at once and for all threads.

    The entries in torch's dispatch tables are removed as well, unless another thread may be in one.
    Then they stay, switched off, until this or :func:`enabled` next ends with the other threads at rest.
    """
    deferred.finish()
    _installed.install(None)


@contextmanager
def enabled(
    kernels: str | Path = "opsmith",
    *,
    ops: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: str | None = None,
    choose: str | None = None,
    approved: bool = False,
    wait: bool = False,
) -> Iterator[None]:
    """As :func:`enable`, for the length of a ``with`` statement; then what was enabled before is again."""
    deferred.finish()
    before = _installed.choice
    enable(kernels, ops=ops, exclude=exclude, device=device, choose=choose, approved=approved, wait=wait)
    try:
        yield
    finally:
        _installed.install(before)


@contextmanager
def disabled() -> Iterator[None]:
    """PyTorch's own kernels for the length of a ``with`` statement; then what was enabled before is again.

    What is known of its calls is kept meanwhile, as are its launch plans.
    """
    deferred.finish()
    before = _installed.choice
    disable()
    try:
        yield
    finally:
        _installed.install(before)


def active() -> Active:
    """What is enabled now, with the counts since it was."""
    deferred.finish()
    with _installed.lock:
        choice = _installed.choice
        return Active(
            kernels=None if choice is None else choice.kernels,
            registered=len(_installed.registry.overrides),
            ops=() if choice is None else tuple(map(_served, choice.servings)),
            excluded={} if choice is None else choice.excluded,
        )


def _class(choice: ClassChoice) -> ServedClass:
    us = choice.trial.us
    return ServedClass(
        text=choice.text,
        served=choice.served,
        eager_us=us.get(EAGER),
        kernel_us=us.get(KERNEL),
        note=choice.trial.notes.get(KERNEL, ""),
    )


def _served(serving: Serving) -> ServedOp:
    return ServedOp(
        op=serving.schema.name,
        device=serving.device_type,
        backend=serving.record.backend,
        kernel=serving.record.entry,
        dsl=serving.record.dsl,
        derived_from=serving.record.derived_from,
        calls=serving.calls + serving.planned - serving.tried,
        planned=serving.planned,
        left=serving.left,
        classes=() if serving.choices is None else tuple(map(_class, serving.choices.classes)),
        refused={} if serving.plans is None else dict(serving.plans.refusals),
        fallbacks=dict(serving.fallbacks),
    )
