"""Is it right? One candidate outcome against eager's, from structure down to values.

The order is from what makes the next question meaningless to what is fine: structure, device,
dtype, shape, aliasing, layout, mutation, values. The first broken promise is the verdict.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import msgspec
import torch

from opsmith.core.case import (
    CallRecord,
    ComplexValue,
    Outcome,
    OutputOther,
    OutputTensor,
    TensorValue,
    Value,
    tensor_values,
)
from opsmith.core.op import OpSchema, Variant
from opsmith.core.verdict import ErrorFigures, Status
from opsmith.evaluation import comparisons
from opsmith.evaluation.comparisons.table import Rule
from opsmith.evaluation.inputs import element_bytes, rebuild, tensor_from_bytes
from opsmith.evaluation.observation import Finding, JudgedCall, Result
from opsmith.suites.aten_schemas import overload

#: How often eager is repeated when a candidate differs from it.
REPETITIONS = 16
#: Repetitions of eager that differ by more than this share of 1 + |value| read unwritten memory.
UNSTABLE = 0.05


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for a case: a :class:`Finding` plus remarks on the layout."""

    status: Status
    detail: str = ""
    figures: ErrorFigures | None = None
    layout_differs: bool = False


class CaseUnderJudgement:
    """A case with eager's outcomes, ready to be compared with a candidate's.

    Args:
        record: the call before it ran.
        schema: the overload called.
        rule: how its results are compared.
        reference: eager's outcomes, one per repeat.
        device: where the oracle may run the op again.
        tolerance: (rtol, atol) declared by the suite, or None.
        run_again: runs eager once more on the same arguments and random state, given the number of
            the repetition, with other garbage in the memory that is not its to read.
    """

    def __init__(
        self,
        record: CallRecord,
        schema: OpSchema,
        rule: Rule,
        reference: Sequence[Outcome],
        *,
        device: torch.device,
        tolerance: tuple[float, float] | None,
        run_again: Callable[[int], Outcome],
    ) -> None:
        self.repeats = len(reference)
        self._run_again = run_again
        self._record = record
        self._schema = schema
        self._rule = rule
        self._reference = reference
        self._device = device
        self._tolerance = tolerance
        self._written = _written_storages(record, schema, reference)

    def judge(self, candidate: Sequence[Outcome], *, tolerance: str, layout: str) -> Judgement:
        """Compare the candidate's outcomes, one per repeat, with the held reference.

        Args:
            tolerance: ``strict``, ``backendbench`` or ``kernelbench``.
            layout: ``dense`` lets a dense permutation of eager's layout pass, ``exact`` does not.
        """
        differs = False
        for ours, theirs in zip(self._reference, candidate, strict=True):
            problem = self._form_problem(ours, theirs, layout)
            if problem is not None:
                return problem
            differs = differs or _layout_differs(ours, theirs)
        if self._rule.kind != "distribution" and list(candidate) == list(self._reference):
            return Judgement(status=Status.PASSED, layout_differs=differs)
        finding = self._compare_values(candidate, tolerance)
        if not finding.passed and self._rule.kind != "distribution":
            candidate = self._without_unstable(candidate)
            finding = self._compare_values(candidate, tolerance)
        return Judgement(status=finding.status, detail=finding.detail, figures=finding.figures, layout_differs=differs)

    def _form_problem(self, ours: Outcome, theirs: Outcome, layout: str) -> Judgement | None:
        for status, detail in self._form_problems(ours, theirs, layout):
            return Judgement(status=status, detail=detail)
        return None

    def _form_problems(self, ours: Outcome, theirs: Outcome, layout: str) -> Iterator[tuple[Status, str]]:
        if ours.structure != theirs.structure:
            yield Status.WRONG_STRUCTURE, f"returned {_kinds(theirs)}, eager returns {_kinds(ours)}"
            return
        pairs = list(enumerate(zip(ours.outputs, theirs.outputs, strict=True)))
        for check in (_kind_problem, _device_problem, _dtype_problem, _shape_problem, _alias_problem):
            for number, (mine, other) in pairs:
                yield from check(f"result {number}", mine, other)
        for number, (mine, other) in pairs:
            yield from _stride_problem(f"result {number}", mine, other, layout)
        yield from self._mutation_problems(theirs)

    def _mutation_problems(self, theirs: Outcome) -> Iterator[tuple[Status, str]]:
        for number, after in theirs.changed.items():
            if not 0 <= number < len(self._record.storages):
                yield Status.MUTATED_INPUT, f"reported a change of input storage {number}, which does not exist"
            elif number not in self._written:
                yield Status.MUTATED_INPUT, f"changed the memory of input tensor {self._tensor_number(number)}"
            elif self._wrote_outside(number, after):
                yield (
                    Status.MUTATED_INPUT,
                    f"wrote outside the elements of input tensor {self._tensor_number(number)}",
                )

    def _tensor_number(self, storage: int) -> int:
        tensors = tensor_values((*self._record.args, *self._record.kwargs.values()))
        return next((i for i, t in enumerate(tensors) if t.storage == storage), storage)

    def _wrote_outside(self, number: int, after: bytes) -> bool:
        """Whether bytes changed that eager left alone in a storage of the same length."""
        before = self._record.storages[number]
        eager = self._reference[0].changed.get(number, before)
        if len(after) != len(eager):
            return False  # eager resized it; shape and values were or will be compared
        windows = [t for t in self._all_tensors() if t.storage == number]
        inside = torch.zeros(len(before), dtype=torch.bool)
        for window in windows:
            _mark_window(inside, window)
        if bool(inside.all()) or len(before) != len(after):
            return False
        changed = _byte_tensor(after) != _byte_tensor(before)
        return bool((changed & ~inside).any())

    def _all_tensors(self) -> list[TensorValue]:
        return tensor_values((*self._record.args, *self._record.kwargs.values()))

    def _compare_values(self, candidate: Sequence[Outcome], tolerance: str) -> Finding:
        live = rebuild(self._record, self._device)
        call = JudgedCall(schema=self._schema, args=live.args, kwargs=live.kwargs, tolerance=self._tolerance)
        return comparisons.compare(
            call,
            [self._results(outcome) for outcome in self._reference],
            [self._results(outcome) for outcome in candidate],
            tolerance=tolerance,
        )

    def _without_unstable(self, candidate: Sequence[Outcome]) -> list[Outcome]:
        """The candidate with eager's own elements where eager does not agree with itself.

        Some ops read memory that nobody wrote (CPU grid_sampler with NaN in the grid, the tail of
        _ctc_loss's log_alpha), and sums by atomic additions come out in another order each time:
        there the candidate may differ from one execution of eager's as others of eager's do.
        """
        repetitions = [self._run_again(number) for number in range(REPETITIONS)]
        outputs = list(candidate[0].outputs)
        for number, (mine, other) in enumerate(zip(self._reference[0].outputs, outputs, strict=True)):
            if isinstance(mine, OutputTensor) and isinstance(other, OutputTensor) and mine.data:
                again = [outcome.outputs[number] for outcome in repetitions]
                outputs[number] = _stabilised(mine, other, [o for o in again if isinstance(o, OutputTensor)])
        return [msgspec.structs.replace(candidate[0], outputs=tuple(outputs))]

    def _results(self, outcome: Outcome) -> list[Result]:
        """The leaves of the return value, then every written input that is not among them."""
        results: list[Result] = [_leaf(output) for output in outcome.outputs]
        returned = {o.input_storage for o in outcome.outputs if isinstance(o, OutputTensor)}
        for tensor in self._all_tensors():
            if tensor.storage in self._written and tensor.storage not in returned:
                content = outcome.changed.get(tensor.storage, self._record.storages[tensor.storage])
                results.append(_window(content, tensor))
        return results


