"""Verdicts on whole outcomes: form before values, and eager's disagreement with itself."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls.live import rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.recording import CallRecorder
from opsmith.calls.transfer import as_bytes
from opsmith.core.case import CallRecord, OutputTensor
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement, Judgement
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.evaluation.eager.answers import answers_of
from opsmith.evaluation.eager.reference import misreads

CPU = torch.device("cpu")


def recorded(op: str, *args: object, **kwargs: object) -> CallRecord:
    """The serialized call ``op(*args, **kwargs)``."""
    recorder = CallRecorder(lambda *_: True)
    with recorder, torch.no_grad():
        overload(op)(*args, **kwargs)
    record = recorder.calls[0].record
    assert record is not None
    return record


def outcome_of(record: CallRecord, function: Callable[..., object]) -> HeldOutcome:
    """What ``function`` does with the recorded arguments."""
    live = rebuild(record, CPU)
    observer = Observer()
    observer.keep([observer.describe(function(*live.args, **live.kwargs), live, record.storages)])
    return observer.held(0)


def judged(
    record: CallRecord,
    candidate: Callable[..., object],
    *,
    layout: str = "dense",
    eager: Callable[..., object] | None = None,
) -> Judgement:
    """The judgement on ``candidate``, with eager, or what stands for it, as the reference."""
    schema = aten_schemas()[record.op]
    rule = rule_for(schema)
    times = 5 if rule.kind == "distribution" else 1
    reference, *others = [outcome_of(record, eager or overload(record.op)) for _ in range(times)]
    case = CaseUnderJudgement(
        record,
        schema,
        rule,
        lambda: [reference, *others],
        device=CPU,
        tolerance=None,
        run_again=lambda: itertools.repeat(reference),
    )
    found = [outcome_of(record, candidate) for _ in range(times)]
    return case.judge(found, tolerance="strict", layout=layout)


class Marked(torch.Tensor):
    """A tensor that can answer operations in its own way."""


X_MN = torch.randn(6, 7)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("relu.default", (X_MN,), True),
        ("relu_.default", (X_MN,), True),
        ("relu_.default", (X_MN.abs(),), False),
        ("conj_physical_.default", (X_MN,), False),
        ("conj_physical_.default", (X_MN * 1j,), True),
        ("conj_physical.out", (X_MN,), True),
        ("t.default", (X_MN,), False),
        ("relu.default", (torch.empty(0),), False),
        ("_foreach_neg_.default", ([X_MN],), True),
    ],
)
def test_it_is_known_which_calls_write_anything(*, op: str, args: tuple[object, ...], expected: bool) -> None:
    """A result in memory of its own, or another content of an argument."""
    kwargs = {"out": torch.empty_like(X_MN)} if op.endswith(".out") else {}
    record = recorded(op, *copy.deepcopy(args), **kwargs)
    live = rebuild(record, CPU)
    observer = Observer()
    observer.keep([observer.describe(overload(op)(*live.args, **live.kwargs), live, record.storages)])
    assert [expected] == observer.writes()
    [answer] = answers_of(observer)
    assert expected == answer.writes


@pytest.mark.parametrize(
    ("status", "candidate"),
    [
        (Status.PASSED, torch.relu),
        (Status.WRONG_VALUE, lambda x: torch.relu(x) + 1),
        (Status.WRONG_DTYPE, lambda x: torch.relu(x).double()),
        (Status.WRONG_SHAPE, lambda x: torch.relu(x).flatten()),
        (Status.WRONG_STRUCTURE, lambda x: (torch.relu(x),)),
        (Status.WRONG_STRUCTURE, lambda _: None),
        (Status.WRONG_DEVICE, lambda x: torch.relu(x).to("meta")),
        (Status.WRONG_STRIDE, lambda x: torch.relu(torch.cat([x, x], 1))[:, : x.shape[1]]),
        (Status.WRONG_STRUCTURE, lambda x: torch.relu(x).requires_grad_()),
        (Status.WRONG_STRUCTURE, lambda x: torch.nn.Parameter(torch.relu(x))),
        (Status.WRONG_STRUCTURE, lambda x: torch.nn.Parameter(torch.relu(x), requires_grad=False)),
        (Status.WRONG_STRUCTURE, lambda x: torch.relu(x).as_subclass(Marked)),
        (Status.WRONG_STRUCTURE, lambda x: torch._neg_view(-torch.relu(x))),
        (Status.ALIASED_OUTPUT, lambda x: x),
        (Status.ALIASED_OUTPUT, lambda x: x.relu_()),
        (Status.MUTATED_INPUT, lambda x: torch.relu(x.abs_())),
    ],
)
def test_each_broken_promise_has_its_own_status(status: Status, candidate: Callable[..., object]) -> None:
    """The form of a result is judged before its values."""
    assert status is judged(recorded("relu.default", X_MN), candidate).status


def test_memory_to_be_conjugated_by_its_readers_is_no_result() -> None:
    """Equal where torch reads it, and the conjugate of the answer where a kernel does."""
    record = recorded("exp.default", torch.complex(X_MN, X_MN))
    assert Status.WRONG_STRUCTURE is judged(record, lambda x: torch.exp(x.conj_physical()).conj()).status
    assert Status.PASSED is judged(record, lambda x: torch.exp(x.conj()).conj().resolve_conj()).status


def test_a_view_has_the_bits_of_eager() -> None:
    """A new view without them shows other values; what has memory of its own may hold the values themselves."""
    record = recorded("_conj.default", torch.complex(X_MN, X_MN))
    assert Status.PASSED is judged(record, torch.ops.aten._conj.default).status
    assert Status.WRONG_STRUCTURE is judged(record, lambda x: x.view(x.shape)).status


def test_another_dense_layout_passes_and_is_noted() -> None:
    """A permutation of the same dense memory is right, unless the exact layout is asked for."""
    record = recorded("relu.default", X_MN)

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).t().contiguous().t()

    found = judged(record, transposed)
    assert (Status.PASSED, True) == (found.status, found.layout_differs)
    assert Status.WRONG_STRIDE is judged(record, transposed, layout="exact").status


def test_an_in_place_kernel_may_not_write_between_the_elements() -> None:
    """The storage of a strided input holds memory that is not the op's to change."""
    base = torch.randn(4, 6)
    record = recorded("relu_.default", base[:, ::2])

    def careless(x: torch.Tensor) -> torch.Tensor:
        x.relu_()
        torch.as_strided(x, (1,), (1,), x.storage_offset() + 1).fill_(5.0)
        return x

    assert Status.PASSED is judged(record, torch.relu_).status
    assert Status.MUTATED_INPUT is judged(record, careless).status


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ((1,), "1 element in front of its first element"),
        ((3, 9), "2 elements between its elements"),
        ((13, 14), "2 elements behind its last element"),
        ((0, 14), "1 element in front of its first element and 1 element behind its last element"),
        ((2, 12), None),
    ],
)
@pytest.mark.parametrize("written", [True, False])
def test_the_verdict_says_where_a_kernel_wrote_outside(*, places: tuple[int, ...], said: str, written: bool) -> None:
    """``b[3]`` of ``b[:3]`` is the caller's, whether or not the kernel may write to ``b[:3]``."""
    base = torch.randn(16)
    record = recorded("relu_.default" if written else "relu.default", base[2:14:2])

    def careless(x: torch.Tensor) -> torch.Tensor:
        y = x.relu_() if written else x.relu()
        memory = torch.as_strided(x, (16,), (1,), 0)
        for place in places:
            memory[place] = torch.where(memory[place] == 0, 0, 5.0)
        return y

    found = judged(record, careless)
    if said is None:
        assert Status.MUTATED_INPUT is not found.status or not written
    else:
        named = "wrote outside input tensor 0" if written else "changed the memory of input tensor 0"
        assert (Status.MUTATED_INPUT, f"{named}: overwrote {said}") == (found.status, found.detail)


