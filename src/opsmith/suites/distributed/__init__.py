"""Suite ``distributed``: torch's functional collectives, and collectives fused with a matrix product.

An entry is a collective on so many ranks. A case is what all ranks do together: its record holds the arguments of each
of them (:mod:`.program`), and its answer is what each of them returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opsmith.calls.recording import PendingRecord, signature
from opsmith.calls.transfer import HostBytes
from opsmith.core.case import CallRecord, CaseAddress, digest
from opsmith.core.op import OpSchema
from opsmith.core.run import Selection
from opsmith.core.seeds import derive_seed
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.distributed.cases import CaseMaker
from opsmith.tasks.collectives import NAMESPACES, collective_schemas, dtypes

DEFAULT_RANKS: tuple[int, ...] = (2,)


class Distributed:
    """The suite; see the module's docstring."""

    name = "distributed"

    def __init__(self) -> None:
        self._ranks = DEFAULT_RANKS

    def select(self, selection: Selection, ops: Sequence[str] = ()) -> None:  # noqa: ARG002 - it draws no sample
        """See :class:`opsmith.suites.Selective`."""
        self._ranks = selection.ranks or DEFAULT_RANKS

    def schemas(self) -> tuple[OpSchema, ...]:
        """See :class:`opsmith.suites.AsksOwnTasks`."""
        return tuple(collective_schemas().values())

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - gloo and NCCL take the same
        return tuple(f"{task}@{ranks}" for task in NAMESPACES if dtype in dtypes(task) for ranks in self._ranks)

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        task, _, ranks = entry.partition("@")
        maker = CaseMaker(task, int(ranks), dtype, device, derive_seed(seed, self.name, entry, dtype))
        for case in maker.cases():
            address = CaseAddress(self.name, entry, dtype, case.label, 0, 0)
            signed = digest(f"{entry} {case.label} {signature(task, case.programs, {})}".encode())
            record: CallRecord | None = None
            if wanted(task, signed):
                memory = HostBytes()
                record = PendingRecord(task, case.programs, {}, memory).resolve(memory.collect())
            yield SuiteCall(
                address=address,
                op=task,
                signature=signed,
                record=record,
                tolerance=case.tolerance,
                ranks=int(ranks),
            )
