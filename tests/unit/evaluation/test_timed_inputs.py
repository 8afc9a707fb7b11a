"""The values of timed calls: never the same twice, and the referee can make those of any call again."""

from __future__ import annotations

import contextlib
import itertools
import math
import struct
from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch

from opsmith.calls.fresh_values import BANK_ELEMENTS, HOST_PIECE, MOST_HOST_ROWS
from opsmith.calls.live import content_of, element_bytes, item_bytes, make_storages, rebuild
from opsmith.calls.synthetic import flat_view, value_bank
from opsmith.calls.transfer import storage_bytes
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue
from opsmith.core.domains import Definite, Distinct, Domain, Integers, Magnitude, Mask, Normal, Ordered, Uniform
from opsmith.core.fresh_values import KnownDomain, Redraw, Variation
from opsmith.evaluation.timing import inputs as timed_inputs
from opsmith.evaluation.timing.inputs import MADE_AT_ONCE, MOST_SHRUNK, TimedInputs, without_gaps
from opsmith.evaluation.timing.variation import fixed_numbers, variations
from opsmith.suites.valid_inputs import known_domains

CPU = torch.device("cpu")


def vector(storage: int, dtype: str, elements: int) -> TensorValue:
    """A dense vector on a storage of its own."""
    return TensorValue(storage, dtype, (elements,), (1,), 0, "")


def call(*tensors: TensorValue, storages: tuple[Storage, ...]) -> CallRecord:
    """A call with these arguments."""
    return CallRecord(op="relu.default", args=tensors, kwargs={}, storages=storages)


def explicit(dtype: str, elements: int) -> CallRecord:
    """A call on a vector of recorded numbers, none of which is whole."""
    names = {"f16": "e", "f32": "f", "f64": "d", "c64": "2f", "c128": "2d", "bf16": "f"}
    numbers = [0.37 * place - 3.3 for place in range(elements * (2 if dtype[0] == "c" else 1))]
    data = torch.tensor(numbers, dtype={"e": torch.float16, "f": torch.float32, "d": torch.float64}[names[dtype][-1]])
    data = data.bfloat16() if dtype == "bf16" else data
    return call(vector(0, dtype, elements), storages=(storage_bytes(data.untyped_storage()),))


def generated(dtype: str, elements: int, domain: Domain | None = None) -> CallRecord:
    """A call on a vector whose values follow from a seed."""
    storage = GeneratedStorage(
        elements * item_bytes(dtype), dtype, (elements,), (1,), 0, Normal() if domain is None else domain, seed=3
    )
    return call(vector(0, dtype, elements), storages=(storage,))


def contents(inputs: TimedInputs) -> list[list[bytes]]:
    """What the storages of each set hold."""
    return [[storage_bytes(storage) for storage in live.storages] for live in inputs.lives]


def found(record: CallRecord, domains: dict[int, KnownDomain] | None = None) -> tuple[Variation, ...]:
    """How the referee would have the storages of a call made anew."""
    record = without_gaps(record)
    return variations(record, make_storages([record], CPU)[0], domains or {})


def made(record: CallRecord, count: int = 4, domains: dict[int, KnownDomain] | None = None) -> TimedInputs:
    """Sets of a call's inputs on the CPU, all of them."""
    inputs = TimedInputs(record, CPU, count, variations=found(record, domains))
    inputs.make(count)
    return inputs


@pytest.mark.parametrize("make", [explicit, generated])
def test_sets_that_nobody_has_asked_for_are_not_made(make: Callable[[str, int], CallRecord]) -> None:
    """Later ones have the values that they would have had, and what is asked for is there."""
    record = make("f32", 100)
    late, early = TimedInputs(record, CPU, 50, variations=found(record)), made(record, 50)
    assert MADE_AT_ONCE == len(late.lives) < 50
    assert contents(early)[:MADE_AT_ONCE] == contents(late)
    late.renew(3, 20)
    early.renew(3, 50)
    assert contents(early)[:20] == contents(late)
    assert [storage_bytes(storage) for storage in late.before(19, 3)] == contents(late)[19]


@pytest.mark.parametrize("make", [explicit, generated])
@pytest.mark.parametrize("elements", [1, 2, 20, 64, 1000, BANK_ELEMENTS + 7])
def test_no_set_meets_the_values_of_another_one(make: Callable[[str, int], CallRecord], elements: int) -> None:
    """Within a round and over rounds; none has the recorded values."""
    inputs = made(make("f32", elements))
    seen = {content_of(inputs.record.storages[0], CPU)}
    for key in range(50):
        inputs.renew(key, 4)
        seen.update(content for [content] in contents(inputs))
    assert len(seen) >= 201 - (elements < 3)  # Of single numbers two may be the same one.


