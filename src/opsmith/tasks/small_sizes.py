"""Smaller sizes for a problem that names none in ``SMALL``.

Its size constants (:mod:`opsmith.tasks.size_constants`) are made smaller, the largest first, until one call fits
:data:`FITTING` or the Model takes nothing smaller. Numbers that are equal stay equal, those that differ stay different,
and a number that divides another still does, as far as that leads there. What a step leads to is counted on fake
tensors; that the Model also runs there, and that its answer depends on no less than a step earlier, real ones show.
Nothing here depends on the machine or the time that it takes: every process finds the same.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from opsmith.tasks.dependence import independent
from opsmith.tasks.problem_module import import_problem, seed_everything
from opsmith.tasks.size_constants import SizeConstant, SizeConstants
from opsmith.tasks.work import MOST_COUNTED_CALLS, Work, work

#: What one call may take: a twentieth of a second on two cores, where a judge makes some hundred.
FITTING = Work(flops=500_000_000, moved_bytes=64 << 20, case_bytes=16 << 20, calls=2_000)
#: Numbers up to here are kernel sizes, strides, heads and groups more often than sizes of inputs.
SMALLEST = 16
#: Down to here go those that only inputs are made of, where nothing else is left: large ones, and small ones such as
#: a batch, of which a batch norm takes two.
SMALLEST_OF_INPUTS = (4, 2)
#: Sizes keep what is left of them in blocks of so many, so that what is aligned stays so and what is odd too.
BLOCK = 16
#: How many times as much is still affordable: relations between constants are given up for more only.
_AFFORDABLE = 4
#: And how many times as much a Model takes at most that is run to see what its answer depends on.
_LOOKED_AT = 8
#: Steps back, where a size turns out to be too small.
_MOST_BACK = 3
#: A step that takes less than this share off the work is none.
_LEAST_GAIN = 0.1
#: Of more different constants than this, or of Models with more calls, no pairs are changed.
_MOST_PAIRED = 8
_MOST_PAIRED_CALLS = 200
_MOST_TRIED = 512

#: New values, one for each constant.
Sizes = tuple[int, ...]


class _Group(NamedTuple):
    """Constants that are changed together, by number."""

    members: tuple[int, ...]
    inputs_only: bool


def shrunk(file: Path) -> ModuleType | None:
    """A problem file with smaller sizes; None where it fits as it is, or nothing smaller runs.

    Raises:
        Exception: whatever the file raises.
    """
    problem = _Problem(file)
    found = list(steps(problem.constants, problem.work))
    fewest: frozenset[str] | None = None
    chosen: Sizes | None = None
    for sizes in found[: -_MOST_BACK - 1 : -1]:
        ignored = problem.independent(sizes)
        if ignored is None:
            continue
        if fewest is not None and not ignored < fewest:
            break
        fewest, chosen = ignored, sizes
        if not ignored:
            break
    return None if chosen is None else problem.module(chosen)


class _Problem:
    """A problem file at any sizes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found = SizeConstants(file.read_text(), str(file))
        self._counted: dict[Sizes, Work | None] = {}
        self.constants = self._found.constants

    def module(self, sizes: Sizes) -> ModuleType:
        """The file with these numbers."""
        pairs = zip(self.constants, sizes, strict=True)
        code = self._found.code({constant.place: size for constant, size in pairs if constant.value != size})
        return import_problem(self._file, code)

    def work(self, sizes: Sizes) -> Work | None:
        """The work of a call; None where there is no call at these sizes."""
        if sizes not in self._counted:
            self._counted[sizes] = self._work(sizes)
        return self._counted[sizes]

    def _work(self, sizes: Sizes) -> Work | None:
        with _quiet():
            try:
                parts = _Parts(self, sizes)
                return work(parts.model, parts.inputs)
            except Exception:  # noqa: BLE001 - a Model refuses in any way it likes
                return None

    def independent(self, sizes: Sizes) -> frozenset[str] | None:
        """What the answer does not depend on; None where the Model does not run. Nothing where it takes too long."""
        counted = self.work(sizes)
        if counted is None or not _fits(counted, _LOOKED_AT):
            return frozenset()
        try:
            module = self.module(sizes)
            return independent(_model(module), _inputs(module, 0), _inputs(module, 1))
        except Exception:  # noqa: BLE001 - as above
            return None


class _Parts:
    """Model and inputs of a file that runs when the Model is asked for: what it makes at its top may be large too."""

    def __init__(self, problem: _Problem, sizes: Sizes) -> None:
        self._problem, self._sizes = problem, sizes

    def model(self) -> Any:
        self._module = self._problem.module(self._sizes)
        return _model(self._module)

    def inputs(self) -> list[Any]:
        return _inputs(self._module, 0)


def _model(module: ModuleType) -> Any:
    seed_everything(0)
    init = vars(module).get("get_init_inputs", list)()
    return module.Model(*init)


def _inputs(module: ModuleType, seed: int) -> list[Any]:
    seed_everything(seed)
    return list(module.get_inputs())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's report of every fake call that fails."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def steps(constants: Sequence[SizeConstant], count: Callable[[Sizes], Work | None]) -> Iterator[Sizes]:
    """Smaller and smaller sizes, the last of which fit or are the smallest that were found.

    Args:
        constants: of the file.
        count: the work of one call at these sizes; None where the Model does not run at them.
    """
    search = _Search(constants, count)
    yield from search.run(keep=True, enough=1)
    yield from search.run(keep=False, enough=_AFFORDABLE)


