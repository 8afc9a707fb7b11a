"""Suite ``fuzz``: property tests of any op, with calls that Hypothesis draws from its schema.

An entry is an overload. Its examples vary in everything that the schema leaves open: shapes, strides,
offsets, dtypes, values, scalars, keywords, optional arguments. The property is that of every suite: a
kernel answers as eager does. A failure is shrunk to a small one by :mod:`opsmith.runner.shrinking`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import msgspec

from opsmith.core.case import CallRecord, CaseAddress, digest
from opsmith.suites import Skipped, SuiteCall, derive_seed
from opsmith.suites.aten_schemas import aten_schemas

#: Examples of an op in one dtype.
EXAMPLES = 20


class Fuzz:
    """The suite; see the module's docstring."""

    name = "fuzz"

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - eager decides while drawing
        return _drawable()

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        from opsmith.suites.fuzz.calls import calls
        from opsmith.suites.fuzz.engine import draw

        if not wanted(entry, ""):
            return
        own = derive_seed(seed, self.name, entry, dtype)
        strategy = calls(aten_schemas()[entry], dtype, device, own)
        for number, drawn in enumerate(draw(strategy, seed=own, count=EXAMPLES)):
            address = CaseAddress(self.name, entry, dtype, "example", number, 0)
            signed = signature(drawn.record)
            record = drawn.record if wanted(entry, signed) else None
            yield SuiteCall(address=address, op=entry, signature=signed, record=record, tried=False)


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
