"""One parallel problem: what ranks compute together, as a file that runs on a process group. Loaded in referees only.

The file defines ``Model`` with ``get_inputs(rank, world_size)`` and ``get_init_inputs()``, or a function ``solution``
whose inputs come from such a ``get_inputs`` or from the table of the checkout that it lies in. Its reference is that
code on a :class:`~opsmith.tasks.local_world.LocalWorld`: all ranks of a call in one process.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from opsmith.core.problems import PLAIN_INPUTS, input_table
from opsmith.core.seeds import derive_seed
from opsmith.tasks.local_world import LocalWorld, RankFailed
from opsmith.tasks.module_call import CONSTRUCTION_SEED
from opsmith.tasks.module_state import State, declared_state, perturbed
from opsmith.tasks.problem import BrokenProblem, ProblemFile, record_call
from opsmith.tasks.problem_module import import_problem, seed_everything
from opsmith.tasks.rank_arguments import grids, names_group, plain
from opsmith.tasks.rank_program import RankProgram, function_program, module_program

#: A problem's dict of cases beside its plain one: a label, and other values for constants of its file.
SIZES = "SIZES"
#: A problem's tuple of numbers of results that are the same on all ranks, bit by bit.
REPLICATED = "REPLICATED"
#: True in a problem whose solutions have to take tensors of any strides.
STRIDED = "STRIDED"
#: A problem's tuple of the dtypes that it is asked in.
DTYPES = "DTYPES"
#: The case that every problem has.
PLAIN = PLAIN_INPUTS
#: Shapes that the public table is given: its own default, and one that a CPU takes.
TABLE_SHAPE, SMALL_TABLE_SHAPE = (1024, 1024), (128, 128)


class ParallelFile(ProblemFile):
    """The parts of a parallel problem's file.

    Args:
        file: its path.
        small: take the sizes that its ``SMALL`` names, where it has some.
        case: take the constants of this one of its ``SIZES``.

    Attributes:
        constants: what the file says of itself, by name.
        answer: ``Model`` or ``solution``.

    Raises:
        BrokenProblem: it does not load, or a part is missing.
    """

    def __init__(self, file: Path, *, small: bool, case: str = PLAIN) -> None:
        self._file = file
        module = self.trying("does not load", lambda: import_problem(file))
        self.constants = vars(module)
        if small:
            self._make_small(module)
        if case != PLAIN:
            self._set_constants(module, self.constants[SIZES][case], f"{SIZES}[{case!r}]")
        self.answer = self._part(module, "solution" if "solution" in self.constants else "Model")
        table = input_table(file)
        if "get_inputs" in self.constants or table is None:
            self._make_inputs = self._part(module, "get_inputs")
        else:
            self._make_inputs = _of_table(table, file, small=small)
        self._make_init = self.constants.get("get_init_inputs", list)
        self._make_model = self.answer
        self.takes_shared = "shared" in inspect.signature(self._make_inputs).parameters
        self.takes_dtype = "dtype" in inspect.signature(self._make_inputs).parameters

    def inputs_of_rank(self, rank: int, ranks: int, seed: int, dtype: torch.dtype) -> list[Any]:
        """The arguments of one call on one rank, drawn under ``seed``.

        Raises:
            BrokenProblem: ``get_inputs`` raised or returned no list.
        """
        options: dict[str, Any] = {}
        if self.takes_shared:
            options["shared"] = torch.Generator().manual_seed(seed)
        if self.takes_dtype:
            options |= {"dtype": dtype, "seed": seed}
        seed_everything(derive_seed(seed, "rank", rank))
        inputs = self.trying("get_inputs() failed", lambda: self._make_inputs(rank, ranks, **options))
        if not isinstance(inputs, (list, tuple)):
            raise BrokenProblem(f"{self._file.name}: get_inputs() returned a {type(inputs).__name__}, not a list")
        return list(inputs)


class ParallelProblem:
    """A parallel problem.

    Args:
        task: its name.
        file: its path.
        device: where its reference runs.
        small: take the sizes that its ``SMALL`` names, where it has some.

    Attributes:
        init: the serialized arguments of ``Model`` and ``ModelNew``.
        cases: labels of its cases, the plain one first.
        replicated: numbers of the results that are the same on all ranks, bit by bit.
        strided: solutions have to take tensors of any strides.
        dtypes: that it is asked in, by their short names; empty: in any.

    Raises:
        BrokenProblem: it does not load, or a part of it is missing.
    """

    def __init__(self, task: str, file: Path, device: torch.device, *, small: bool = False) -> None:
        self._file, self._device, self._small = file, device, small
        plain = ParallelFile(file, small=small)
        self._parts = {PLAIN: plain}
        #: Whether the inputs of a case on so many ranks are the same under every seed.
        self._constant: dict[tuple[str, int], bool] = {}
        self._is_function = not inspect.isclass(plain.answer)
        self._init = [] if self._is_function else plain.init_inputs(derive_seed(task, "init"))
        self.init = msgspec.msgpack.encode(
            plain.trying("get_init_inputs() cannot be serialized", lambda: record_call(task, self._init, {}))
        )
        self.cases = (PLAIN, *plain.constants.get(SIZES, {}))
        self.replicated: tuple[int, ...] = tuple(plain.constants.get(REPLICATED, ()))
        self.strided = bool(plain.constants.get(STRIDED, False))
        self.dtypes: tuple[str, ...] = tuple(plain.constants.get(DTYPES, ()))

    def inputs(self, case: str, ranks: int, seed: int, dtype: torch.dtype) -> list[list[Any]]:
        """The arguments of one call on each rank as plain data; what the problem does not draw at random is redrawn.

        Raises:
            BrokenProblem: ``get_inputs`` raised or returned no list.
        """
        drawn = self._drawn(case, ranks, seed, dtype)
        if (case, ranks) not in self._constant:
            others = self._drawn(case, ranks, seed + 1, dtype)
            self._constant[case, ranks] = all(map(_same_values, drawn, others))
        return redrawn(drawn, seed) if self._constant[case, ranks] else drawn

    def _drawn(self, case: str, ranks: int, seed: int, dtype: torch.dtype) -> list[list[Any]]:
        if case not in self._parts:
            self._parts[case] = ParallelFile(self._file, small=self._small, case=case)
        parts = self._parts[case]

        def drawn(rank: int) -> Any:
            return tree_map(plain, parts.inputs_of_rank(rank, ranks, seed, dtype))

        inputs: list[list[Any]] = self._on_ranks([partial(drawn, rank) for rank in range(ranks)])
        return inputs

    def states(self, ranks: int, seed: int) -> list[State]:
        """Other values of each rank's parameters and buffers; what ranks hold alike they hold alike."""
        if self._is_function:
            return [{} for _ in range(ranks)]

        def state() -> State:
            model = self._model()
            generator = torch.Generator().manual_seed(seed)
            return {name: perturbed(tensor, generator) for name, tensor in declared_state(model).items()}

        states: list[State] = self._on_ranks([state] * ranks)
        return states

    def reference(self, *programs: Sequence[Any]) -> list[list[Any]]:
        """What each rank answers to its program (:mod:`.rank_program`): the result of each call.

        Raises:
            RankFailed: a rank raised.
        """
        return LocalWorld(len(programs)).run([partial(self._run, program) for program in programs])

    def _run(self, program: Sequence[Any]) -> list[Any]:
        if any(map(names_group, tree_leaves(program))):
            for ranks in grids(dist.get_world_size()):
                dist.new_group(list(ranks))
        return self._program()(*program)

    def _program(self) -> RankProgram:
        options: dict[str, Any] = {"pause": lambda: None}
        return (
            function_program(self._parts[PLAIN].answer, **options)
            if self._is_function
            else module_program(self._model(), **options)
        )

    def _model(self) -> torch.nn.Module:
        return self._parts[PLAIN].model(self._init, CONSTRUCTION_SEED).to(self._device)

    def _on_ranks(self, steps: Sequence[Callable[[], Any]]) -> list[Any]:
        try:
            return LocalWorld(len(steps)).run(steps)
        except RankFailed as exc:
            cause = exc.__cause__
            raise (cause if isinstance(cause, BrokenProblem) else BrokenProblem(f"{self._file.name}: {exc}")) from exc