@pytest.mark.parametrize("make", [explicit, generated])
@pytest.mark.parametrize("elements", [20, 1000, 3 * BANK_ELEMENTS])
def test_fresh_values_are_no_rearrangement_of_recorded_ones(
    make: Callable[[str, int], CallRecord], elements: int
) -> None:
    """A kernel that keeps answers to recorded values, one by one or by their sum, finds none of them again."""
    inputs = made(make("f32", elements), 8)
    recorded = rebuild(inputs.record, CPU).args[0]
    inputs.renew(77, 8)
    sums = set()
    for live in inputs.lives:
        values = live.args[0]
        assert (recorded.min() <= values.min() and values.max() <= recorded.max()) or elements < BANK_ELEMENTS
        assert torch.isin(values, recorded).float().mean() < 0.2
        sums.add(round(values.double().sum().item(), 3))
    assert 8 == len(sums)


@pytest.mark.slow
@pytest.mark.parametrize("elements", [1, 5, 1000, HOST_PIECE + 1, 2 * HOST_PIECE])
@pytest.mark.parametrize("count", [1, 3, MOST_HOST_ROWS + 5])
def test_single_sets_are_those_of_a_round(elements: int, count: int) -> None:
    """However many of them are written together, and whichever one is made again."""
    record = generated("f32", elements)
    many, few = made(record, 2 * MOST_HOST_ROWS), made(record, 2 * MOST_HOST_ROWS)
    many.renew(5, 2 * MOST_HOST_ROWS)
    few.renew(5, count)
    assert contents(few)[:count] == contents(many)[:count]
    for slot in {0, count - 1, MOST_HOST_ROWS, 2 * MOST_HOST_ROWS - 1}:
        assert [storage_bytes(storage) for storage in many.before(slot, 5)] == contents(many)[slot]


@pytest.mark.parametrize("make", [explicit, generated])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("elements", [1, 2, 7, 31, 100])
def test_the_values_of_any_call_can_be_made_again(
    make: Callable[[str, int], CallRecord], dtype: str, elements: int
) -> None:
    """As a record, as storages and as they were met: byte for byte the same."""
    inputs = made(make(dtype, elements), 5)
    for key in (0, 1, 7, (1 << 62) - 1):
        inputs.renew(key, 5)
        for slot, [met] in enumerate(contents(inputs)):
            record = msgspec.msgpack.decode(msgspec.msgpack.encode(inputs.record_of(slot, key)), type=CallRecord)
            assert met == content_of(record.storages[0], CPU)
            assert element_bytes(inputs.lives[slot].args[0]) == element_bytes(rebuild(record, CPU).args[0])
            [before] = inputs.before(slot, key)
            assert met == storage_bytes(before)


def test_two_processes_make_the_same_values() -> None:
    """Reference and candidate of a pair are timed on the same numbers."""
    one, other = made(generated("f32", 100)), made(generated("f32", 100))
    for inputs in (one, other):
        inputs.renew(5, 4)
    assert contents(one) == contents(other)


def test_two_arguments_do_not_get_the_same_numbers() -> None:
    """A kernel could take one for the other."""
    storage = generated("f32", 1000).storages[0]
    inputs = made(call(vector(0, "f32", 1000), vector(1, "f32", 1000), storages=(storage, storage)))
    for one, other in contents(inputs):
        assert one != other


def test_what_a_call_has_done_to_its_inputs_is_undone_in_the_next_round() -> None:
    """In-place variants meet fresh values, not their own results."""
    inputs = made(explicit("f32", 20))
    before = contents(inputs)
    for live in inputs.lives:
        live.args[0].fill_(1)
    inputs.renew(0, 4)
    assert before == contents(inputs)


def test_only_as_many_sets_are_written_as_the_block_has_calls() -> None:
    """The others keep what they have, which costs nothing. Each time it is the turn of other sets."""
    inputs = made(explicit("f32", 20))
    before, places = contents(inputs), [live.args[0].data_ptr() for live in inputs.lives]
    inputs.renew(3, 2)
    assert places[2:] + places[:2] == [live.args[0].data_ptr() for live in inputs.lives]
    assert before[4:] + before[:2] == contents(inputs)[2:]
    assert not set(map(tuple, before)) & set(map(tuple, contents(inputs)[:2]))


