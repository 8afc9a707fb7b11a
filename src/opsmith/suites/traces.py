"""Suite ``traces``: the calls that real models make, at their real sizes.

Its entries are the ops of a dataset (see :mod:`opsmith.traces.schema`); a sample is a row. Rows hold
no values; what each argument may hold is in :mod:`opsmith.suites.valid_inputs`.

Sizes are capped: a call whose arguments and results take more than :data:`MOST_BYTES` together is
not asked, and of an op with nothing but such calls the smallest one is, unless it takes
:data:`SMALLEST_FACTOR` times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from opsmith.aten.renames import SUCCESSORS, current
from opsmith.core.case import CaseAddress, NamedValue, SequenceValue, TensorValue, Value, digest
from opsmith.core.dtypes import RECORDED, SHORT_NAMES, TORCH_NAMES
from opsmith.core.op import matches
from opsmith.core.run import Selection
from opsmith.core.sampling import spread_sample
from opsmith.core.seeds import derive_seed
from opsmith.core.trace import TracedCall
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.traced_size import argument_bytes, result_bytes
from opsmith.suites.valid_inputs import CannotRebuild, traced_record
from opsmith.traces.grammar import print_arguments
from opsmith.traces.schema import SHIPPED_PATH, Row, read_dataset

#: By device type: a call that takes more is asked only if its op has no smaller one. The CPU gets calls
#: that one thread answers in seconds; a device has to hold several calls with their references.
MOST_BYTES = {"cpu": 16 << 20}
MOST_BYTES_ELSEWHERE = 2 << 30
SMALLEST_FACTOR = 16

_FLOATS = ("f16", "bf16", "f32")
#: Arguments that ask for a result in float32 where the input is half as wide, by position.
_HALF_TO_FLOAT = {"_softmax.default": 2, "_log_softmax.default": 2}


class _Choice(NamedTuple):
    """A row that may be asked: its number in the dataset, the call, and the bytes that it takes."""

    number: int
    row: Row
    call: TracedCall
    size_bytes: int


class Traces:
    """The suite; see the module's docstring."""

    name = "traces"

    def __init__(self) -> None:
        self._selection = Selection()
        self._ops: Sequence[str] = ()
        self._rows: dict[str, list[tuple[int, Row]]] | None = None

    def select(self, selection: Selection, ops: Sequence[str] = ()) -> None:
        """See :class:`opsmith.suites.Selective`."""
        self._selection = selection
        self._ops = ops
        self._rows = None

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:  # noqa: ARG002 - models run anywhere
        return tuple(sorted(self._by_op())) if dtype in (RECORDED, *_FLOATS) else ()

    def calls(
        self, entry: str, dtype: str, device: str, seed: int, wanted: Callable[[str, str], bool]
    ) -> Iterator[SuiteCall | Skipped]:
        for choice in self._chosen(entry, dtype, device):
            address = CaseAddress(self.name, entry, dtype, "input", choice.number, 0)
            signature = digest(f"{choice.call.op} {print_arguments(choice.call)}".encode())
            record = None
            if wanted(choice.call.op, signature):
                try:
                    record = traced_record(choice.call, seed=derive_seed(seed, self.name, entry, choice.number))
                except CannotRebuild as exc:
                    yield Skipped(address=address, reason=str(exc))
                    continue
            yield SuiteCall(
                address=address,
                op=choice.call.op,
                signature=signature,
                record=record,
                count=choice.row.count,
                tried=False,
            )

    @property
    def _path(self) -> Path:
        return SHIPPED_PATH if self._selection.dataset is None else Path(self._selection.dataset)

    def _by_op(self) -> dict[str, list[tuple[int, Row]]]:
        """The rows that are asked, under today's name of their op."""
        if self._rows is None:
            rows: dict[str, list[tuple[int, Row]]] = {}
            for number, row in enumerate(read_dataset(self._path), start=1):
                if _is_asked(row, self._selection):
                    name = row.op_name.removeprefix("aten.")
                    successor = SUCCESSORS.get(name)
                    rows.setdefault(successor.op if successor else name, []).append((number, row))
            if self._selection.sample is not None:
                if self._ops:
                    rows = {op: of_op for op, of_op in rows.items() if any(matches(op, p) for p in self._ops)}
                seed, count = self._selection.sample_seed, self._selection.sample
                rows = spread_sample(rows, count, seed=seed, name=lambda entry: entry[1].uuid)
            self._rows = rows
        return self._rows

    def _chosen(self, entry: str, dtype: str, device: str) -> list[_Choice]:
        """The rows of an op that are asked on a device, the largest first."""
        choices = []
        for number, row in self._by_op()[entry]:
            call = in_dtype(current(row.call(source=f"row {number}")), dtype)
            choices.append(_Choice(number, row, call, argument_bytes(call)))
        choices.sort(key=lambda choice: (-choice.size_bytes, choice.number))
        most_bytes = MOST_BYTES.get(torch.device(device).type, MOST_BYTES_ELSEWHERE)
        largest = _largest(choices, self._selection.top_inputs, most_bytes)
        count = self._selection.spread_inputs
        return largest if count is None else _spread(largest, count)


