"""Is it right? One candidate outcome against eager's, from structure down to values.

The order is from what makes the next question meaningless to what is fine: structure, device,
dtype, shape, aliasing, layout, mutation, values. The first broken promise is the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec
import torch

from opsmith.aten.schemas import overload
from opsmith.calls.live import content_of, item_bytes, rebuild
from opsmith.calls.outcomes import HeldOutcome, elements_of, tensor_of
from opsmith.calls.synthetic import flat_view, generate
from opsmith.calls.transfer import Content, are_equal, as_bytes, size_of
from opsmith.core.case import (
    CallRecord,
    ComplexValue,
    OutputOther,
    OutputTensor,
    SequenceValue,
    TensorValue,
    Value,
    storage_size,
    tensor_values,
)
from opsmith.core.evidence import ErrorMap
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.verdict import ErrorFigures, Status
from opsmith.evaluation.comparisons.boundaries import overwritten
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.comparisons.error_map import error_map
from opsmith.evaluation.comparisons.form import (
    alias_problem,
    bits_problem,
    device_problem,
    dtype_problem,
    kind_problem,
    kinds,
    layout_differs,
    shape_problem,
    stride_problem,
    type_problem,
)
from opsmith.evaluation.comparisons.stability import REPETITIONS, stabilised
from opsmith.evaluation.criteria.judged_call import LARGE_ELEMENTS, Finding, JudgedCall, Result
from opsmith.evaluation.criteria.results import near_the_work
from opsmith.evaluation.criteria.rules import ComparisonRule
from opsmith.evaluation.criteria.tolerance import tolerance_for

#: Results of repetitions that are held at a time; what explains a difference needs four of them at least.
MAX_REPEATED_BYTES = 256 << 20
#: Comparisons that go from element to element, wherever these lie; the others work on the host.
_ELEMENTWISE = {"value", "exact", "metadata", "view"}


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
        reference: gives eager's outcomes, one per repeat; asked once, when they are needed.
        repeats: how many these are.
        device: where the oracle may run the op again.
        tolerance: (rtol, atol) declared by the suite, or None.
        summary: what stands for eager's only outcome where a candidate's may be told by a summary too.
        seed: of the random state before eager's first outcome, if it is known.
        small_results: see :class:`~opsmith.evaluation.criteria.judged_call.JudgedCall`.
        replicated: of what ranks answer together, numbers of a call's results that are the same on all ranks.
        run_again: runs eager as often as wanted on the same arguments and random state, each time with other garbage
            in the memory that is not its to read.
        scratch: input storages that a candidate may overwrite and return, whatever eager does.
        own_check: what a problem's author checks besides: (inputs, result) -> why it is refused, or None.

    Attributes:
        device: as given.
        repeats: as given.
    """

    def __init__(
        self,
        record: CallRecord,
        schema: OpSchema,
        rule: ComparisonRule,
        reference: Callable[[], Sequence[HeldOutcome]],
        *,
        device: torch.device,
        tolerance: tuple[float, float] | None,
        run_again: Callable[[], Iterator[HeldOutcome]],
        replicated: Sequence[int] = (),
        repeats: int = 1,
        summary: bytes | None = None,
        seed: int | None = None,
        small_results: bool = False,
        scratch: frozenset[int] = frozenset(),
        own_check: Callable[[Sequence[Any], Any], str | None] | None = None,
    ) -> None:
        self._replicated = replicated
        self._scratch = scratch
        self._own_check = own_check
        self._small_results = small_results
        self._seed = seed
        self.repeats = repeats
        self._summary = summary
        self._run_again = run_again
        self._record = record
        self._schema = schema
        self._rule = rule
        self._ask_reference = reference
        self.device = device
        self._tolerance = tolerance

    @cached_property
    def _reference(self) -> Sequence[HeldOutcome]:
        return self._ask_reference()

    @cached_property
    def _written(self) -> set[int]:
        return _written_storages(self._record, self._schema, self._reference)

    def is_equal_to(self, summary: bytes) -> bool:
        """Whether that stands for an outcome which has eager's form and, bit for bit, eager's content."""
        return summary == self._summary and self._rule.kind != "distribution"

    def has_replayed(self, candidate: HeldOutcome) -> bool:
        """Whether a candidate's outcome has the values of eager's, to the bit."""
        return self._reference[0].has_results_of(candidate) and any(map(size_of, candidate.elements))

    def judge(self, candidate: Sequence[HeldOutcome], *, tolerance: str, layout: str) -> Judgement:
        """Compare the candidate's outcomes, one per repeat, with the held reference.

        Args:
            tolerance: ``strict``, ``backendbench`` or ``kernelbench``.
            layout: ``dense`` lets a dense permutation of eager's layout pass, ``exact`` does not.
        """
        differs = False
        if self._schema.kind.of_problems:
            candidate = [self._spared(*pair) for pair in zip(self._reference, candidate, strict=True)]
        for ours, theirs in zip(self._reference, candidate, strict=True):
            problem = self._form_problem(ours, theirs, layout)
            if problem is not None:
                return problem
            differs = differs or layout_differs(ours.form, theirs.form)
            if (said := self._differing_ranks(theirs)) is not None:
                return Judgement(status=Status.WRONG_VALUE, detail=said)
        if self._rule.kind != "distribution" and all(map(HeldOutcome.equals, self._reference, candidate)):
            return Judgement(status=Status.PASSED, layout_differs=differs)
        finding = self._compare_values(candidate, tolerance)
        if not finding.passed and self._rule.kind != "distribution":
            stable = self._without_unstable(candidate[0])
            finding = finding if stable is None else self._compare_values([stable], tolerance)
        if finding.passed and self._own_check is not None:
            refusal = self._own_check(rebuild(self._record, self.device).args, self._returned(candidate[0]))
            finding = finding if refusal is None else Finding(status=Status.WRONG_VALUE, detail=refusal)
        return Judgement(status=finding.status, detail=finding.detail, figures=finding.figures, layout_differs=differs)

    def error_map(self, candidate: HeldOutcome, *, tolerance: str, layout: str) -> ErrorMap | None:
        """Where the first result is off that is off at all, by the plain tolerance; None where none is.

        Of what is no matter of single elements (drawn values, factors, another form) there is none either.
        """
        if self._rule.kind not in _ELEMENTWISE or self._form_problem(self._reference[0], candidate, layout):
            return None
        pairs = zip(self._results(self._reference[0]), self._results(candidate), strict=True)
        for number, (ours, theirs) in enumerate(pairs):
            if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
                found = error_map(number, ours, theirs, tolerance_for(tolerance, ours.dtype, self._tolerance))
                if found is not None:
                    return found
        return None

    def _spared(self, ours: HeldOutcome, theirs: HeldOutcome) -> HeldOutcome:
        """A module's outcome as if it had overwritten the inputs that Model overwrites: nobody relies on that."""
        inputs = {tensor.storage for tensor in tensor_values(self._inputs())}
        left_alone = {n: after for n, after in ours.changed.items() if n in inputs and n not in theirs.changed}
        return replace(theirs, changed=theirs.changed | left_alone)

    def _inputs(self) -> Sequence[Value]:
        """The arguments without the state: of a parallel problem a rank's program has them first."""
        if self._schema.kind is not TaskKind.PARALLEL:
            return self._record.args
        return [program.items[0] for program in self._record.args if isinstance(program, SequenceValue)]

    def _differing_ranks(self, candidate: HeldOutcome) -> str | None:
        """Which results are not the same on all ranks, bit by bit, though they have to be; None if none."""
        ranks = len(self._record.args)
        for number in self._replicated:
            for call in range(_calls_of(self._record.args[0])):
                elements = [candidate.elements[place] for place in self._places(number, call, ranks)]
                different = [rank for rank, own in enumerate(elements) if not are_equal(own, elements[0])]
                if different:
                    return f"result {number} of call {call} on rank {different[0]} has other bits than on rank 0"
        return None

    def _places(self, number: int, call: int, ranks: int) -> list[int]:
        """Where among all results one of a call's stands, rank by rank."""
        calls = _calls_of(self._record.args[0])
        results = len(self._reference[0].elements) // (ranks * calls)
        return [(rank * calls + call) * results + number for rank in range(ranks)]

    def _form_problem(self, ours: HeldOutcome, theirs: HeldOutcome, layout: str) -> Judgement | None:
        for status, detail in self._form_problems(ours, theirs, layout):
            return Judgement(status=status, detail=detail)
        return None

    def _form_problems(self, held: HeldOutcome, candidate: HeldOutcome, layout: str) -> Iterator[tuple[Status, str]]:
        ours, theirs = held.form, candidate.form
        if ours.structure != theirs.structure:
            yield Status.WRONG_STRUCTURE, f"returned {kinds(theirs)}, eager returns {kinds(ours)}"
            return
        tensors = []
        for number, (mine, other) in enumerate(zip(ours.outputs, theirs.outputs, strict=True)):
            yield from kind_problem(f"result {number}", mine, other)
            if isinstance(mine, OutputTensor) and isinstance(other, OutputTensor):
                if other.input_storage in self._scratch:
                    other = msgspec.structs.replace(other, input_storage=None)  # noqa: PLW2901 - as good as a new one
                tensors.append((f"result {number}", self._asked_of(mine, other), other))
        for check in (device_problem, dtype_problem, shape_problem, alias_problem, type_problem, bits_problem):
            for tensor in tensors:
                yield from check(*tensor)
        for name, mine, other in tensors:
            yield from stride_problem(name, self._laid_out(mine), other, layout)
        yield from self._mutation_problems(candidate)

    def _asked_of(self, mine: OutputTensor, other: OutputTensor) -> OutputTensor:
        """The form to hold a result against: a module may return a new tensor, or its state, where Model does not."""
        if not self._schema.kind.of_problems:
            return mine
        storage = None if other.input_storage is None else mine.input_storage
        return msgspec.structs.replace(
            mine,
            input_storage=storage,
            is_parameter=other.is_parameter,
            requires_grad=mine.requires_grad or other.is_parameter,
        )

    def _laid_out(self, mine: OutputTensor) -> OutputTensor:
        """The layout to hold a result against: of an ``out=`` that was resized it is free, as of a new tensor."""
        return msgspec.structs.replace(mine, input_storage=None) if self._is_resized(mine) else mine

    def _is_resized(self, mine: OutputTensor) -> bool:
        """Whether one of eager's results is an ``out=`` argument that had another shape."""
        given = [tensor.shape for tensor in self._all_tensors() if tensor.storage == mine.input_storage]
        return self._schema.variant is Variant.OUT and bool(given) and mine.shape not in given

    def _mutation_problems(self, theirs: HeldOutcome) -> Iterator[tuple[Status, str]]:
        for number, after in theirs.changed.items():
            if not 0 <= number < len(self._record.storages):
                yield Status.MUTATED_INPUT, f"reported a change of input storage {number}, which does not exist"
                continue
            if number in self._scratch:
                continue
            tensor, outside = self._tensor_number(number), self._overwritten(number, after)
            if number not in self._written:
                said = f"changed the memory of input tensor {tensor}"
                yield Status.MUTATED_INPUT, f"{said}: overwrote {outside}" if outside else said
            elif outside:
                yield Status.MUTATED_INPUT, f"wrote outside input tensor {tensor}: overwrote {outside}"

    def _tensor_number(self, storage: int) -> int:
        return next((i for i, t in enumerate(self._all_tensors()) if t.storage == storage), storage)

    def _overwritten(self, number: int, content: Content) -> str | None:
        """Which bytes around and between a written tensor's elements changed that eager left alone, in words.

        None where there are none, and where eager resized the tensor: shape and values were or will be compared.
        """
        windows = [t for t in self._all_tensors() if t.storage == number]
        size_bytes = storage_size(self._record.storages[number])
        if (
            not windows
            or size_of(content) != size_bytes
            or any(_occupied_bytes(window) == size_bytes for window in windows)
        ):
            return None
        reference = self._reference[0]
        eager = reference.changed.get(number)
        results = [o for o in reference.form.outputs if isinstance(o, OutputTensor) and o.input_storage == number]
        if (eager is not None and size_of(eager) != size_bytes) or any(map(self._is_resized, results)):
            return None
        storage = self._record.storages[number]
        before = storage if isinstance(storage, bytes) else flat_view(generate(storage, self.device), torch.uint8)
        draws = self._rule.kind == "distribution"
        if draws and eager is not None and overwritten(windows, before, eager, None):
            return None  # Eager writes there too, and what it writes is drawn.
        return overwritten(windows, before, content, eager)

    def _content(self, number: int) -> bytes:
        """An input storage as it was before the call."""
        return content_of(self._record.storages[number], self.device)

    def _all_tensors(self) -> list[TensorValue]:
        return tensor_values((*self._record.args, *self._record.kwargs.values()))

    def _compare_values(self, candidate: Sequence[HeldOutcome], tolerance: str) -> Finding:
        live = rebuild(self._record, self.device)
        call = JudgedCall(
            schema=self._schema,
            args=live.args,
            kwargs=live.kwargs,
            tolerance=self._tolerance,
            seed=self._seed,
            small_results=self._small_results,
        )
        return compare(
            call,
            [self._results(outcome) for outcome in self._reference],
            [self._results(outcome) for outcome in candidate],
            tolerance=tolerance,
        )

    def _without_unstable(self, candidate: HeldOutcome) -> HeldOutcome | None:
        """The candidate with eager's own elements where eager does not agree with itself; None where it always does.

        Some ops read memory that nobody wrote (CPU grid_sampler with NaN in the grid, the tail of
        _ctc_loss's log_alpha), and sums by atomic additions come out in another order each time:
        there the candidate may differ from one execution of eager's as others of eager's do.
        """
        first = self._reference[0]
        affordable = MAX_REPEATED_BYTES // max(sum(map(size_of, first.elements)), 1)
        repeated: list[list[Content]] = [[] for _ in first.elements]
        # One after another: of a repetition that is the same as the first time nothing is kept.
        for again in islice(self._run_again(), max(4, min(REPETITIONS, affordable))):
            for contents, mine, content in zip(repeated, first.elements, again.elements, strict=False):
                if size_of(content) == size_of(mine):
                    contents.append(mine if are_equal(mine, content) else content)
        elements = list(candidate.elements)
        for number, (output, mine) in enumerate(zip(first.form.outputs, first.elements, strict=True)):
            if all(content is mine for content in repeated[number]):
                continue  # As nearly always, it agrees with itself.
            assert isinstance(output, OutputTensor)
            compared = (mine, elements[number], *repeated[number])
            tensors = [_near(tensor_of(content, output)) for content in compared]
            stable = stabilised(tensors[0], tensors[1], tensors[2:])
            if stable is not None:
                elements[number] = elements_of(stable)
        same = all(one is other for one, other in zip(elements, candidate.elements, strict=True))
        return None if same else replace(candidate, elements=tuple(elements))

    def _results(self, outcome: HeldOutcome) -> list[Result]:
        """The leaves of the return value, then every written input that is not among them."""
        results = [self._leaf(*leaf) for leaf in zip(outcome.form.outputs, outcome.elements, strict=True)]
        returned = {o.input_storage for o in self._reference[0].form.outputs if isinstance(o, OutputTensor)}
        for tensor in self._all_tensors():
            if tensor.storage in self._written and tensor.storage not in returned:
                changed = outcome.changed.get(tensor.storage)
                content = self._content(tensor.storage) if changed is None else changed
                results.append(_window(as_bytes(content), tensor))
        return results

    def _returned(self, outcome: HeldOutcome) -> Any:
        """What was returned: one value, or a flat tuple."""
        leaves = tuple([self._leaf(*leaf) for leaf in zip(outcome.form.outputs, outcome.elements, strict=True)])
        placed = [leaf.to(self.device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return placed[0] if outcome.form.structure == "*" else tuple(placed)

    def _leaf(self, output: OutputTensor | OutputOther, content: Content) -> Result:
        if isinstance(output, OutputOther):
            value = output.value
            return complex(value.real, value.imag) if isinstance(value, ComplexValue) else value
        if output.layout != "strided" or not size_of(content):
            return torch.empty(0)
        tensor = tensor_of(content, output)
        return _near(tensor) if self._rule.kind in _ELEMENTWISE else tensor.cpu()


def _written_storages(record: CallRecord, schema: OpSchema, reference: Sequence[HeldOutcome]) -> set[int]:
    """Storages that the op may write: those that eager changed and those that the schema marks.

    Some schemas, such as native_batch_norm's, do not say what is written.
    """
    written = {number for outcome in reference for number in outcome.changed}
    if schema.kind.on_ranks:
        return written  # Its record holds the arguments of all ranks, of which no schema says which are written.
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


def _calls_of(program: Value) -> int:
    """How many calls a rank makes."""
    assert isinstance(program, SequenceValue)
    calls = program.items[0]
    assert isinstance(calls, SequenceValue)
    return len(calls.items)


def _near(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where its like are compared: on the host, unless it is large."""
    return near_the_work(tensor) if tensor.numel() >= LARGE_ELEMENTS else tensor.cpu()


def _window(content: bytes, tensor: TensorValue) -> torch.Tensor:
    record = CallRecord(op="", args=(tensor,), kwargs={}, storages=(b"",) * tensor.storage + (content,))
    window = rebuild(record, torch.device("cpu")).args[0]
    assert isinstance(window, torch.Tensor)
    return window


def _occupied_bytes(window: TensorValue) -> int:
    """Bytes of a tensor whose elements lie in a block without gaps or overlaps; 0 of any other."""
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(window.shape, window.strides, strict=True)):
        if size != 1 and stride != step:
            return 0
        step *= size
    return step * item_bytes(window.dtype)
