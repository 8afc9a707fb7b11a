"""Which kernels are to be installed: asks a backend, applies the user's patterns, loads the functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.backends import Backend
from opsmith.backends.attribute import AttributeBackend, NeedsDiscovery
from opsmith.backends.directory import KernelDirectory
from opsmith.backends.file import KernelFile
from opsmith.backends.resolve import resolve
from opsmith.core.kernel import Kernel, is_shipped
from opsmith.core.op import OpSchema, matches
from opsmith.core.task import Task
from opsmith.dispatch.choice.choosing import choose_from
from opsmith.dispatch.exclusions import REASONS, why_excluded
from opsmith.dispatch.kernel_set import KernelSet, answers, runs_on
from opsmith.dispatch.serving import Serving
from opsmith.errors import BadInput, UnknownName
from opsmith.loading import function_of, import_target, kernel_directory, lookup
from opsmith.reviews.book import ReviewBook, why_not_approved


def choose(
    kernels: str | Path,
    *,
    ops: str | Iterable[str] | None,
    exclude: str | Iterable[str],
    device: str | None,
    which: str | None,
    approved: bool = False,
) -> KernelSet:
    """Find and load the kernels that ``enable`` is asked for; imports their files.

    Raises:
        BadInput: there is no kernel to install, one does not load, the device is no device type, or ``which`` is none
            of :class:`~opsmith.dispatch.choice.choosing.Choose`.
        UnknownName: no such backend, or a pattern that no overload matches.
    """
    which_calls = choose_from(which)
    backend = _backend(str(kernels))
    device_types = _device_types(device)
    found = offered(backend, None if ops is None else split_patterns(ops), split_patterns(exclude))
    excluded = {
        record.task: REASONS[reason] for schema, record in found if (reason := why_excluded(schema)) is not None
    }
    if approved:
        excluded |= _not_approved(backend, (record for _, record in found if record.task not in excluded))
    places = [
        (schema, device_type, record)
        for schema, record in found
        if record.task not in excluded
        for device_type in device_types
        if runs_on(record, device_type) and answers(schema, device_type)
    ]
    if not places:
        raise BadInput(_nothing_to_install(str(kernels), device_types, found, excluded if approved else {}))
    servings = tuple(Serving(schema, kind, record, function_of(record)) for schema, kind, record in places)
    return KernelSet(str(kernels), servings, excluded, which_calls)


def _backend(kernels: str) -> Backend:
    backend = resolve(kernels)
    if isinstance(backend, NeedsDiscovery):
        return _discovered(backend)
    if backend.trusted:
        raise BadInput(f"{kernels!r} is PyTorch itself; name a kernel directory or a backend with kernels of its own")
    return backend


def _discovered(asked: NeedsDiscovery) -> AttributeBackend | KernelDirectory:
    try:
        module, found = import_target(asked.target)
        if (folder := kernel_directory(module, found)) is not None:
            return KernelDirectory(folder.resolve(), name=asked.name)
        kernel_for = lookup(found, asked.target)
        answered = {op: "" for op in sorted(aten_schemas()) if kernel_for(op) is not None}
    except (ImportError, TypeError) as exc:
        raise BadInput(f"{asked.target} holds no kernels: {exc}") from exc
    return AttributeBackend(asked.target, answered, name=asked.name, derives=asked.derives)


def offered(backend: Backend, ops: Sequence[str] | None, exclude: Sequence[str]) -> list[tuple[OpSchema, Kernel]]:
    """The overloads with a kernel that the patterns leave; a functional overload stands for its variants too.

    Raises:
        UnknownName: a pattern matches no overload.
    """
    schemas = aten_schemas()
    for pattern in (*(ops or ()), *exclude):
        if not any(matches(name, pattern) for name in schemas):
            raise UnknownName("op", pattern, [*schemas, *{schema.packet for schema in schemas.values()}])
    found = []
    for name in sorted(schemas):
        schema = schemas[name]
        names = [name, schema.functional or name]
        if ops is not None and not any(matches(known, pattern) for known in names for pattern in ops):
            continue
        if any(matches(known, pattern) for known in names for pattern in exclude):
            continue
        record = backend.kernel_for(Task(name=name, op=schema, suite="dispatch"))
        if record is not None:
            found.append((schema, record))
    return found


def split_patterns(given: str | Iterable[str]) -> tuple[str, ...]:
    """Patterns in a list, or with commas between them."""
    patterns = given.split(",") if isinstance(given, str) else given
    return tuple(pattern.strip() for pattern in patterns if pattern.strip())


def _device_types(device: str | None) -> tuple[str, ...]:
    if device is None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return ("cpu",) if accelerator is None else ("cpu", accelerator.type)
    try:
        asked = torch.device(device)
    except RuntimeError as exc:
        raise BadInput(f"{device!r} is no device type; give one such as 'cpu' or 'cuda'") from exc
    if asked.index is not None:
        raise BadInput(f"kernels serve all devices of a type; give {asked.type!r} instead of {device!r}")
    return (asked.type,)


def _not_approved(backend: Backend, records: Iterable[Kernel]) -> dict[str, str]:
    """Op -> why its kernel is none that people approved.

    Raises:
        BadInput: the backend is no directory or file, beside which reviews lie, or they cannot be read.
    """
    if not isinstance(backend, (KernelDirectory, KernelFile)):
        raise BadInput(f"{backend.name!r} is no kernel directory or file, so it has no reviews beside it")
    reviews = ReviewBook(backend.path if isinstance(backend, KernelDirectory) else backend.path.parent).reviews()
    return {record.task: why for record in records if (why := why_not_approved(reviews, record)) is not None}


def _nothing_to_install(
    kernels: str,
    device_types: Sequence[str],
    offered: list[tuple[OpSchema, Kernel]],
    not_approved: Mapping[str, str],
) -> str:
    where = " or ".join(device_types)
    if not_approved:
        op, why = next(iter(not_approved.items()))
        return f"{kernels!r} has no approved kernel; that of {op} is {why}: see `opsmith review {kernels}`"
    others = [kind for kind in device_types if kind not in ("cpu", "cuda")]
    if others and any(is_shipped(record) for _, record in offered):
        return f"opsmith's own kernels are for cuda, not for {others[0]}; give a backend with kernels of your own"
    if any(record.dsl == "triton" and not runs_on(record, "cpu") for _, record in offered) and "cpu" in device_types:
        return f"the Triton kernels of {kernels!r} run on {where} only with TRITON_INTERPRET=1 in the environment"
    if offered:
        return f"{kernels!r} has no kernel to install on {where} for the ops asked for; name others with ops="
    return f"{kernels!r} has no kernel for the ops asked for; `opsmith ops --backend {kernels}` lists what it answers"