def test_storages_from_before_are_fresh() -> None:
    """What runs on them cannot change what comes after."""
    inputs = made(explicit("f32", 20))
    [one] = inputs.before(1, 0)
    flat_view(one, torch.uint8).zero_()
    [again] = inputs.before(1, 0)
    assert contents(inputs)[1] == [storage_bytes(again)]


def whole(dtype: str, numbers: list[int], op: str = "relu.default") -> CallRecord:
    """A call on recorded whole numbers."""
    kinds = {"i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "b8": torch.bool, "f32": torch.float32}
    data = storage_bytes(torch.tensor(numbers, dtype=kinds[dtype]).untyped_storage())
    return msgspec.structs.replace(call(vector(0, dtype, len(numbers)), storages=(data,)), op=op)


@pytest.mark.parametrize("dtype", ["i64", "i32", "u8", "b8", "f32"])
def test_whole_numbers_are_chosen_among_the_recorded_ones(dtype: str) -> None:
    """An index stays inside what it indexes, a count a count, and a mask holds truth values."""
    recorded = [1, 0, 1, 1, 0] * 20 if dtype == "b8" else [7, 3, 200, 3, 9, 0] * 20
    inputs = made(whole(dtype, recorded))
    assert [Redraw.CHOSEN] == [one.how for one in found(inputs.record)]
    seen: set[bytes] = set()
    for key in range(5):
        inputs.renew(key, 4)
        for slot, live in enumerate(inputs.lives):
            assert set(map(int, live.args[0].tolist())) <= set(recorded)
            assert inputs.record_of(slot, key).storages[0] == contents(inputs)[slot][0]
        seen.update(content for [content] in contents(inputs))
    assert 20 == len(seen)


@pytest.mark.parametrize("numbers", [[0, 2, 2, 5, 9], [3, 1, 0, 2, 4], [4]])
def test_whole_numbers_that_may_depend_on_each_other_stay_as_they_are(numbers: list[int]) -> None:
    """Bounds of segments, the places of an order: of an op that nothing is known about."""
    record = whole("i64", numbers)
    assert {record.storages[0]} == {content for [content] in contents(made(record))}


def test_a_single_index_is_drawn_from_what_it_indexes() -> None:
    """It is known from the op, and holds for the recorded one."""
    table = vector(0, "f32", 50)
    record = CallRecord(
        op="index_select.default",
        args=(table, 0, vector(1, "i64", 1)),
        kwargs={},
        storages=(explicit("f32", 50).storages[0], struct.pack("q", 31)),
    )
    inputs = made(record, 40, known_domains(record))
    places = {int(live.args[2]) for live in inputs.lives}
    assert len(places) > 10
    assert places <= set(range(50))


def test_an_index_beyond_its_domain_is_chosen_among_recorded_ones() -> None:
    """What is known of the op does not hold for this call."""
    record = whole("i64", [5, 900, 5, 900])
    inputs = made(record, 4, {0: KnownDomain(Integers(0, 10), 1)})
    assert {5, 900} >= {int(number) for live in inputs.lives for number in live.args[0]}


@pytest.mark.parametrize(
    ("domain", "holds"),
    [
        (Ordered(-2, 5), lambda x: bool((x.diff() >= 0).all())),
        (Distinct(90, (0,)), lambda x: len(x.unique()) == len(x)),
    ],
)
def test_values_that_depend_on_each_other_are_drawn_again(domain: Domain, holds: Callable[..., bool]) -> None:
    """Recorded as bytes or as a domain: in ascending order, all different."""
    for record, known in (
        (generated("f32", 30, domain), {}),
        (whole("f32", sorted(range(30))), {0: KnownDomain(domain, 4)}),
    ):
        inputs = made(record, 4, known)
        seen: set[bytes] = set()
        for key in range(3):
            inputs.renew(key, 4)
            for slot, live in enumerate(inputs.lives):
                assert holds(live.args[0])
                assert content_of(inputs.record_of(slot, key).storages[0], CPU) == contents(inputs)[slot][0]
            seen.update(content for [content] in contents(inputs))
        assert 12 == len(seen)


def test_parts_of_one_description_are_drawn_together() -> None:
    """Places in two dimensions, none of them twice."""
    rows, columns = (
        GeneratedStorage(8 * 40, "i64", (40,), (1,), 0, Distinct(100, (0,), divisor, modulus), seed=6)
        for divisor, modulus in ((10, None), (1, 10))
    )
    inputs = made(call(vector(0, "i64", 40), vector(1, "i64", 40), storages=(rows, columns)))
    for key in range(3):
        inputs.renew(key, 4)
        for live in inputs.lives:
            assert 40 == len(set(zip(*[argument.tolist() for argument in live.args], strict=True)))


def test_a_positive_definite_matrix_is_drawn_again() -> None:
    """A blend of two rearranged ones is none."""
    matrix = TensorValue(0, "f32", (5, 5), (5, 1), 0, "")
    storage = GeneratedStorage(100, "f32", (5, 5), (5, 1), 0, Definite(), seed=3)
    inputs = made(call(matrix, storages=(storage,)))
    assert 4 == len({content for [content] in contents(inputs)})
    for live in inputs.lives:
        assert torch.linalg.eigvalsh(live.args[0]).min() > 1


@pytest.mark.parametrize("domain", [Mask(0.3), Integers(2, 9), Uniform(0.5, 2.0)])
def test_a_single_number_of_a_domain_is_another_one_in_each_set(domain: Domain) -> None:
    """One element has nothing to be blended with but what its domain gives."""
    dtype = {"Mask": "b8", "Integers": "i64", "Uniform": "f32"}[type(domain).__name__]
    inputs = made(generated(dtype, 1, domain), 60)
    values = [live.args[0].item() for live in inputs.lives]
    assert len(set(values)) == {"b8": 2, "i64": 7}.get(dtype, len(set(values)))
    assert len(set(values)) > 50 or dtype != "f32"
    assert all(0.5 <= value < 2 for value in values) or dtype != "f32"


def test_numbers_that_are_all_the_same_shrink_a_little() -> None:
    """A probability stays one, a factor keeps its sign; a whole number may be a count and stays."""
    for recorded in ([0.9], [-0.25] * 30):
        inputs = made(
            call(vector(0, "f32", len(recorded)), storages=(struct.pack(f"{len(recorded)}f", *recorded),)), 20
        )
        values = torch.cat([live.args[0] for live in inputs.lives]) / recorded[0]
        assert 1 - MOST_SHRUNK <= values.min()
        assert values.max() <= 1 + 1e-6
        assert len(values.unique()) > 15
    counted = whole("f32", [3])
    assert [counted.storages[0]] * 4 == [content for [content] in contents(made(counted))]


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan, 3e38])
def test_numbers_without_a_difference_are_chosen(special: float) -> None:
    """A mask of attention holds minus infinity: blended with 0 it would be no number."""
    numbers = [0.5, special, -0.5, -special] * 20
    inputs = made(call(vector(0, "f32", 80), storages=(struct.pack("80f", *numbers),)))
    allowed = torch.tensor([*numbers])
    for live in inputs.lives:
        assert all(bool(((allowed == value) | (allowed.isnan() & value.isnan())).any()) for value in live.args[0])
    assert 4 == len({content for [content] in contents(inputs)})


