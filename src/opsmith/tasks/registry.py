"""What stands behind a task's name in the referee.

An overload, the Model of a problem file, a whole model, or what a collective means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.core.case import CallRecord, SequenceValue, tensor_values
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.tasks.collective_reference import world_reference
from opsmith.tasks.collectives import NAMESPACES, collective_schemas

if TYPE_CHECKING:
    from opsmith.tasks.parallel_problem import ParallelProblem
    from opsmith.tasks.problem import Problem

#: Models that are kept loaded: those of large problems fill a device.
KEPT_PROBLEMS = 2


class _Problems(NamedTuple):
    files: Mapping[str, Path]
    device: str
    small: bool = False
    parallel: bool = False


#: Those of the run that this process serves; a referee serves one.
_problems = _Problems({}, "cpu")
#: The whole model that this process serves, by its task's name.
_models: dict[str, Callable[..., Any]] = {}


def use_problems(files: Mapping[str, Path], device: str, *, small: bool = False, parallel: bool = False) -> None:
    """Let these task names, and no others, mean these problem files, with their Models on ``device``.

    Args:
        small: at the sizes that a problem names for machines without a GPU, where it names some.
        parallel: they are for ranks.
    """
    global _problems  # noqa: PLW0603 - as overloads are, the problems are one table of the process
    _problems = _Problems(dict(files), device, small, parallel)
    problem.cache_clear()
    parallel_problem.cache_clear()


def problem_files() -> Mapping[str, Path]:
    """The problem files by task name."""
    return _problems.files


def use_model(task: str, call: Callable[..., Any]) -> None:
    """Let a task's name mean the call of a whole model, until another one takes its place."""
    _models.clear()
    _models[task] = call


def reference(task: str) -> Callable[..., Any]:
    """The trusted callable of a task.

    Raises:
        AttributeError: this torch has no such overload.
        BrokenProblem: the problem file does not load.
    """
    if task in _models:
        return _models[task]
    if task in _problems.files:
        return parallel_problem(task).reference if _problems.parallel else problem(task).call
    return world_reference(task) if task in NAMESPACES else overload(task)


@lru_cache(KEPT_PROBLEMS)
def problem(task: str) -> Problem:
    """The problem of a module task, loaded when it is first needed.

    Raises:
        BrokenProblem: the problem file does not load.
    """
    from opsmith.tasks.problem import Problem

    return Problem(task, _problems.files[task], torch.device(_problems.device), small=_problems.small)


@lru_cache(KEPT_PROBLEMS)
def parallel_problem(task: str) -> ParallelProblem:
    """The problem of a parallel task, loaded when it is first needed.

    Raises:
        BrokenProblem: the problem file does not load.
    """
    from opsmith.tasks.parallel_problem import ParallelProblem

    return ParallelProblem(task, _problems.files[task], torch.device(_problems.device), small=_problems.small)


def replicated(task: str) -> tuple[int, ...]:
    """Numbers of the results that are the same on all ranks, bit by bit; none of what one process answers."""
    return parallel_problem(task).replicated if _problems.parallel and task in _problems.files else ()


def own_check(task: str) -> Callable[[Sequence[Any], Any], str | None] | None:
    """What a module task's file checks of a result (:meth:`opsmith.tasks.problem.Problem.refusal`); None: nothing."""
    if task not in _problems.files or not problem(task).has_own_check:
        return None
    return problem(task).refusal


def scratch_of(record: CallRecord) -> frozenset[int]:
    """The input storages of a module's call that any solution may overwrite: memory for results."""
    if record.op not in _problems.files or not (places := problem(record.op).scratch):
        return frozenset()
    first = record.args[0]
    items = first.items if isinstance(first, SequenceValue) else ()
    return frozenset(tensor.storage for place in places for tensor in tensor_values(items[place : place + 1]))


def schema_of(task: str) -> OpSchema:
    """What is known of a task without loading its file."""
    if task not in _problems.files:
        return collective_schemas()[task] if task in NAMESPACES else aten_schemas()[task]
    kind = TaskKind.PARALLEL if _problems.parallel else TaskKind.MODULE
    return OpSchema(name=task, schema=str(_problems.files[task]), variant=Variant.FUNCTIONAL, kind=kind)


def loaded_schemas(tasks: Iterable[str]) -> tuple[OpSchema, ...]:
    """The complete records of those of the tasks that stand in problem files.

    Raises:
        BrokenProblem: a problem file does not load.
    """
    modules = [task for task in tasks if task in _problems.files]
    loaded = parallel_problem if _problems.parallel else problem
    return tuple(msgspec.structs.replace(schema_of(task), init=loaded(task).init) for task in modules)