def _written_storages(record: CallRecord, schema: OpSchema, reference: Sequence[Outcome]) -> set[int]:
    """Storages that the op may write: those that eager changed and those that the schema marks.

    Some schemas, such as native_batch_norm's, do not say what is written.
    """
    written = {number for outcome in reference for number in outcome.changed}
    if schema.variant is Variant.INPLACE:
        written |= {t.storage for t in tensor_values(record.args[:1])}
    elif schema.variant in (Variant.OUT, Variant.MUTABLE):
        written |= {t.storage for t in tensor_values(_marked_arguments(record, schema))}
    return written


def _marked_arguments(record: CallRecord, schema: OpSchema) -> list[Value]:
    arguments = overload(schema.name)._schema.arguments
    marked = []
    for position, argument in enumerate(arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = record.args[position] if position < len(record.args) else record.kwargs.get(argument.name)
            marked.append(value)
    return marked


# ---------------------------------------------------------------- checks of one result


def _kind_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther
) -> Iterator[tuple[Status, str]]:
    if _kind(mine) != _kind(other):
        yield Status.WRONG_STRUCTURE, f"{name} is a {_kind(other)}, eager's is a {_kind(mine)}"


def _device_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther
) -> Iterator[tuple[Status, str]]:
    if isinstance(mine, OutputTensor) and isinstance(other, OutputTensor) and mine.device != other.device:
        yield Status.WRONG_DEVICE, f"{name} is on {other.device}, eager's is on {mine.device}"


