"""Planning: from a suite and a backend to the list of what will be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from opsmith.backends import Backend, Sampler
from opsmith.backends.attribute import NeedsDiscovery
from opsmith.backends.directory import KernelDirectory
from opsmith.core.audit import AuditFinding
from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, matches
from opsmith.core.problems import task_of_entry
from opsmith.core.run import Options, PlannedOp, RunPlan
from opsmith.core.sampling import spread_sample
from opsmith.core.task import Task
from opsmith.errors import BadInput, UnknownName
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.plan.suite_index import SuiteIndex
from opsmith.runner.protocol.referee_messages import OpsListed
from opsmith.runner.protocol.worker_messages import Raised
from opsmith.suites.traits import Reads, traits_of


class Enumeration(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of a run.

    Attributes:
        cases: op -> its cases, in the suite's order.
        counts: signature -> how often it was met.
        ops: every overload that the enumerated entries call.
        skipped: what could not be recorded, with the reason.
        modules: module task -> its record, complete now that its file was loaded.
        void: module task -> why it asks nothing, in any dtype.
        not_asked: module task without a case -> why there is none.
    """

    cases: dict[str, tuple[CaseRef, ...]]
    counts: dict[str, int]
    ops: frozenset[str]
    skipped: dict[str, str]
    modules: dict[str, OpSchema] = {}
    void: dict[str, str] = {}
    not_asked: dict[str, str] = {}


def select_ops(patterns: Sequence[str], known: Iterable[str]) -> tuple[str, ...] | None:
    """Resolve ``--ops`` patterns: overloads, packets (all their overloads) and wildcards.

    Returns:
        the selected overloads, or None when there are no patterns: everything.

    Raises:
        UnknownName: a pattern that selects nothing.
    """
    if not patterns:
        return None
    names = list(known)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = [name for name in names if matches(name, pattern)]
        if not found:
            raise UnknownName("op", pattern, [*names, *{name.rpartition(".")[0] for name in names}])
        chosen.update(dict.fromkeys(found))
    return tuple(chosen)


def enumerate_cases(
    fleet: Fleet,
    listed: OpsListed,
    ops: Sequence[str] | None,
    *,
    torch_version: str,
    begin: Callable[[int], None],
    advance: Callable[[int], None],
) -> Enumeration:
    """Enumerate the suite's entries that can hold wanted cases, each distinct signature once.

    Args:
        ops: overloads wanted, or None for all.
        begin: told how many entries there are.
        advance: told how many of them are done.
    """
    entries = relevant_entries(listed.entries, ops, fleet.options, torch_version)
    begin(len(entries))
    found: dict[int, list[CaseRef]] = {}
    counts: dict[str, int] = {}
    skipped: dict[str, str] = {}
    modules: dict[str, OpSchema] = {}
    ops_of_entry: dict[tuple[str, str], list[str]] = {}
    void: dict[str, list[AuditFinding | None]] = {}
    not_asked: dict[str, str] = {}
    asks_modules = traits_of(fleet.options.suite).tasks.of_problems
    for done, (index, reply) in enumerate(fleet.enumerate(entries, ops), start=1):
        found[index] = list(reply.cases)
        skipped.update(reply.skipped)
        modules.update({schema.name: schema for schema in reply.modules})
        ops_of_entry[entries[index]] = list(reply.ops)
        for schema in reply.modules:
            void.setdefault(schema.name, []).append(reply.void.get(schema.name))
        if asks_modules and reply.skipped:
            not_asked.setdefault(task_of_entry(entries[index][0]), next(iter(reply.skipped.values())))
        for signature, count in reply.counts.items():
            counts[signature] = counts.get(signature, 0) + count
        advance(done)
    if len(entries) == len(listed.entries):
        _save_index(ops_of_entry, fleet.options, torch_version)
    cases = _first_of_each_signature(found, fleet.options.case)
    selection = fleet.options.selection
    # A suite that reads a dataset draws the sample itself, before it makes anything of a row.
    if selection.sample is not None and traits_of(fleet.options.suite).reads is not Reads.DATASET:
        cases = spread_sample(cases, selection.sample, seed=selection.sample_seed, name=lambda case: str(case.address))
    return Enumeration(
        cases={op: tuple(chosen) for op, chosen in cases.items()},
        counts=counts,
        ops=frozenset(op for names in ops_of_entry.values() for op in names),
        skipped=skipped,
        modules=modules,
        # In one dtype a tolerance may be wide enough for what another one finds out.
        void={task: str(found[0]) for task, found in void.items() if all(found)},
        not_asked={task: reason for task, reason in not_asked.items() if task not in cases},
    )