def _largest(choices: Sequence[_Choice], top_inputs: int | None, most_bytes: int) -> list[_Choice]:
    """The largest calls that fit into ``most_bytes``; the smallest of all if none does."""
    chosen: list[_Choice] = []
    for choice in choices:
        if choice.size_bytes <= most_bytes and choice.size_bytes + result_bytes(choice.call) <= most_bytes:
            chosen.append(choice)
            if len(chosen) == top_inputs:
                return chosen
    if chosen or not choices:
        return chosen
    smallest = choices[-1]
    fits = smallest.size_bytes + result_bytes(smallest.call) <= SMALLEST_FACTOR * most_bytes
    return [smallest] if fits else []


def _spread(choices: Sequence[_Choice], count: int) -> list[_Choice]:
    """The first, the last and evenly by rank between them, ``count`` in all; all of them if there are fewer."""
    last = len(choices) - 1
    ranks = {round(i * last / (count - 1)) for i in range(count)}
    return [choices[rank] for rank in sorted(ranks)] if choices else []


def _is_asked(row: Row, selection: Selection) -> bool:
    if not row.included_in_benchmark:
        return False
    if selection.models and not any(fnmatchcase(model, p) for model in row.in_models for p in selection.models):
        return False
    wanted = {"with": (True, False, None), "only": (True,), "without": (False, None)}[selection.overhead_dominated]
    return row.is_overhead_dominated_op in wanted


def in_dtype(call: TracedCall, dtype: str) -> TracedCall:
    """The call with every half and single precision tensor and dtype argument replaced by ``dtype``.

    ``recorded`` leaves it as it was. Double precision and integer tensors stay as they are, complex
    ones too, but for halves that become f32.
    """
    if dtype == RECORDED:
        return call
    args = [_in_dtype(value, dtype) for value in call.args]
    flag = _HALF_TO_FLOAT.get(call.op)
    if flag is not None and dtype == "f32" and flag < len(args):
        args[flag] = False
    kwargs = {name: _in_dtype(value, dtype) for name, value in call.kwargs.items()}
    return TracedCall(op=call.op, args=tuple(args), kwargs=kwargs)


def _in_dtype(value: Value, dtype: str) -> Value:
    if isinstance(value, TensorValue):
        if value.dtype == "c32" and dtype == "f32":
            return msgspec.structs.replace(value, dtype="c64")
        return value if value.dtype not in _FLOATS else msgspec.structs.replace(value, dtype=dtype)
    if isinstance(value, SequenceValue):
        return SequenceValue(tuple([_in_dtype(item, dtype) for item in value.items]), value.is_tuple)
    if isinstance(value, NamedValue) and value.kind == "dtype" and SHORT_NAMES.get(value.name) in _FLOATS:
        return NamedValue("dtype", TORCH_NAMES[dtype])
    return value