def test_what_keeps_away_from_zero_still_does() -> None:
    """A blend of a divisor and its negative may be next to nothing."""
    inputs = made(generated("f32", 500, Magnitude(0.5, 2, signed=True)))
    for live in inputs.lives:
        assert live.args[0].abs().min() >= 0.5
    divisors = call(vector(0, "f32", 2), storages=(struct.pack("2f", -0.7, 0.7),))
    for live in made(divisors, 4, {0: KnownDomain(Magnitude(0.5, 2, signed=True), 1)}).lives:
        assert {0.7} == {round(abs(value), 3) for value in live.args[0].tolist()}


def test_a_storage_that_integers_look_at_too_stays_as_it_is() -> None:
    """A view of the same memory in another dtype."""
    record = explicit("f32", 20)
    both = call(vector(0, "f32", 20), vector(0, "i32", 20), storages=record.storages)
    assert {record.storages[0]} == {content for [content] in contents(made(both))}


def test_an_op_that_refuses_other_indices_still_meets_fresh_numbers() -> None:
    """What stays is what may have been refused."""
    record = call(
        vector(0, "f32", 20),
        vector(1, "i64", 6),
        storages=(explicit("f32", 20).storages[0], struct.pack("6q", 5, 5, 1, 0, 5, 1)),
    )
    assert [Redraw.BLENDED, Redraw.CHOSEN] == [one.how for one in found(record)]
    assert [Redraw.BLENDED, Redraw.FIXED] == [one.how for one in fixed_numbers(found(record), record)]


