"""Storages that are generated from a domain and a seed, and calls on them that are judged like any other."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls import synthetic
from opsmith.calls.live import item_bytes, rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.transfer import storage_bytes
from opsmith.core.case import CallRecord, GeneratedStorage, Outcome, TensorValue, digest, storage_size
from opsmith.core.domains import (
    Definite,
    Distinct,
    Domain,
    Integers,
    Magnitude,
    Mask,
    Normal,
    Ordered,
    PoolIndices,
    Probabilities,
    SegmentForm,
    Segments,
    Specials,
    Subset,
    Targets,
    Uniform,
)
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.evaluation.eager.reference import repetitions
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.suites.valid_inputs import traced_record
from opsmith.traces.grammar import parse_call

CPU = torch.device("cpu")


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def described(
    domain: Domain,
    shape: tuple[int, ...],
    *,
    dtype: str = "f32",
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
    seed: int = 7,
) -> GeneratedStorage:
    """A storage that is as large as the window needs."""
    strides = row_major(shape) if strides is None else strides
    reach = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    size_bytes = 0 if 0 in shape else reach * item_bytes(dtype)
    return GeneratedStorage(size_bytes, dtype, shape, strides, offset, domain, seed)


def call_on(op: str, *storages: GeneratedStorage, scalars: tuple[Any, ...] = ()) -> CallRecord:
    """The call of ``op`` on one tensor for each storage, followed by ``scalars``."""
    tensors = [TensorValue(n, s.dtype, s.shape, s.strides, s.offset, "cuda") for n, s in enumerate(storages)]
    return CallRecord(op=op, args=(*tensors, *scalars), kwargs={}, storages=storages)


def values(domain: Domain, shape: tuple[int, ...], **layout: Any) -> torch.Tensor:
    """The tensor that a domain gives."""
    tensor = rebuild(call_on("clone.default", described(domain, shape, **layout)), CPU).args[0]
    assert isinstance(tensor, torch.Tensor)
    return tensor


EVERY_DOMAIN: list[tuple[Domain, tuple[int, ...], str]] = [
    (Normal(2.0), (64, 33), "bf16"),
    (Normal(), (64, 33), "c64"),
    (Uniform(-1.0, 3.0), (64, 33), "f16"),
    (Magnitude(0.25, 4.0, signed=True), (64, 33), "f32"),
    (Integers(-3, 9), (64, 33), "i64"),
    (Mask(0.5), (64, 33), "b8"),
    (Specials(0.5), (64, 33), "f32"),
    (Subset(5), (8, 3), "b8"),
    (Distinct(40, (1,)), (8, 33), "i64"),
    (Segments(100, 33, SegmentForm.STARTS), (33,), "i64"),
    (Ordered(-3.0, 3.0), (4, 33), "f32"),
    (Probabilities(1), (8, 33), "f32"),
    (PoolIndices((9, 9), (3, 3), (2, 2), (1, 1), (1, 1)), (2, 5, 5), "i64"),
    (Definite(), (2, 6, 6), "f64"),
    (Targets(10, -100), (4, 16), "i64"),
]


@pytest.mark.parametrize(("domain", "shape", "dtype"), EVERY_DOMAIN)
def test_a_seed_gives_the_same_values_again_and_another_seed_gives_others(
    domain: Domain, shape: tuple[int, ...], dtype: str
) -> None:
    """Referee and worker generate for themselves, and a resumed run generates again."""
    first, again, other = (
        storage_bytes(synthetic.generate(described(domain, shape, dtype=dtype, seed=seed), CPU)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_another_process_generates_the_same_values() -> None:
    """Nothing but the storage's description decides: no state of the process, no order of calls."""
    storage = described(Normal(), (1000,), dtype="bf16")
    program = (
        "import sys, msgspec, torch; from opsmith.core.case import GeneratedStorage, digest;"
        "from opsmith.calls.synthetic import generate; from opsmith.calls.transfer import storage_bytes;"
        "torch.randn(5); data = bytes.fromhex(sys.argv[1]);"
        "storage = msgspec.msgpack.decode(data, type=GeneratedStorage);"
        "print(digest(storage_bytes(generate(storage, torch.device('cpu')))))"
    )
    command = [sys.executable, "-c", program, msgspec.msgpack.encode(storage).hex()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert digest(storage_bytes(synthetic.generate(storage, CPU))) == printed


@pytest.mark.parametrize(("domain", "shape", "dtype"), EVERY_DOMAIN)
def test_a_record_survives_the_trip_between_processes(domain: Domain, shape: tuple[int, ...], dtype: str) -> None:
    """A call with generated storages is spooled and sent as any other is."""
    record = call_on("clone.default", described(domain, shape, dtype=dtype))
    assert record == msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=CallRecord)