class _Search:
    def __init__(self, constants: Sequence[SizeConstant], count: Callable[[Sizes], Work | None]) -> None:
        self._full = tuple(constant.value for constant in constants)
        self._inputs_only = [constant.inputs_only for constant in constants]
        self._count = count
        self._sizes = self._full
        self._work = count(self._sizes)

    def run(self, *, keep: bool, enough: int) -> Iterator[Sizes]:
        """Take steps while one leads on.

        Args:
            keep: the relations between constants.
            enough: times what fits is small enough.
        """
        skipped: set[tuple[_Group, ...]] = set()
        useless: set[tuple[_Group, ...]] = set()
        while self._work is not None and not _fits(self._work, enough):
            if not self._step(skipped, useless, keep=keep):
                skipped -= useless  # What took nothing off before may do now.
                useless.clear()
                if not self._step(skipped, useless, keep=keep):
                    return
            yield self._sizes

    def _step(self, skipped: set[tuple[_Group, ...]], useless: set[tuple[_Group, ...]], *, keep: bool) -> bool:
        """Take the first step that leads on, and remember what does not: the Model refuses it, or it is useless."""
        assert self._work is not None
        for moved in self._moves(keep=keep):
            sizes = None if moved in skipped else self._smaller(moved, _factor(self._work), keep=keep)
            if sizes is None:
                continue
            counted = self._count(sizes)
            if counted is not None and _is_less(counted, self._work):
                self._sizes, self._work = sizes, counted
                return True
            skipped.add(moved)
            if counted is not None:
                useless.add(moved)
        return False

    def _moves(self, *, keep: bool) -> Iterator[tuple[_Group, ...]]:
        """What may be changed at a time, the largest first: equal numbers, single ones, pairs of these."""
        equal: dict[int, list[int]] = {}
        for number, value in enumerate(self._full):
            equal.setdefault(value, []).append(number)
        groups = [self._group(members) for members in equal.values()]
        single = [self._group([number]) for members in equal.values() if len(members) > 1 for number in members]
        groups.sort(key=self._size, reverse=True)
        yield from ((group,) for group in groups)
        if len(groups) <= _MOST_PAIRED and self._work is not None and self._work.calls <= _MOST_PAIRED_CALLS:
            yield from combinations(groups, 2)
        if not keep:
            single.sort(key=self._size, reverse=True)
            yield from ((group,) for group in single)

    def _group(self, members: list[int]) -> _Group:
        return _Group(tuple(members), all(self._inputs_only[number] for number in members))

    def _size(self, group: _Group) -> int:
        return self._sizes[group.members[0]]

    def _smaller(self, moved: Sequence[_Group], factor: int, *, keep: bool) -> Sizes | None:
        """The sizes with some groups divided by about a factor, at most down to what is allowed; None: by nothing."""
        sizes = list(self._sizes)
        for group in sorted(moved, key=self._size):
            value = self._value(sizes, group, factor, keep=keep)
            if value is None:
                return None
            for number in group.members:
                sizes[number] = value
        return tuple(sizes)

    def _value(self, sizes: Sequence[int], group: _Group, factor: int, *, keep: bool) -> int | None:
        """A smaller value for a group; of those that keep the relations the first from the wanted one on."""
        full, now = self._full[group.members[0]], sizes[group.members[0]]
        loose = not keep and group.inputs_only
        least = SMALLEST_OF_INPUTS[full <= SMALLEST] if loose else SMALLEST
        block = 1 if loose else BLOCK
        wanted = max(now // factor, least)
        first = wanted + (full - wanted) % block
        others = [number for number in range(len(sizes)) if number not in group.members]
        for value in range(first, min(now, first + _MOST_TRIED * block), block):
            if loose or all(self._agree(full, value, self._full[each], sizes[each], keep=keep) for each in others):
                return value
        return None

    def _agree(self, full: int, value: int, other_full: int, other: int, *, keep: bool) -> bool:
        """Whether two constants are still to each other what they were in the file."""
        if min(full, other_full) < 2:
            return True
        if not keep:  # Only what counts parts of another: heads, groups.
            return full % other_full != 0 or other_full > SMALLEST or value % other == 0
        if full % other_full == 0 and value % other:
            return False
        if other_full % full == 0 and other % value:
            return False
        return (full == other_full) == (value == other)


def _fits(counted: Work, times: int = 1) -> bool:
    return max(_shares(counted)) <= times


def _shares(counted: Work) -> list[float]:
    return [each / most for each, most in zip(counted, FITTING, strict=True)]


def _factor(counted: Work) -> int:
    """By how much a constant is divided: one step more would be too far where the work goes with its cube."""
    over = max(_shares(counted))
    return 2 if over < 64 else 4 if over < 4096 else 8


def _is_less(counted: Work, before: Work) -> bool:
    """Whether a step leads on; where the count ended early, nobody knows."""
    if before.calls >= MOST_COUNTED_CALLS:
        return True
    return sum(_shares(counted)) < sum(_shares(before)) * (1 - _LEAST_GAIN)