def _first_of_each_signature(found: dict[int, list[CaseRef]], only: str | None) -> dict[str, list[CaseRef]]:
    seen: set[str] = set()
    by_op: dict[str, list[CaseRef]] = {}
    for index in sorted(found):
        for case in found[index]:
            if case.signature not in seen and only in (None, str(case.address)):
                seen.add(case.signature)
                by_op.setdefault(case.op, []).append(case)
    return by_op


def relevant_entries(
    entries: Sequence[tuple[str, str]], ops: Sequence[str] | None, options: Options, torch_version: str
) -> list[tuple[str, str]]:
    """The entries that can hold cases of the wanted ops, as far as it is known what they call."""
    if options.case is not None:
        address = _parse_address(options.case)
        return [pair for pair in entries if pair == (address.entry, address.dtype)]
    if ops is None:
        return list(entries)
    if options.selection.problems is not None:
        return [(entry, dtype) for entry, dtype in entries if task_of_entry(entry) in ops]
    relevant = []
    for dtype in options.dtypes:
        known = _called(_index(options, torch_version, dtype), set(ops))
        of_dtype = [entry for entry, entry_dtype in entries if entry_dtype == dtype]
        # An entry of which nothing is known, such as one that a new torch brings, may call anything.
        relevant += [(entry, dtype) for entry in of_dtype if entry not in known or not known[entry].isdisjoint(ops)]
    return relevant


def _called(index: SuiteIndex, wanted: set[str]) -> dict[str, set[str]]:
    """What entries call, by the index or else by what they call elsewhere, if all that is wanted is called there."""
    found = index.load()
    if found is not None:
        return {entry: set(ops) for entry, ops in found.items()}
    elsewhere = index.elsewhere()
    return elsewhere if wanted <= set().union(*elsewhere.values()) else {}


def _parse_address(text: str) -> CaseAddress:
    try:
        return CaseAddress.parse(text)
    except ValueError as exc:
        raise BadInput(
            f"{text!r} is not a case address; it looks like opinfo:add:bf16:sample:3:0 and stands in verdicts.jsonl"
        ) from exc


def _save_index(ops_of_entry: dict[tuple[str, str], list[str]], options: Options, torch_version: str) -> None:
    for dtype in options.dtypes:
        of_dtype = {entry: ops for (entry, entry_dtype), ops in ops_of_entry.items() if entry_dtype == dtype}
        _index(options, torch_version, dtype).save(of_dtype)


def _index(options: Options, torch_version: str, dtype: str) -> SuiteIndex:
    return SuiteIndex(options.suite, torch=torch_version, device=options.device, dtype=dtype)


def discover_backend(fleet: Fleet, asked: Backend | NeedsDiscovery, tasks: Sequence[Task]) -> Backend:
    """Turn a stranger's Python object into a backend, by looking at it in a worker.

    Raises:
        BadInput: the object cannot be imported or is nothing that holds kernels.
    """
    if not isinstance(asked, NeedsDiscovery):
        return asked
    reply = fleet.discover(asked.target, asked.ops_to_ask(tasks))
    if isinstance(reply, Raised):
        raise BadInput(f"backend {asked.name}: {' '.join(reply.message.split())}")
    return asked.backend(reply.answered, dsl=reply.dsl, kernel_directory=reply.kernel_directory)


def make_plan(enumeration: Enumeration, schemas: dict[str, OpSchema], backend: Backend, options: Options) -> RunPlan:
    """Ask the backend for a kernel for every op that has cases; each sample of a module is planned on its own."""
    planned = []
    unasked: dict[str, tuple[CaseRef, ...]] = dict.fromkeys(enumeration.not_asked, ())
    for op, cases in sorted((enumeration.cases | unasked).items()):
        for name, kernel in _answers(backend, Task(name=op, op=schemas[op], suite=options.suite)):
            planned.append(
                PlannedOp(
                    op=name,
                    kind=schemas[op].kind,
                    schema=schemas[op].schema,
                    cases=sum(not case.expects_error for case in cases),
                    error_cases=sum(case.expects_error for case in cases),
                    kernel=kernel,
                    kernel_hash=kernel.content_hash if kernel else None,
                    void=enumeration.void.get(op),
                    not_asked=enumeration.not_asked.get(op),
                )
            )
    asks_ops = options.selection.problems is None
    unrecognised = backend.unrecognised(schemas) if asks_ops and isinstance(backend, KernelDirectory) else []
    return RunPlan(ops=tuple(planned), skipped=enumeration.skipped, unrecognised=tuple(unrecognised))


def _answers(backend: Backend, task: Task) -> list[tuple[str, Kernel | None]]:
    """(name, kernel) of what is planned for a task: several where a module problem has several samples."""
    if task.kind.of_problems and isinstance(backend, Sampler):
        samples = backend.samples_for(task)
        return [(kernel.task, kernel) for kernel in samples] or [(task.name, None)]
    return [(task.name, backend.kernel_for(task))]
