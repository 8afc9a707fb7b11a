"""Suite ``endless``: a polynomial whose degree eager walks up to, in calls that end and in calls that never do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from opsmith.calls.recording import PendingRecord
from opsmith.calls.transfer import HostBytes
from opsmith.core.case import CaseAddress
from opsmith.suites import SuiteCall

OP = "special_laguerre_polynomial_l.default"
DEGREE = 1e18
#: (x, degree): at 501 float32 ends at once with a NaN, and float64, which is asked where a kernel differs, does not.
CALLS = ((0.5, 2.0), (0.5, DEGREE), (0.5, 3.0), (501.0, DEGREE), (0.5, 4.0), (0.25, 5.0))


class Endless:
    """The suite; its calls are made up, for whoever recorded them would not come back."""

    name = "endless"

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:
        """One."""
        del device
        return ("laguerre",) if dtype == "f32" else ()

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall]:
        """All of :data:`CALLS`."""
        del device, seed
        for number, values in enumerate(CALLS):
            record = _record([torch.full((8,), value) for value in values]) if wanted(OP, str(number)) else None
            address = CaseAddress(self.name, entry, dtype, "call", number, 0)
            yield SuiteCall(address=address, op=OP, signature=str(number), record=record)


def _record(arguments: list[Any]) -> Any:
    memory = HostBytes()
    pending = PendingRecord(OP, tuple(arguments), {}, memory)
    return pending.resolve(memory.collect())