def test_the_size_of_a_storage_is_known_without_its_content() -> None:
    """Plans and limits count bytes before anything is generated."""
    assert (3, 2 * 3 * 4) == (storage_size(b"abc"), storage_size(described(Normal(), (2, 3))))


# ---------------------------------------------------------------- what each domain promises


def test_normal_numbers_have_both_signs_and_vary_in_magnitude() -> None:
    """Neighbouring stretches differ by up to 16 times, and the whole has the scale that was asked for."""
    numbers = values(Normal(3.0), (97 * 4000,))
    stretches = numbers.view(-1, 97).square().mean(1).sqrt()
    assert 3.0 == pytest.approx(float(numbers.square().mean().sqrt()), rel=0.02)
    assert 0.5 == pytest.approx(float((numbers > 0).float().mean()), abs=0.01)
    assert float(stretches.max() / stretches.min()) > 12


def test_normal_numbers_use_the_whole_mantissa() -> None:
    """Or a kernel that rounds its inputs to fewer bits would still be right."""
    numbers = values(Normal(), (1000,))
    assert float((numbers != numbers.bfloat16().float()).float().mean()) > 0.95
    wide = values(Normal(), (1000,), dtype="f64")
    assert float((wide != wide.float().double()).float().mean()) > 0.95


@pytest.mark.parametrize(
    ("domain", "dtype", "low", "high"),
    [
        (Uniform(-2.0, 5.0), "f32", -2.0, 5.0),
        (Magnitude(0.25, 4.0), "f16", 0.25, 4.0),
        (Magnitude(1, 7), "i32", 1, 7),
        (Integers(-4, 4), "i64", -4, 3),
        (Integers(0, 3, 0.5, 10.0), "f32", 10.0, 11.0),
        (Integers((1 << 40) - 2, 1 << 40), "i64", (1 << 40) - 2, (1 << 40) - 1),
        (Ordered(1, 9), "i64", 1, 9),
    ],
)
def test_numbers_stay_between_their_bounds(domain: Domain, dtype: str, low: float, high: float) -> None:
    """Both bounds are reached nearly, so the range is used."""
    numbers = values(domain, (5000,), dtype=dtype).double()
    assert low <= float(numbers.min()) <= low + (high - low) / 5
    assert high - (high - low) / 5 <= float(numbers.max()) <= high


def test_signed_magnitudes_are_negative_half_the_time() -> None:
    """A divisor may be negative, but it is not near zero."""
    divisors = values(Magnitude(0.25, 4.0, signed=True), (5000,))
    assert 0.5 == pytest.approx(float((divisors < 0).float().mean()), abs=0.05)
    assert float(divisors.abs().min()) >= 0.25


