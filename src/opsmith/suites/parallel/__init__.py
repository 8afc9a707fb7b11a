"""Suite ``parallel``: problems that ranks solve together, on worlds of several sizes.

An entry is a problem on so many ranks. A case is what all ranks do together: its record holds the program of each of
them (:mod:`opsmith.tasks.rank_program`), and its answer is what each of them returns. Beside the sizes that a problem
itself has (its ``CASES``), all problems are asked several calls at once, late ranks, and other layouts where they say
that they take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from opsmith.calls.recording import CannotRecord
from opsmith.core.case import CaseAddress, digest, storage_size
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.op import OpSchema
from opsmith.core.problems import task_of_entry
from opsmith.core.run import Selection
from opsmith.core.seeds import derive_seed
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.parallel.layouts import overlapping, strided
from opsmith.tasks import registry
from opsmith.tasks.module_state import State
from opsmith.tasks.parallel_problem import PLAIN, ParallelProblem
from opsmith.tasks.problem import BrokenProblem, record_call

DEFAULT_RANKS: tuple[int, ...] = (2,)
#: f32 leaves a problem as it is; the others convert its floats.
DTYPES = ("f32", "f16", "bf16")
#: What one case may take.
MOST_CASE_BYTES = 8 << 30
#: Calls that are in flight together.
IN_FLIGHT = 3

Layout = Callable[[torch.Tensor], torch.Tensor]
#: What a rank does: see :mod:`opsmith.tasks.rank_program`.
Program = tuple[Any, ...]


class Parallel:
    """The suite; see the module's docstring."""

    name = "parallel"

    def __init__(self) -> None:
        self._selection = Selection()

    def select(self, selection: Selection, ops: Sequence[str] = ()) -> None:  # noqa: ARG002 - it draws no sample
        """See :class:`opsmith.suites.Selective`."""
        self._selection = selection

    def schemas(self) -> tuple[OpSchema, ...]:
        """See :class:`opsmith.suites.AsksOwnTasks`."""
        return tuple(registry.schema_of(task) for task in registry.problem_files())

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - problems run anywhere
        ranks = self._selection.ranks or DEFAULT_RANKS
        return tuple(f"{task}@{count}" for task in registry.problem_files() for count in ranks if dtype in DTYPES)

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        task, ranks = task_of_entry(entry), int(entry.rpartition("@")[2])
        try:
            problem = registry.parallel_problem(task)
            if problem.dtypes and dtype not in problem.dtypes:
                return
            maker = _Cases(problem, ranks, dtype, torch.device(device), derive_seed(seed, self.name, entry, dtype))
            content = digest(registry.problem_files()[task].read_bytes())
            for source, sample, make in maker.cases(self._selection.trials):
                signature = digest(f"{entry} {content} {dtype} {source} {sample}".encode())
                if wanted(task, signature):
                    record = record_call(task, list(make()), {})
                    if sum(map(storage_size, record.storages)) > MOST_CASE_BYTES:
                        raise CannotRecord(f"a case takes more than {MOST_CASE_BYTES >> 30} GiB")
                    address = CaseAddress(self.name, entry, dtype, source, sample, 0)
                    yield SuiteCall(address=address, op=task, signature=signature, record=record, ranks=ranks)
        except (BrokenProblem, CannotRecord) as exc:
            yield Skipped(address=CaseAddress(self.name, entry, dtype, PLAIN, 0, 0), reason=str(exc))


class _Cases:
    """Makes the cases of one problem on so many ranks in one dtype."""

    def __init__(self, problem: ParallelProblem, ranks: int, dtype: str, device: torch.device, seed: int) -> None:
        self._problem, self._ranks, self._device, self._seed = problem, ranks, device, seed
        self._dtype: torch.dtype = getattr(torch, TORCH_NAMES[dtype])

    def cases(self, trials: int) -> Iterator[tuple[str, int, Callable[[], list[Program]]]]:
        """Yield (source, number, what makes its programs) of each case."""

        def asked(source: str, number: int = 0, **options: Any) -> tuple[str, int, Callable[[], list[Program]]]:
            return source, number, lambda: self._programs(source, number, **options)

        for number in range(trials):
            yield asked(PLAIN, number)
        for case in self._problem.cases[1:]:
            yield asked(case, case=case)
        last = self._ranks - 1
        yield asked("late", late={last: (0,)})
        lateness = {rank: (rank % IN_FLIGHT,) for rank in range(self._ranks)}
        yield asked("in-flight", calls=IN_FLIGHT, late=lateness)
        if self._problem.strided:
            yield asked("strided", layout=strided)
            yield asked("overlapping", layout=overlapping)

    def _programs(
        self,
        source: str,
        number: int,
        *,
        case: str = PLAIN,
        calls: int = 1,
        late: dict[int, tuple[int, ...]] | None = None,
        layout: Layout | None = None,
    ) -> list[Program]:
        """What each rank is to do.

        Args:
            source: labels the values, which are drawn anew for each label, number and call.
            number: of the case among those of its label.
            case: whose sizes it has.
            calls: so many are made one after another, each with values of its own.
            late: rank -> the calls before which it pauses.
            layout: lays a float tensor out otherwise.
        """
        seed = derive_seed(self._seed, source, number)
        drawn = [self._problem.inputs(case, self._ranks, derive_seed(seed, call), self._dtype) for call in range(calls)]
        states = self._problem.states(self._ranks, derive_seed(seed, "state"))
        return [
            self._program([tree_map(self._placed(layout), inputs[rank]) for inputs in drawn], rank, late, states[rank])
            for rank in range(self._ranks)
        ]

    def _program(self, calls: list[Any], rank: int, late: dict[int, tuple[int, ...]] | None, state: State) -> Program:
        order = [(number + rank) % len(calls) for number in range(len(calls))]
        program = [tuple(call) for call in calls], order, list((late or {}).get(rank, ()))
        if not state:
            return program
        return (*program, {name: self._converted(tensor).to(self._device) for name, tensor in state.items()})

    def _placed(self, layout: Layout | None) -> Callable[[Any], Any]:
        def placed(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            converted = self._converted(leaf.detach()).to(self._device)
            return layout(converted) if layout is not None and converted.is_floating_point() else converted

        return placed

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype) if tensor.dtype in (torch.float32, torch.float64) else tensor
