"""Suite ``fuzz``: property tests of any op, with calls that Hypothesis draws from its schema.

An entry is an overload. Its examples vary in everything that the schema leaves open: shapes, strides,
offsets, dtypes, values, scalars, keywords, optional arguments. The property is that of every suite: a
kernel answers as eager does. A failure is shrunk to a small one by :mod:`opsmith.runner.judge.shrinking`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from opsmith.aten.schemas import aten_schemas
from opsmith.core.case import CallRecord, CaseAddress, digest
from opsmith.core.op import Variant
from opsmith.core.seeds import derive_seed
from opsmith.suites import Skipped, SuiteCall

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from opsmith.suites.fuzz.calls import Drawn
    from opsmith.suites.fuzz.engine import Search

#: Examples of an op in one dtype, and of one that has a functional overload.
EXAMPLES = 20
EXAMPLES_OF_VARIANTS = 8


class Fuzz:
    """The suite; see the module's docstring."""

    name = "fuzz"

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - eager decides while drawing
        return _drawable()

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        from opsmith.suites.fuzz import facto
        from opsmith.suites.fuzz.engine import draw

        if not wanted(entry, ""):
            # Nobody asks, so nothing is drawn; the suite's index still learns what the entry is about.
            address = CaseAddress(self.name, entry, dtype, "example", -1, 0)
            yield SuiteCall(address=address, op=entry, signature=f"{entry} of {self.name}", record=None)
            return
        strategy, own = self._strategy(entry, dtype, device, seed)
        for number, drawn in enumerate(draw(strategy, seed=own, count=examples(entry))):
            address = CaseAddress(self.name, entry, dtype, "example", number, 0)
            signed = signature(drawn.record)
            record = drawn.record if wanted(entry, signed) else None
            yield SuiteCall(address=address, op=entry, signature=signed, record=record, tried=False)
        specified = facto.examples(entry, dtype, device, own) if facto.is_installed() else ()
        for number, (signed, record) in enumerate(specified):
            address = CaseAddress(self.name, entry, dtype, "facto", number, 0)
            yield SuiteCall(address=address, op=entry, signature=signed, record=record)

    def search(
        self, entry: str, dtype: str, device: str, seed: int, *, failing: int, limit_s: float
    ) -> Search[CallRecord]:
        """Look for the smallest call that fails like example number ``failing`` of an entry."""
        from opsmith.suites.fuzz.engine import Search

        strategy, own = self._strategy(entry, dtype, device, seed)
        return Search(
            strategy.map(lambda drawn: drawn.record),
            seed=own,
            count=examples(entry),
            failing=failing,
            identity=lambda record: digest(msgspec.msgpack.encode(record)),
            limit_s=limit_s,
        )

    def _strategy(self, entry: str, dtype: str, device: str, seed: int) -> tuple[SearchStrategy[Drawn], int]:
        from opsmith.suites.fuzz.calls import calls

        own = derive_seed(seed, self.name, entry, dtype)
        return calls(aten_schemas()[entry], dtype, device, own), own


def examples(entry: str) -> int:
    """How many examples an op gets; in-place and ``out=`` overloads differ little from the functional one."""
    return EXAMPLES if aten_schemas()[entry].variant is Variant.FUNCTIONAL else EXAMPLES_OF_VARIANTS


def signature(record: CallRecord) -> str:
    """Names everything about a drawn call but the seeds of its values."""
    storages = [
        msgspec.structs.replace(storage, seed=0) if not isinstance(storage, bytes) else digest(storage)
        for storage in record.storages
    ]
    return digest(msgspec.msgpack.encode((record.op, record.args, record.kwargs, storages)))


@functools.cache
def _drawable() -> tuple[str, ...]:
    from opsmith.suites.fuzz.calls import why_not

    return tuple(name for name, schema in sorted(aten_schemas().items()) if why_not(schema) is None)