def _same_values(one: list[Any], other: list[Any]) -> bool:
    """Whether two draws of a rank's inputs have the same floats."""
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=False)
    floats = [pair for pair in pairs if isinstance(pair[0], torch.Tensor) and pair[0].is_floating_point()]
    return bool(floats) and all(a.shape == b.shape and torch.equal(a, b) for a, b in floats)


def redrawn(inputs: list[list[Any]], seed: int) -> list[list[Any]]:
    """Other values for inputs that are not drawn at random; what is the same on all ranks stays so."""
    of_ranks = [tree_flatten(own) for own in inputs]
    first = of_ranks[0][0]

    def other(rank: int, place: int, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        shared = len(of_ranks) > 1 and all(
            len(leaves) > place and isinstance(leaves[place], torch.Tensor) and torch.equal(leaves[place], first[place])
            for leaves, _ in of_ranks
        )
        generator = torch.Generator().manual_seed(derive_seed(seed, "redrawn", place, None if shared else rank))
        return perturbed(leaf, generator)

    return [
        tree_unflatten([other(rank, place, leaf) for place, leaf in enumerate(leaves)], spec)
        for rank, (leaves, spec) in enumerate(of_ranks)
    ]


# ---------------------------------------------------------------- the public form's table


def _of_table(table: Path, file: Path, *, small: bool) -> Callable[..., Any]:
    """The inputs that a checkout's table has for a problem, by the number that its file's name begins with."""
    number = re.match(r"\d+", file.stem)
    if number is None:
        raise BrokenProblem(f"{file.name}: its name begins with no number, by which the table of inputs knows it")
    make = vars(_imported_table(table)).get("create_input_tensor")
    if not callable(make):
        raise BrokenProblem(f"{table} defines no create_input_tensor")
    shape = SMALL_TABLE_SHAPE if small else TABLE_SHAPE
    of_table: Callable[..., Any] = make

    def get_inputs(rank: int, world_size: int, *, dtype: torch.dtype, seed: int) -> Any:
        # Some of its sizes hang on the number of the trial modulo a small number: only its values are to change.
        trial = seed % (1 << 30) * TRIAL_STEP
        return of_table(rank, world_size, int(number[0]), shape, dtype, trial=trial, device=torch.device("cpu"))

    return get_inputs


#: A multiple of what the table divides trials by.
TRIAL_STEP = 240
_tables: dict[Path, ModuleType] = {}


def _imported_table(table: Path) -> ModuleType:
    if table not in _tables:
        with _importing_from(table.parent.parent):
            _tables[table] = import_problem(table)
    return _tables[table]


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Within, the checkout's own modules are found."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
