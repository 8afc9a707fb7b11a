"""The cases of one collective on so many ranks in one dtype: sizes, layouts, reductions, several in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.op import GROUP
from opsmith.core.seeds import derive_seed
from opsmith.tasks.collectives import FUSED, MOVES, REDUCTIONS, WAIT, reduce_ops

#: Rows that each rank has of a tensor that is divided among ranks.
ROWS = 6
#: More than one message of a chunked algorithm, and no multiple of a number of ranks.
LARGE = 70_001
#: Inner and outer size of a fused product.
DEPTH, COLUMNS = 16, 10
#: Collectives that copy their argument first, whatever its layout.
COPYING = frozenset({"all_reduce.default", "all_reduce_coalesced.default", "broadcast.default"})
#: Of integers that every dtype and every order of additions holds exactly.
EXACT = 8

Draw = Callable[..., torch.Tensor]
Program = tuple[list[tuple[Any, ...]], list[int], list[int]]


@dataclass(frozen=True)
class Asked:
    """One case.

    Attributes:
        label: what it is about; the source in its address.
        programs: one for each rank, see :mod:`.program`.
        tolerance: (rtol, atol) of the roundings that the number of ranks explains, or None.
    """

    label: str
    programs: tuple[Program, ...]
    tolerance: tuple[float, float] | None = None


class CaseMaker:
    """Makes the cases of one task.

    Args:
        task: which collective.
        ranks: how many processes run it.
        dtype: short name.
        device: where the tensors are made.
        seed: of all values.
    """

    def __init__(self, task: str, ranks: int, dtype: str, device: str, seed: int) -> None:
        self._task, self._ranks, self._short = task, ranks, dtype
        self._dtype: torch.dtype = getattr(torch, TORCH_NAMES[dtype])
        self._device, self._seed = device, seed

    def cases(self) -> Iterator[Asked]:
        """Every case, in a fixed order."""
        if self._task == WAIT:
            yield from self._waits()
        elif self._task in FUSED:
            yield from self._fused()
        elif self._task in REDUCTIONS:
            yield from self._reductions()
        elif self._task.startswith("all_to_all"):
            yield from self._exchanges()
        else:
            yield from self._moves()

    # ------------------------------------------------------------ what is asked of which

    def _reductions(self) -> Iterator[Asked]:
        for reduce_op in reduce_ops(self._short):
            yield self._case(reduce_op, [(self._rows(5), reduce_op)], tolerance=self._rounding())
        first = reduce_ops(self._short)[0]
        for label, shape, draw in self._layouts():
            yield self._case(label, [(shape, first)], draw=draw, tolerance=self._rounding())
        yield self._case("exact", [(self._rows(257), first)], draw=self._small)
        yield self._case("late", [(self._rows(3), first)], late=self._ranks - 1, tolerance=self._rounding())
        calls = [
            (self._rows(columns), reduce_op) for columns, reduce_op in zip((2, 300, 7), _cycle(first), strict=True)
        ]
        yield self._in_flight(calls, draw=self._small)

    def _moves(self) -> Iterator[Asked]:
        sources = range(self._ranks) if self._task.startswith("broadcast") else (0,)
        for source in sources:
            yield self._case(f"from-{source}" if len(sources) > 1 else "rows", [(self._rows(5), source)])
        for label, shape, draw in self._layouts():
            yield self._case(label, [(shape, sources[-1])], draw=draw)
        yield self._case("late", [(self._rows(3), 0)], late=0)
        yield self._in_flight([(self._rows(columns), sources[-1]) for columns in (2, 300, 7)])

    def _exchanges(self) -> Iterator[Asked]:
        """Rank r sends ``matrix[r][s]`` rows to rank s."""
        ranks = range(self._ranks)
        matrices = {
            "even": [[3] * self._ranks for _ in ranks],
            "uneven": [[1 + (r + 2 * s) % 4 for s in ranks] for r in ranks],
            "empty": [[(r * 3 + s) % 3 for s in ranks] for r in ranks],
            "ring": [[4 if s == (r + 1) % self._ranks else 0 for s in ranks] for r in ranks],
            "large": [[2000 + 7 * s for s in ranks] for r in ranks],
        }
        for label, matrix in matrices.items():
            yield self._case(label, [((0, 5), matrix)])
        if self._takes_strided():
            yield self._case("strided", [((0, 5), matrices["uneven"])], draw=self._strided)
        yield self._case("late", [((0, 2), matrices["uneven"])], late=0)
        yield self._in_flight([((0, columns), matrices["uneven"]) for columns in (2, 300, 7)])

    def _fused(self) -> Iterator[Asked]:
        gathers = self._task.startswith("fused_all_gather")
        for dim in (0, 1) if not gathers else (0,):
            yield self._case(f"exact-dim-{dim}", [(None, dim)], draw=self._signs)
        if not gathers:
            yield self._case("average", [(None, 0, "avg")], draw=self._signs)
        if self._short == "f32":
            yield self._case("random", [(None, 0)], tolerance=self._rounding(DEPTH))
        yield self._case("late", [(None, 0)], draw=self._signs, late=self._ranks - 1)

    def _waits(self) -> Iterator[Asked]:
        first = reduce_ops(self._short)[0]
        yield self._case("one", [((LARGE,), first)], draw=self._small)
        yield self._case("late", [((64, 3), first)], draw=self._small, late=self._ranks - 1)
        yield self._in_flight([((columns, 4), first) for columns in (2, 300, 7)], draw=self._small)

    # ------------------------------------------------------------ programs

    def _case(
        self,
        label: str,
        calls: Sequence[tuple[Any, ...]],
        *,
        draw: Draw | None = None,
        late: int | None = None,
        tolerance: tuple[float, float] | None = None,
    ) -> Asked:
        """A case of so many calls that are waited for in order.

        Args:
            calls: of each the shape of a rank's tensor and what else the task takes; see :meth:`_arguments`.
            draw: makes tensors; by default of random values.
            late: the rank that starts late.
        """
        order = list(range(len(calls)))
        orders = [order[shift % len(order) :] + order[: shift % len(order)] for shift in range(self._ranks)]
        return Asked(
            label,
            tuple(
                (
                    [self._arguments(rank, number, call, label, draw) for number, call in enumerate(calls)],
                    orders[rank],
                    [0] if rank == late else [],
                )
                for rank in range(self._ranks)
            ),
            tolerance if self._dtype.is_floating_point else None,
        )

    def _in_flight(self, calls: Sequence[tuple[Any, ...]], *, draw: Draw | None = None) -> Asked:
        """Several calls before the first is waited for; each rank waits in another order, and the first starts late."""
        return self._case("in-flight", calls, draw=draw, late=0)

    def _arguments(
        self, rank: int, number: int, call: tuple[Any, ...], label: str, draw: Draw | None
    ) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(derive_seed(self._seed, label, rank, number))
        task = self._task.removesuffix(".default")
        shape, detail, *more = call

        def tensor(*size: int) -> torch.Tensor:
            return (draw or self._random)(generator, size).to(self._device)

        if task in ("all_reduce", "all_reduce_", "wait_tensor"):
            return tensor(*shape), detail, GROUP
        if task == "all_reduce_coalesced":
            return [tensor(*shape), tensor(3), tensor(2, 2)], detail, GROUP
        if task == "reduce_scatter_tensor":
            return tensor(self._ranks * shape[0], *shape[1:]), detail, self._ranks, GROUP
        if task == "reduce_scatter_tensor_coalesced":
            whole = tensor(self._ranks * shape[0], *shape[1:])
            return [whole, tensor(self._ranks, 3)], detail, self._ranks, GROUP
        if task == "all_gather_into_tensor":
            return tensor(*shape), self._ranks, GROUP
        if task == "all_gather_into_tensor_coalesced":
            return [tensor(*shape), tensor(3)], self._ranks, GROUP
        if task in ("broadcast", "broadcast_"):
            return tensor(*shape), detail, GROUP
        if task == "all_to_all_single":
            sent, received = list(detail[rank]), [row[rank] for row in detail]
            return tensor(sum(sent), *shape[1:]), received, sent, GROUP
        if task == "fused_all_gather_matmul":
            return tensor(ROWS, DEPTH), [tensor(DEPTH, COLUMNS), tensor(DEPTH, 3)], detail, GROUP
        assert task == "fused_matmul_reduce_scatter", task
        columns = COLUMNS * self._ranks
        return tensor(ROWS * self._ranks, DEPTH), tensor(DEPTH, columns), more[0] if more else "sum", detail, GROUP

    # ------------------------------------------------------------ shapes and values

    def _rows(self, columns: int) -> tuple[int, ...]:
        return ROWS, columns

    def _layouts(self) -> Iterator[tuple[str, tuple[int, ...], Draw | None]]:
        yield "single", (1,), None
        yield "large", (LARGE,), self._small if self._task in REDUCTIONS else None
        if self._takes_strided():
            yield "strided", self._rows(5), self._strided

    def _takes_strided(self) -> bool:
        """Whether torch's own collective does: NCCL takes none, so only where it copies its argument first."""
        return self._task in COPYING or (self._device == "cpu" and not self._task.endswith("_.default"))

    def _rounding(self, terms: int = 1) -> tuple[float, float]:
        """(rtol, atol) of additions in the dtype one after another, of values below 1.

        ``ranks * terms`` of them round by half a unit of a partial sum each; a product multiplies as many factors.
        """
        if not self._dtype.is_floating_point:
            return 0.0, 0.0
        eps, count = torch.finfo(self._dtype).eps, self._ranks * terms
        return (self._ranks - 1) * eps, (count - 1) * count * eps / 2

    def _random(self, generator: torch.Generator, size: Sequence[int]) -> torch.Tensor:
        """Floats between -1 and 1; integers of all magnitudes, and small ones where a sum of them could overflow."""
        if self._dtype is torch.bool:
            return torch.randint(2, size, generator=generator).bool()
        if self._dtype.is_floating_point:
            return (torch.rand(size, generator=generator, dtype=torch.float64) * 2 - 1).to(self._dtype)
        if self._task in MOVES:
            info = torch.iinfo(self._dtype)
            return torch.randint(info.min, info.max, size, generator=generator, dtype=self._dtype)
        return self._small(generator, size)

    def _small(self, generator: torch.Generator, size: Sequence[int]) -> torch.Tensor:
        """Integers of few bits: their sums are exact in every dtype and every order."""
        if self._dtype is torch.bool:
            return self._random(generator, size)
        lowest = 0 if self._dtype is torch.uint8 else -EXACT
        return torch.randint(lowest, EXACT + 1, size, generator=generator).to(self._dtype)

    def _signs(self, generator: torch.Generator, size: Sequence[int]) -> torch.Tensor:
        """-1, 0 and 1: of so few, products of matrices are exact in every dtype."""
        return torch.randint(-1, 2, size, generator=generator).to(self._dtype)

    def _strided(self, generator: torch.Generator, size: Sequence[int]) -> torch.Tensor:
        """Random values in every other column of a transposed matrix."""
        wide = self._random(generator, (2 * size[1], size[0]) if len(size) == 2 else (2 * size[0],))
        return wide[::2].t() if len(size) == 2 else wide[::2]


def _cycle(first: str) -> tuple[str, ...]:
    """Reductions of collectives that are in flight together, so that a mix-up shows."""
    return (first, "max", "min")