def test_what_eager_writes_outside_may_be_written() -> None:
    """A result that is resized reaches further into its storage than the tensor that was given."""
    record = recorded("neg.out", X_MN, out=torch.zeros(64)[:3])
    assert Status.PASSED is judged(record, torch.ops.aten.neg.out).status


def test_what_eager_draws_outside_may_be_drawn() -> None:
    """On CUDA ``multinomial`` fills a strided ``out`` as if it were dense, with other numbers each time."""
    base = torch.full((6,), 77)
    record = recorded("multinomial.out", torch.ones(4), 3, True, out=base[::2])

    def dense(weights: torch.Tensor, samples: int, *replacement: bool, out: torch.Tensor) -> torch.Tensor:
        drawn = torch.multinomial(weights, samples, *replacement)
        torch.as_strided(out, (3,), (1,)).copy_(drawn)
        return out.copy_(drawn)

    torch.manual_seed(1)
    assert Status.MUTATED_INPUT is judged(record, dense).status
    assert Status.MUTATED_INPUT is not judged(record, dense, eager=dense).status


def test_a_resized_result_may_have_any_dense_layout() -> None:
    """Whoever resizes decides the layout, as of a new tensor; a result that fits keeps its own."""

    def row_major(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.resize_(x.shape).copy_(x.neg())

    def every_other(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.resize_(*x.shape, 2)[..., 0].copy_(x.neg())

    def misfit(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.set_(x.neg().untyped_storage(), 0, x.shape, x.contiguous().stride())

    record = recorded("neg.out", X_MN.t(), out=torch.empty(0))
    assert 1 == outcome_of(record, overload("neg.out")).form.outputs[0].strides[0]  # type: ignore[union-attr]
    assert Status.PASSED is judged(record, row_major).status
    assert Status.PASSED is not judged(record, every_other).status
    fitting = recorded("neg.out", X_MN, out=torch.empty(7, 6).t())
    assert Status.PASSED is judged(fitting, torch.ops.aten.neg.out).status
    assert Status.PASSED is not judged(fitting, misfit).status


def test_an_in_place_kernel_has_to_return_its_argument() -> None:
    """A right value in a new tensor leaves the caller's tensor unchanged."""
    assert Status.ALIASED_OUTPUT is judged(recorded("relu_.default", X_MN), torch.relu).status


# ---------------------------------------------------------------- eager that disagrees with itself


def summed_in_some_order(terms: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """bfloat16 sums over K, rounded after every addition, in an order of their own for each element of ``[K, N]``."""
    order = torch.rand(terms.shape, generator=generator).argsort(0)
    total = torch.zeros(terms.shape[1], dtype=torch.bfloat16)
    for term in terms.gather(0, order):
        total = total + term
    return total


def left_there(held: HeldOutcome) -> HeldOutcome:
    """The outcome as it is held where its results lie on a device."""
    flat = [torch.frombuffer(bytearray(as_bytes(content)), dtype=torch.uint8) for content in held.elements]
    return dataclasses.replace(held, elements=tuple(flat))


def judged_against_noise(candidate: torch.Tensor, terms: torch.Tensor, seed: int, *, there: bool) -> Status:
    """Judge a result where each execution of eager adds up in another order."""
    moved = left_there if there else lambda held: held
    generator = torch.Generator().manual_seed(seed)
    record = recorded("sum.dim_IntList", terms, [0])

    def noisy() -> HeldOutcome:
        return moved(outcome_of(record, lambda *_: summed_in_some_order(terms, generator)))

    schema = aten_schemas()[record.op]
    case = CaseUnderJudgement(
        record,
        schema,
        rule_for(schema),
        lambda: [noisy()],
        device=CPU,
        tolerance=None,
        run_again=lambda: (noisy() for _ in itertools.count()),
    )
    answered = moved(outcome_of(record, lambda *_: candidate))
    return case.judge([answered], tolerance="strict", layout="dense").status


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_sum_in_another_order_is_excused_where_eager_has_no_order(*, seed: int, there: bool) -> None:
    """Atomic additions in half precision: one more execution of eager's is as right as the first."""
    generator = torch.Generator().manual_seed(100 + seed)
    terms = torch.randn(27, 20_000, generator=generator).bfloat16()
    assert Status.PASSED is judged_against_noise(summed_in_some_order(terms, generator), terms, seed, there=there)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.slow
def test_noise_in_eager_does_not_excuse_a_wrong_result(*, there: bool) -> None:
    """A term left out is further away than any order of summation."""
    generator = torch.Generator().manual_seed(7)
    terms = torch.randn(27, 20_000, generator=generator).bfloat16()
    summed = summed_in_some_order(terms[1:], generator)
    assert Status.WRONG_VALUE is judged_against_noise(summed, terms, 7, there=there)


def test_no_more_repetitions_are_made_than_large_results_need() -> None:
    """And of those that are as the first time nothing is kept."""
    record = recorded("relu.default", X_MN)
    reference = left_there(outcome_of(record, torch.relu))
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = made = 0

    def again() -> Iterator[HeldOutcome]:
        nonlocal most, made
        while True:
            repeated = left_there(reference)
            alive.update(content for content in repeated.elements if isinstance(content, torch.Tensor))
            made, most = made + 1, max(most, len(alive))
            yield repeated
            del repeated

    schema = aten_schemas()[record.op]
    case = CaseUnderJudgement(
        record, schema, rule_for(schema), lambda: [reference], device=CPU, tolerance=None, run_again=again
    )
    wrong = left_there(outcome_of(record, lambda x: torch.relu(x) + 1))
    assert Status.WRONG_VALUE is case.judge([wrong], tolerance="strict", layout="dense").status
    assert (16, 2) == (made, most)


def test_elements_that_nobody_wrote_are_not_judged() -> None:
    """Where repetitions of eager give a number and then another, there is no right value."""
    record = recorded("relu.default", X_MN)
    reference = outcome_of(record, torch.relu)

    def with_garbage() -> Iterator[HeldOutcome]:
        for garbage in itertools.cycle((3.0, float("nan"))):

            def unwritten(x: torch.Tensor, garbage: float = garbage) -> torch.Tensor:
                result = torch.relu(x)
                result[0, 0] = garbage
                return result

            yield outcome_of(record, unwritten)

    schema = aten_schemas()[record.op]
    case = CaseUnderJudgement(
        record, schema, rule_for(schema), lambda: [reference], device=CPU, tolerance=None, run_again=with_garbage
    )

    def off_at(row: int) -> HeldOutcome:
        def candidate(x: torch.Tensor) -> torch.Tensor:
            result = torch.relu(x)
            result[row, 0] += 7
            return result

        return outcome_of(record, candidate)

    assert Status.PASSED is case.judge([off_at(0)], tolerance="strict", layout="dense").status
    assert Status.WRONG_VALUE is case.judge([off_at(1)], tolerance="strict", layout="dense").status


def test_a_result_on_memory_of_its_own_is_recognised_by_address() -> None:
    """Wrapping an input's memory in another storage does not make it a new tensor."""
    record = recorded("relu.default", X_MN.abs())

    def wrapped(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy())

    output = outcome_of(record, wrapped).form.outputs[0]
    assert isinstance(output, OutputTensor)
    assert 0 == output.input_storage


@pytest.mark.parametrize(
    ("order", "wrong"),
    [((0, 2, 1, 3), True), ((0, 1, 2, 3), False)],
)
def test_where_eager_misreads_a_layout_nobody_is_asked(order: tuple[int, ...], *, wrong: bool) -> None:
    """On a CPU ``triu.out`` takes the batch of its result for one that lies as in a dense tensor."""
    x = torch.randn(2, 3, 4, 5)
    out = torch.empty([x.shape[dim] for dim in order]).permute(order)
    record = recorded("triu.out", x, 0, out=out)
    assert wrong is misreads(record, CPU)


@pytest.mark.parametrize("strided", [True, False])
def test_what_eager_writes_into_arguments_may_be_wrong_as_well(*, strided: bool) -> None:
    """On a CPU ``rrelu_with_noise_`` writes strided noise as if it were dense; its result is right."""
    x = torch.randn(20).bfloat16()
    noise = torch.zeros(20, 6 if strided else 1, dtype=torch.bfloat16)[:, 0]
    record = recorded("rrelu_with_noise_.default", x, noise, 0.0, 1.0, True)
    assert strided is misreads(record, CPU)


def judged_with(candidate: Callable[..., object], **options: Any) -> Judgement:
    """The judgement on a kernel of the cosine, whose second argument eager leaves alone."""
    record = recorded("polar.out", torch.rand(4), torch.rand(4), out=torch.empty(4, dtype=torch.complex64))
    schema, live = aten_schemas()["cos.default"], outcome_of(record, lambda x, *_, **__: x.cos())
    case = CaseUnderJudgement(
        record,
        schema,
        rule_for(schema),
        lambda: [live],
        device=CPU,
        tolerance=None,
        run_again=lambda: itertools.repeat(live),
        **options,
    )
    return case.judge([outcome_of(record, candidate)], tolerance="strict", layout="dense")


def written(x: torch.Tensor, place: torch.Tensor, **_: object) -> torch.Tensor:
    """The cosine in the memory of another argument."""
    return place.copy_((x + 0.0).cos())


def test_memory_for_results_may_be_written_and_returned() -> None:
    """Where a task says so, and nowhere else."""
    assert Status.ALIASED_OUTPUT is judged_with(written).status
    assert Status.PASSED is judged_with(written, scratch=frozenset({1})).status


def test_a_check_of_the_author_refuses_what_passed_and_accepts_nothing() -> None:
    """It is asked last, and sees the inputs as they were before the call."""
    asked = []

    def refuse(inputs: Sequence[Any], result: Any) -> str:
        asked.append((inputs[0].clone(), result.clone()))
        return "the author knows better"

    def nearly(x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return (x.double().cos() * (1 + 1e-7)).float()

    found = judged_with(nearly, own_check=refuse)
    assert (Status.WRONG_VALUE, "the author knows better") == (found.status, found.detail)
    torch.testing.assert_close(asked[0][0].cos(), asked[0][1])
    assert Status.PASSED is judged_with(nearly, own_check=lambda *_: None).status
    assert Status.WRONG_VALUE is judged_with(lambda x, *_, **__: x.sin(), own_check=lambda *_: None).status
    assert 1 == len(asked)