def test_nothing_varies_where_nothing_is_said() -> None:
    """All sets have the recorded values in every round."""
    record = explicit("f32", 20)
    inputs = TimedInputs(record, CPU, 4)
    inputs.renew(3, 4)
    assert {record.storages[0]} == {content for [content] in contents(inputs)}
    assert record == inputs.record_of(2, 3)


def test_a_draw_is_made_where_the_process_computes_for_itself() -> None:
    """A worker's dispatcher tells of what its kernel may not call."""
    entered = []

    @contextlib.contextmanager
    def computing() -> Iterator[None]:
        entered.append(True)
        yield
        entered.append(False)

    record = generated("f32", 30, Ordered(0, 1))
    inputs = TimedInputs(record, CPU, 2, variations=found(record), computing=computing)
    entered.clear()
    inputs.renew(1, 2)
    assert [True, False] == entered


@pytest.mark.parametrize("size_bytes", [0, 1, 2, 3, 5, 7, 4, 6, 13, 17])
def test_a_storage_of_any_size_is_written(size_bytes: int) -> None:
    """Of few bytes, and of a number that no element divides."""
    data = bytes(range(1, size_bytes + 1))
    inputs = made(call(vector(0, "f32", size_bytes // 4), storages=(data,)))
    for live in inputs.lives:
        flat_view(live.storages[0], torch.uint8).zero_()
    inputs.renew(2, 4)
    for slot, [met] in enumerate(contents(inputs)):
        assert len(data) == len(met)
        assert sum(met) or not data
        assert inputs.record_of(slot, 2).storages[0] == met


def test_what_lies_between_the_elements_of_a_window_never_comes_under_them() -> None:
    """A rotated column of a matrix would show the matrix's other columns; here they hold NaN."""
    data = struct.pack("60f", *[number + 0.5 if number % 3 == 1 else math.nan for number in range(60)])
    column = TensorValue(0, "f32", (20,), (3,), 1, "")
    inputs = made(call(column, storages=(data,)))
    for round_number in range(5):
        inputs.renew(round_number, 4)
        for slot, live in enumerate(inputs.lives):
            assert not live.args[0].isnan().any()
            again = rebuild(inputs.record_of(slot, round_number), CPU).args[0]
            assert torch.equal(again, live.args[0])


@pytest.mark.parametrize("elements", [0, 4])
def test_an_out_argument_that_was_resized_can_be_written_again(elements: int) -> None:
    """Its tensor has grown: were its storage made small again, the next call would write past its end."""
    data = struct.pack("20f", *range(-10, 10))
    record = CallRecord(
        op="relu.out",
        args=(vector(0, "f32", 20),),
        kwargs={"out": vector(1, "f32", elements)},
        storages=(data, bytes(4 * elements)),
    )
    inputs = made(record)
    for round_number in range(3):
        inputs.renew(round_number, 4)
        for slot, live in enumerate(inputs.lives):
            out = live.kwargs["out"]
            if not round_number:
                out.resize_(20)  # As the op does, which warns where it had elements.
            torch.ops.aten.relu.out(*live.args, out=out)
            assert out.untyped_storage().nbytes() >= out.numel() * 4
            assert torch.equal(live.args[0].relu(), out)
            assert [4 * elements] == [before.nbytes() for before in inputs.before(slot, round_number)[1:]]


@pytest.mark.parametrize("make", [explicit, generated])
@pytest.mark.parametrize(("dtype", "elements"), [("f16", 7), ("f32", 128), ("f32", 300), ("c128", 31)])
def test_on_a_device_one_copy_writes_the_same_values_into_sets_behind_each_other(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[str, int], CallRecord], dtype: str, elements: int
) -> None:
    """In aligned storages, no larger than those of their own, in one piece whatever was asked for before."""
    apart = made(make(dtype, elements), 50)
    monkeypatch.setattr(timed_inputs, "_is_on_host", lambda _values: False)
    record = make(dtype, elements)
    together = TimedInputs(record, CPU, 50, variations=found(record))
    assert contents(apart)[:MADE_AT_ONCE] == contents(together)
    for round_number, count in ((3, 20), (4, 5), (5, 50)):
        for inputs in (apart, together):
            inputs.renew(round_number, count)
        assert contents(apart)[:count] == contents(together)[:count]
    addresses = [live.args[0].data_ptr() for live in together.lives]
    assert 1 == len({after - before for before, after in itertools.pairwise(addresses)})
    for live in together.lives:
        assert [elements * item_bytes(dtype)] == [storage.nbytes() for storage in live.storages]
        assert live.args[0].data_ptr() % 64 == 0
        assert not live.storages[0].resizable()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "b8"])