@pytest.mark.parametrize("share", [1e-9, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("seed", range(4))
def test_a_mask_is_never_all_true_and_never_all_false(share: float, seed: int) -> None:
    """Under such a mask half of the ops that take one would do nothing."""
    for layout in ({}, {"strides": (1, 3)}, {"strides": (20, 2), "offset": 5}):
        mask = values(Mask(share), (3, 4), dtype="b8", seed=seed, **layout)
        assert (True, False) == (bool(mask.any()), bool(mask.all()))


def test_a_mask_that_need_not_be_mixed_may_be_all_false() -> None:
    """``any`` has two answers."""
    assert {True, False} == {
        bool(values(Mask(0.1, mixed=False), (10,), dtype="b8", seed=seed).any()) for seed in range(20)
    }


def test_a_subset_has_exactly_as_many_true_elements_as_it_says() -> None:
    """``index_put`` with a mask takes one value for each."""
    for count in (0, 1, 17, 60):
        assert count == int(values(Subset(count), (6, 10), dtype="b8").sum())


def test_specials_hold_nan_and_both_infinities() -> None:
    """``isnan`` of ordinary numbers is False everywhere."""
    numbers = values(Specials(0.3), (1000,))
    assert (True, True, True) == tuple(
        bool(kind(numbers).any()) for kind in (torch.isnan, torch.isposinf, torch.isneginf)
    )
    without = values(Specials(0.3, infinities=False), (1000,))
    assert (True, False) == (bool(without.isnan().any()), bool(without.isinf().any()))


@pytest.mark.parametrize("high", [33, 34, 1000])
def test_distinct_numbers_differ_along_their_dimensions(high: int) -> None:
    """A scatter that stores has one value for each place."""
    along_one = values(Distinct(high, (1,)), (5, 33, 2), dtype="i64").sort(1).values
    assert bool((along_one.diff(dim=1) > 0).all())
    assert 0 <= int(along_one.min()) <= int(along_one.max()) < high
    along_two = values(Distinct(33 * high, (0, 1)), (5, 33, 2), dtype="i64")
    assert [5 * 33] * 2 == [along_two[..., row].unique().numel() for row in range(2)]


def test_digits_of_distinct_numbers_make_distinct_places() -> None:
    """The index tensors of one ``index_put`` point at a place once, though each repeats its numbers."""
    rows = values(Distinct(30, (0, 1), 5, 6), (5, 6), dtype="i64")
    columns = values(Distinct(30, (0, 1), 1, 5), (5, 6), dtype="i64")
    assert list(range(30)) == sorted((rows * 5 + columns).flatten().tolist())


@pytest.mark.parametrize(("total", "count"), [(100, 7), (5, 20), (0, 3), (1, 1)])
def test_all_forms_of_segments_describe_one_division(total: int, count: int) -> None:
    """Offsets, sizes and bag numbers of an embedding bag follow from each other."""
    bounds = values(Segments(total, count, SegmentForm.BOUNDS), (count + 1,), dtype="i64")
    starts = values(Segments(total, count, SegmentForm.STARTS), (count,), dtype="i64")
    ends = values(Segments(total, count, SegmentForm.ENDS), (count,), dtype="i64")
    sizes = values(Segments(total, count, SegmentForm.SIZES), (count,), dtype="i64")
    numbers = values(Segments(total, count, SegmentForm.NUMBERS), (total,), dtype="i64")
    assert (0, total) == (int(bounds[0]), int(bounds[-1]))
    assert bounds.tolist() == sorted(bounds.tolist()) == [*starts.tolist(), total] == [0, *ends.tolist()]
    assert sizes.tolist() == bounds.diff().tolist() == numbers.bincount(minlength=count).tolist()


@pytest.mark.parametrize("longest", [15, 17, 29])
def test_no_segment_is_longer_than_the_longest(longest: int) -> None:
    """An attention kernel launches blocks for the longest sequence that it was told of."""
    for seed in range(20):
        sizes = values(Segments(100, 7, SegmentForm.SIZES, longest), (7,), dtype="i64", seed=seed)
        assert 100 == int(sizes.sum())
        assert 0 <= int(sizes.min()) <= int(sizes.max()) <= longest


def test_no_segment_has_one_bound() -> None:
    """A batch of nothing still says where it begins."""
    assert [0] == values(Segments(0, 0, SegmentForm.BOUNDS, 5), (1,), dtype="i64").tolist()


def test_segments_end_at_multiples_of_their_unit() -> None:
    """A grouped matrix product wants its groups aligned."""
    ends = values(Segments(64, 5, SegmentForm.ENDS, unit=16), (5,), dtype="i32")
    assert [0] * 5 == (ends % 16).tolist()
    assert 64 == int(ends[-1])


def test_probabilities_add_up_to_one_along_their_dimension() -> None:
    """As the result of a softmax does, which the backward op relies on."""
    torch.testing.assert_close(torch.ones(4, 5), values(Probabilities(1), (4, 33, 5)).sum(1))
    logarithms = values(Probabilities(-1, logarithms=True), (4, 33))
    torch.testing.assert_close(torch.ones(4), logarithms.exp().sum(1))


@pytest.mark.parametrize(("stride", "padding", "dilation", "outputs"), [(2, 1, 1, 5), (3, 0, 1, 3), (1, 1, 2, 7)])
def test_pool_indices_lie_inside_their_windows(stride: int, padding: int, dilation: int, outputs: int) -> None:
    """Outside they are no maximum's place, and outside the plane they are an error."""
    size, kernel = 9, 3
    domain = PoolIndices((size, size), *((value, value) for value in (kernel, stride, padding, dilation)))
    places = values(domain, (2, outputs, outputs), dtype="i64")
    for axis, found in enumerate((places // size, places % size)):
        offset = found - (torch.arange(outputs) * stride - padding).view((-1, 1) if axis == 0 else (1, -1))
        assert {step * dilation for step in range(kernel)} >= set(offset.flatten().tolist())
    assert size * size > int(places.max())


def test_pool_indices_are_those_that_adaptive_pooling_can_find() -> None:
    """Its windows overlap and differ in size: over many inputs eager finds the same places in each."""
    images = torch.randn(1, 500, 5, 7, generator=torch.Generator().manual_seed(0))
    _, found = torch.nn.functional.adaptive_max_pool2d_with_indices(images, (3, 4))
    given = values(PoolIndices((5, 7)), (1, 500, 3, 4), dtype="i64")
    assert [set(places) for places in found[0].flatten(1).T.tolist()] == [
        set(places) for places in given[0].flatten(1).T.tolist()
    ]


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64"])
def test_definite_matrices_are_hermitian_and_well_conditioned(dtype: str) -> None:
    """Cholesky fails on any other."""
    matrices = values(Definite(), (3, 40, 40), dtype=dtype)
    assert bool((matrices == matrices.mH).all())
    spectrum = torch.linalg.eigvalsh(matrices)
    assert 1.0 < float(spectrum.min()) < float(spectrum.max()) < 5.0


def test_one_target_of_eight_is_ignored_and_no_other() -> None:
    """The weight of a loss is the number of targets that count."""
    targets = values(Targets(5, 3), (10, 10), dtype="i64")
    assert 100 // 8 == int((targets == 3).sum())
    assert {0, 1, 2, 3, 4} == set(targets.flatten().tolist())


# ---------------------------------------------------------------- layouts


def test_an_expanded_tensor_is_few_elements_seen_many_times() -> None:
    """Rebuilt dense it would be another input, and sometimes a thousand times as large."""
    tensor = values(Probabilities(1), (1000, 4), strides=(0, 1))
    assert 4 * 4 == tensor.untyped_storage().nbytes()
    assert bool((tensor == tensor[0]).all())
    assert 1.0 == pytest.approx(float(tensor[7].sum()))


def test_overlapping_windows_see_the_same_memory() -> None:
    """An unfolded tensor's windows share their elements."""
    tensor = values(Normal(), (8, 4), strides=(2, 1))
    assert bool((tensor[1:, :2] == tensor[:-1, 2:]).all())
    assert 18 == tensor.unique().numel()


def test_structured_values_follow_the_window_and_not_the_memory() -> None:
    """Along a transposed dimension the probabilities add up all the same."""
    tensor = values(Probabilities(1), (6, 5), strides=(1, 7), offset=2)
    torch.testing.assert_close(torch.ones(6), tensor.sum(1))


def test_a_large_tensor_is_drawn_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is larger than a chunk, and none cuts a dimension whose elements depend on each other."""
    monkeypatch.setattr(synthetic, "CHUNK_ELEMENTS", 64)
    seen: list[tuple[int, ...]] = []
    arrangement = synthetic._arrangement

    def watched(domain: Any, shape: torch.Size, *rest: Any) -> torch.Tensor:
        seen.append(tuple(shape))
        return arrangement(domain, shape, *rest)

    monkeypatch.setattr(synthetic, "_arrangement", watched)
    torch.testing.assert_close(torch.ones(20, 3), values(Probabilities(1), (20, 50, 3)).sum(1))
    assert len(seen) > 20
    assert {50} == {shape[1] for shape in seen}


def test_memory_between_strided_elements_is_filled_too() -> None:
    """A kernel that ignores strides must not read the same numbers by accident."""
    storage = synthetic.generate(described(Normal(), (100,), strides=(3,)), CPU)
    flat = synthetic.flat_view(storage, torch.float32)
    assert (298, 298) == (flat.numel(), flat.unique().numel())


# ---------------------------------------------------------------- judging


def outcome_of(record: CallRecord, function: Callable[..., object]) -> Outcome:
    """What ``function`` does with the arguments."""
    live = rebuild(record, CPU)
    observer = Observer()
    observer.keep([observer.describe(function(*live.args, **live.kwargs), live, record.storages)])
    return observer.outcomes()[0]


def judged(record: CallRecord, candidate: Callable[..., object]) -> Status:
    """The verdict on ``candidate``, with eager as the reference."""
    schema = aten_schemas()[record.op]
    reference = outcome_of(record, overload(record.op))
    case = CaseUnderJudgement(
        record,
        schema,
        rule_for(schema),
        lambda: [HeldOutcome.of(reference)],
        device=CPU,
        tolerance=None,
        run_again=lambda: itertools.repeat(HeldOutcome.of(reference)),
    )
    answered = HeldOutcome.of(outcome_of(record, candidate))
    return case.judge([answered], tolerance="strict", layout="dense").status


@pytest.mark.parametrize(
    ("status", "candidate"),
    [
        (Status.PASSED, torch.relu),
        (Status.WRONG_VALUE, lambda x: torch.relu(x) + 1),
        (Status.ALIASED_OUTPUT, lambda x: x.relu_()),
        (Status.MUTATED_INPUT, lambda x: torch.relu(x.abs_())),
    ],
)
def test_a_call_on_generated_storages_is_judged_like_any_other(
    status: Status, candidate: Callable[..., object]
) -> None:
    """Nothing but the way that the values travel is different."""
    assert status is judged(call_on("relu.default", described(Normal(), (6, 7))), candidate)


def test_only_a_storage_that_changed_comes_to_the_host() -> None:
    """Inputs of gigabytes are compared where they are."""
    record = call_on("add_.Tensor", described(Normal(), (6, 7)), described(Normal(), (6, 7), seed=8))
    outcome = outcome_of(record, overload("add_.Tensor"))
    sums = torch.frombuffer(bytearray(outcome.changed[0]), dtype=torch.float32).view(6, 7)
    first, second = rebuild(record, CPU).args
    assert [0] == list(outcome.changed)
    assert (first + second).tolist() == sums.tolist()


def test_writing_between_the_elements_of_a_generated_input_is_found() -> None:
    """What was there before is generated again to tell."""
    record = call_on("relu_.default", described(Normal(), (4, 3), strides=(6, 2)))

    def careless(x: torch.Tensor) -> torch.Tensor:
        x.relu_()
        torch.as_strided(x, (1,), (1,), 1).fill_(5.0)
        return x

    assert Status.PASSED is judged(record, torch.relu_)
    assert Status.MUTATED_INPUT is judged(record, careless)


def test_an_input_that_is_written_and_not_returned_is_compared() -> None:
    """Running statistics are results, too; who leaves them as they were is wrong, unless nothing is to be done."""
    images = described(Normal(), (4, 3, 5, 5))
    statistics = [described(Magnitude(0.5, 2.0), (3,), seed=seed) for seed in range(4)]

    def without_update(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *_: Any) -> Any:
        return torch.ops.aten.native_batch_norm.default(x, w, b, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5)

    for momentum, status in ((0.1, Status.WRONG_VALUE), (1e-7, Status.PASSED)):
        record = call_on("native_batch_norm.default", images, *statistics, scalars=(True, momentum, 1e-5))
        assert Status.PASSED is judged(record, overload(record.op))
        assert outcome_of(record, overload(record.op)).changed
        assert status is judged(record, without_update)


def test_the_oracle_decides_on_generated_inputs() -> None:
    """A sum that is more accurate than eager's passes, one in lower precision does not."""
    record = call_on("sum.default", described(Normal(), (4, 100_000)))
    assert Status.PASSED is judged(record, lambda x: x.double().sum().float())
    assert Status.WRONG_VALUE is judged(record, lambda x: x.bfloat16().sum().float())


def test_eager_repeats_on_generated_inputs_among_garbage() -> None:
    """The values are the same, wherever the storage lies."""
    record = call_on("sin.default", described(Normal(), (5, 7), strides=(1, 5)))
    first = HeldOutcome.of(outcome_of(record, overload(record.op)))
    for again in itertools.islice(repetitions(record, [140], 3, CPU, surround=True), 2):
        assert first.elements == again.elements


def test_a_repetition_finds_its_inputs_as_the_first_one_did() -> None:
    """They are made once, and an op that writes to one writes to a copy."""
    record = call_on("add_.Tensor", described(Normal(), (5, 7)), described(Normal(), (5, 7), seed=8))
    first = HeldOutcome.of(outcome_of(record, overload(record.op)))
    for surround in (False, True):
        for again in itertools.islice(repetitions(record, [140], 3, CPU, surround=surround), 3):
            assert first.elements == again.elements


def test_a_timed_call_puts_generated_inputs_back() -> None:
    """A block starts from the values that the one before it started from."""
    seen: list[float] = []

    def doubling(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(x[0]))
        return x.mul_(2)

    inputs = TimedInputs(call_on("mul_.Tensor", described(Normal(), (64,))), CPU, 1)
    timed = TimedCall(doubling, inputs, CPU)
    for round_number in (1, 2):
        timed.renew(round_number, 1)
        timed.host_block(1)
    assert 3 == len(seen)
    assert seen[1] == seen[2]


@pytest.mark.parametrize("dtype", ["u64", "u32", "u16"])
def test_a_generators_state_can_be_generated(dtype: str) -> None:
    """Flash attention saves one for its backward pass."""
    call = parse_call("clone.default", f"((T([2, 3], {dtype}),), {{}})", source="test")
    live = rebuild(traced_record(call, seed=1), torch.device("cpu"))
    assert (2, 3) == tuple(live.args[0].shape)
    assert getattr(torch, TENSOR_DTYPES[dtype]) is live.args[0].dtype