def _dtype_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther
) -> Iterator[tuple[Status, str]]:
    if isinstance(mine, OutputTensor) and isinstance(other, OutputTensor) and mine.dtype != other.dtype:
        yield Status.WRONG_DTYPE, f"{name} has dtype {other.dtype}, eager's has {mine.dtype}"


def _shape_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther
) -> Iterator[tuple[Status, str]]:
    if isinstance(mine, OutputTensor) and isinstance(other, OutputTensor) and mine.shape != other.shape:
        yield Status.WRONG_SHAPE, f"{name} has shape {list(other.shape)}, eager's has {list(mine.shape)}"


def _alias_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther
) -> Iterator[tuple[Status, str]]:
    if not isinstance(mine, OutputTensor) or not isinstance(other, OutputTensor):
        return
    if other.input_storage is not None and mine.input_storage is None:
        yield Status.ALIASED_OUTPUT, f"{name} shares memory with an input, eager's is a new tensor"
    elif mine.input_storage is not None and other.input_storage != mine.input_storage:
        yield Status.ALIASED_OUTPUT, f"{name} is a new tensor, eager's shares memory with an input"
    elif other.output is not None and mine.output is None:
        yield Status.ALIASED_OUTPUT, f"{name} shares memory with result {other.output}, eager's does not"
    elif mine.input_storage is not None and mine.offset != other.offset:
        yield Status.ALIASED_OUTPUT, f"{name} starts at element {other.offset} of its storage, eager's at {mine.offset}"


def _stride_problem(
    name: str, mine: OutputTensor | OutputOther, other: OutputTensor | OutputOther, layout: str
) -> Iterator[tuple[Status, str]]:
    if not isinstance(mine, OutputTensor) or not isinstance(other, OutputTensor):
        return
    if mine.layout != other.layout:
        yield Status.WRONG_STRIDE, f"{name} has layout {other.layout}, eager's has {mine.layout}"
    elif _significant(mine) == _significant(other):
        return
    elif layout == "exact" or mine.input_storage is not None:
        yield Status.WRONG_STRIDE, f"{name} has strides {other.strides}, eager's has {mine.strides}"
    elif _is_dense(mine) and not _is_dense(other):
        yield Status.WRONG_STRIDE, f"{name} has strides {other.strides}: not dense, as eager's {mine.strides} is"


def _layout_differs(ours: Outcome, theirs: Outcome) -> bool:
    return any(
        isinstance(mine, OutputTensor) and isinstance(other, OutputTensor) and _significant(mine) != _significant(other)
        for mine, other in zip(ours.outputs, theirs.outputs, strict=True)
    )


def _significant(output: OutputTensor) -> tuple[int, ...]:
    """Strides of the dimensions that have any: sizes of 0 and 1 leave them undefined."""
    if 0 in output.shape:
        return ()
    return tuple(stride for size, stride in zip(output.shape, output.strides, strict=True) if size != 1)