@pytest.mark.parametrize("elements", [1, 5, 3000, 1 << 21])
def test_a_device_makes_every_set_again(dtype: str, elements: int) -> None:
    """The way of a device, here on a host: sets side by side, one by one, and a single one."""
    domain = Mask(0.5) if dtype == "b8" else Normal()
    [storage] = generated(dtype, elements, domain).storages
    assert isinstance(storage, GeneratedStorage)
    how = Redraw.BLENDED if dtype in ("f32", "f64", "c64") else Redraw.CHOSEN
    bank = value_bank(storage, how, 9, 0, device=CPU)
    bank._on_host = False
    rows = torch.zeros(9, bank.length, dtype=bank.unit)
    bank.write(rows, 3)
    assert len({row.numpy().tobytes() for row in rows}) > (1 if elements == 1 and dtype == "b8" else 3)
    apart = [torch.zeros(bank.length, dtype=bank.unit) for _ in range(4)]
    bank.write_each(apart, 3)
    assert all(torch.equal(row, one) for row, one in zip(rows, apart, strict=False))
    for slot in (0, 5, 8):
        assert rows[slot].numpy().tobytes() == storage_bytes(bank.storage(3, slot))
    few = torch.zeros(2, bank.length, dtype=bank.unit)
    bank.write(few, 3)
    assert torch.equal(few, rows[:2])


def test_what_a_call_may_resize_stays_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it writes to, and all of an op whose purpose that is."""
    monkeypatch.setattr(timed_inputs, "_is_on_host", lambda _values: False)
    written = msgspec.structs.replace(
        call(vector(0, "f32", 8), storages=(bytes(32), bytes(32))), op="relu.out", kwargs={"out": vector(1, "f32", 8)}
    )
    for record, resizable in (
        (written, [False, True]),
        (msgspec.structs.replace(explicit("f32", 8), op="resize_.default"), [True]),
    ):
        inputs = made(record)
        inputs.renew(2, 4)
        assert [resizable] * 4 == [[storage.resizable() for storage in live.storages] for live in inputs.lives]
        assert contents(inputs) == [[storage_bytes(s) for s in inputs.before(slot, 2)] for slot in range(4)]


def test_a_call_that_changes_its_arguments_shape_finds_it_as_it_was() -> None:
    """Or every block of unsqueeze_ would begin with one dimension more."""
    record = CallRecord(op="unsqueeze_.default", args=(vector(0, "f32", 20), 0), kwargs={}, storages=(bytes(80),))
    inputs = made(record)
    for round_number in range(3):
        inputs.renew(round_number, 4)
        assert {(20,)} == {tuple(live.args[0].shape) for live in inputs.lives}
        results = [live.args[0].unsqueeze_(0) for live in inputs.lives]
        assert {(1, 20)} == {tuple(result.shape) for result in results}


def test_scattered_sets_lie_where_nobody_knows() -> None:
    """A kernel of ranks that keeps the addresses of earlier calls finds nothing there; values are as ever."""
    record = generated("f32", 60)
    made = make_storages([record], CPU)[0]
    how = variations(record, made, {})
    scattered, apart = (TimedInputs(record, CPU, 32, variations=how, scattered=is_so) for is_so in (True, False))
    seen: set[int] = set()
    for key in (11, 12, 13):
        for inputs in (scattered, apart):
            inputs.renew(key, 8)
        assert contents(apart)[:8] == contents(scattered)[:8]
        assert contents(scattered)[3] == [storage_bytes(one) for one in scattered.before(3, key)]
        places = {tensor.data_ptr() for tensor in scattered.tensors(8)}
        assert 8 == len(places)
        assert not any(place % timed_inputs.HOST_ALIGNED_BYTES for place in places)
        assert len(seen & places) <= 4  # Of some two thousand places.
        seen |= places
    scattered.renew(14, 32)
    spans = sorted((tensor.data_ptr(), tensor.data_ptr() + 240) for tensor in scattered.tensors(32))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
