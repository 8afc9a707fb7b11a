"""Suites say what is asked: a lazily enumerated set of ops with their cases.

A suite runs inside a referee. It lists its *entries* cheaply, and turns one entry at a time into
recorded calls; the runner spreads entries over referees. What the judge has to know before that (what the suite reads,
its default dtypes, its parallelism) it says in its traits: see :mod:`opsmith.suites.traits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from opsmith.core.audit import AuditFinding
from opsmith.core.case import CallRecord, CaseAddress
from opsmith.core.op import OpSchema

if TYPE_CHECKING:
    import torch

    # The records of runs are no part of what `import torch` waits for where a kernel package is installed.
    from opsmith.core.run import Selection
    from opsmith.suites.models.workload import Workload


class SuiteCall(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded ATen call.

    Attributes:
        address: where the call comes from.
        signature: hash that equal cases share (see :func:`opsmith.calls.recording.signature`).
        record: the serialized call, or None where an equal signature was recorded before.
        expects_error: eager raised on these arguments and the suite says that it should.
        tolerance: (rtol, atol) declared by the suite's author for this op, or None.
        count: how often the call was made where it was recorded.
        tried: eager has answered it on this device.
        ranks: processes that make the call together, whose arguments the record holds rank by rank; None: it is one
            process's.
    """

    address: CaseAddress
    op: str
    signature: str
    record: CallRecord | None
    expects_error: bool = False
    tolerance: tuple[float, float] | None = None
    count: int = 1
    tried: bool = True
    ranks: int | None = None


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an entry that could not be recorded."""

    address: CaseAddress
    reason: str


class Void(msgspec.Struct, frozen=True, kw_only=True):
    """An entry whose task asks nothing: a kernel has the answer without computing it.

    Attributes:
        finding: what shows it.
    """

    address: CaseAddress
    op: str
    finding: AuditFinding


@runtime_checkable
class Suite(Protocol):
    """What a referee asks of a suite; what the judge asks is in :class:`~opsmith.suites.traits.SuiteTraits`."""

    name: str

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:
        """The entries that exist for a dtype (short name) on a device type, in a fixed order."""
        ...

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped | Void]:
        """Run one entry under ``seed`` and yield its ATen calls.

        Args:
            wanted: given op and signature, says whether the call's record is needed.
        """
        ...


@runtime_checkable
class Selective(Protocol):
    """A suite that reads a dataset or problems, of which a run may ask a part; its traits say what it reads."""

    def select(self, selection: Selection, ops: Sequence[str] = ()) -> None:
        """Ask this part of this dataset; called before anything is listed.

        Args:
            ops: patterns (see :func:`~opsmith.core.op.matches`) of the ops that a sample is drawn from, or none for
                all. Calls of others are not asked.
        """
        ...


@runtime_checkable
class FindsVoid(Protocol):
    """A suite of tasks that may ask nothing."""

    def compare_by(self, alike: Callable[[torch.Tensor, torch.Tensor], bool] | None) -> None:
        """Find that out from now on, by what passes for an answer: (expected, other); or, with None, do not."""
        ...


@runtime_checkable
class AsksOwnTasks(Protocol):
    """A suite whose tasks are not ATen's overloads: modules, collectives, as its traits say."""

    def schemas(self) -> tuple[OpSchema, ...]:
        """Its tasks, as far as they are known without loading their files."""
        ...


@runtime_checkable
class AsksWholeModels(Protocol):
    """A suite of whole models, which columns answer instead of kernels; it yields no calls of ATen."""

    name: str

    def models(self) -> tuple[str, ...]:
        """The names of all models, those of packages that are not installed too."""
        ...

    def missing(self, model: str) -> str | None:
        """What to do to have a model's package; None where it is there."""
        ...

    def workload(self, model: str, *, small: bool) -> Workload:
        """Build a model, with weights and inputs drawn from torch's generator."""
        ...


class Search(Protocol):
    """A search for a smaller call that fails like a known one; it asks, others find out."""

    def propose(self) -> CallRecord | None:
        """The next call to try, or None when the search is over."""
        ...

    def answer(self, *, failed: bool) -> None:
        """Whether the last proposal failed."""
        ...

    def stop(self) -> None:
        """Give up."""
        ...


@runtime_checkable
class Shrinkable(Protocol):
    """A suite that draws its calls, and can draw smaller ones; its traits name the source of such cases."""

    def search(self, entry: str, dtype: str, device: str, seed: int, *, failing: int, limit_s: float) -> Search:
        """Look for the smallest call that fails like sample number ``failing`` of an entry."""
        ...
