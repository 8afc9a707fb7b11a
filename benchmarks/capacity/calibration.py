"""The measured figures that the simulation starts from, each with the record that it is from.

``calibration.json`` names for each the record, a path below benchmarks/results, and where in it the figure stands: a
``key`` of a JSON document, a ``quote`` from a text with braces in the figure's place, or a pattern whose matches'
``mean_of`` is taken.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
from pathlib import Path

import msgspec
from benchmarks.records import RESULTS, read

FILE = Path(__file__).with_name("calibration.json")


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured figure; see the module's docstring."""

    value: float
    record: str
    key: str | None = None
    quote: str | None = None
    mean_of: str | None = None

    def measured(self) -> float:
        """What the record says.

        Raises:
            ValueError: the record does not have it.
        """
        text = read(RESULTS / self.record).decode()
        if self.key is not None:
            value = json.loads(text)
            for part in self.key.split("."):
                value = value[part]
            return float(value)
        if self.quote is not None:
            pattern = re.escape(self.quote).replace(re.escape("{}"), "([0-9.,]*[0-9])")
            found = re.findall(pattern, " ".join(text.split()))
        else:
            found = re.findall(self.mean_of or "", text)
        if not found:
            raise ValueError(f"{self.record} does not say {self.quote or self.mean_of!r}")
        return round(statistics.fmean(float(number.replace(",", "")) for number in found), 2)


@functools.cache
def figures() -> dict[str, Figure]:
    """All of them."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Figure])


def figure(name: str) -> float:
    """The value of one."""
    return figures()[name].value