def _is_dense(output: OutputTensor) -> bool:
    """Whether the elements fill a block of memory without gaps or overlaps, in any order."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(output.shape, output.strides, strict=True)):
        if size == 0:
            return True
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _kind(output: OutputTensor | OutputOther) -> str:
    return "tensor" if isinstance(output, OutputTensor) else output.kind


def _kinds(outcome: Outcome) -> str:
    kinds = [_kind(output) for output in outcome.outputs]
    return kinds[0] if outcome.structure == "*" else f"({', '.join(kinds)})"


def _stabilised(mine: OutputTensor, other: OutputTensor, again: Sequence[OutputTensor]) -> OutputTensor:
    """The candidate's result with eager's elements where the difference is eager's own."""
    expected = tensor_from_bytes(mine.data, mine.dtype, mine.shape)
    repeated = [tensor_from_bytes(o.data, o.dtype, o.shape) for o in again if o.shape == mine.shape]
    if not repeated or expected.is_complex() or expected.dtype is torch.bool:
        return other
    got = tensor_from_bytes(other.data, other.dtype, other.shape)
    excused = _excused(expected.double(), got.double(), torch.stack(repeated).double())
    if not bool(excused.any()):
        return other
    return msgspec.structs.replace(other, data=element_bytes(torch.where(excused, expected, got)))


def _excused(expected: torch.Tensor, got: torch.Tensor, repeated: torch.Tensor) -> torch.Tensor:
    """Elements whose distance from ``expected`` eager's own repetitions ``[R, *shape]`` explain.

    The bound is a multiple of what the repetitions spread over, at the element and over all that
    vary. The multiple is twice what it takes to let each repetition pass by the spread of the
    others: sums by atomic additions in half precision have long tails.
    """
    distance = (repeated - expected).abs()
    same = ((repeated == expected) | (repeated.isnan() & expected.isnan())).all(0)
    # Nobody wrote what differs by this much, or is a number here and a NaN there.
    unwritten = ~same & ~(distance.amax(0) <= UNSTABLE * (1 + expected.abs()))
    distance = torch.where(same | unwritten, 0.0, distance)
    largest, second = distance.topk(2, dim=0).values
    varying = largest[largest > 0]
    if not varying.numel():
        return unwritten
    common = varying.square().mean().sqrt()
    of_others = torch.where(distance == largest, second, largest)
    multiple = max(4.0, 2 * float((distance / (of_others + common)).amax()))
    # Also where all of them agree: what came out in one order 17 times may yet come out in another.
    explained: torch.Tensor = (got - expected).abs() <= multiple * (largest + common)
    return unwritten | explained


# ---------------------------------------------------------------- bytes to tensors


def _leaf(output: OutputTensor | OutputOther) -> Result:
    if isinstance(output, OutputTensor):
        if output.layout != "strided" or not output.data:
            return torch.empty(0)
        return tensor_from_bytes(output.data, output.dtype, output.shape)
    return complex(output.value.real, output.value.imag) if isinstance(output.value, ComplexValue) else output.value


def _window(content: bytes, tensor: TensorValue) -> torch.Tensor:
    record = CallRecord(op="", args=(tensor,), kwargs={}, storages=(b"",) * tensor.storage + (content,))
    window = rebuild(record, torch.device("cpu")).args[0]
    assert isinstance(window, torch.Tensor)
    return window


def _byte_tensor(data: bytes) -> torch.Tensor:
    tensor = torch.empty(len(data), dtype=torch.uint8)
    ctypes.memmove(tensor.data_ptr(), data, len(data))
    return tensor


def _mark_window(inside: torch.Tensor, window: TensorValue) -> None:
    """Set the bytes that a tensor's elements occupy."""
    size = tensor_from_bytes(b"", window.dtype, (0,)).element_size()
    if not inside.numel() or 0 in window.shape:
        return
    inside.as_strided((*window.shape, size), (*[s * size for s in window.strides], 1), window.offset * size).fill_(True)
