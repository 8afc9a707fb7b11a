"""The values of timed calls: never the same twice, and the referee can make those of any call again."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

import msgspec
import pytest
import torch

from opsmith.calls.live import content_of, element_bytes, item_bytes, rebuild
from opsmith.calls.synthetic import flat_view
from opsmith.calls.transfer import storage_bytes
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue
from opsmith.core.domains import Definite, Domain, Normal
from opsmith.evaluation.timing import inputs as timed_inputs
from opsmith.evaluation.timing.inputs import MADE_AT_ONCE, STRIDES, TimedInputs

CPU = torch.device("cpu")


def vector(storage: int, dtype: str, elements: int) -> TensorValue:
    """A dense vector on a storage of its own."""
    return TensorValue(storage, dtype, (elements,), (1,), 0, "")


def call(*tensors: TensorValue, storages: tuple[Storage, ...]) -> CallRecord:
    """A call with these arguments."""
    return CallRecord(op="relu.default", args=tensors, kwargs={}, storages=storages)


def explicit(dtype: str, elements: int) -> CallRecord:
    """A call on a vector of bytes that are all different as far as they can be."""
    data = bytes([(17 * place + place // 251) % 256 for place in range(elements * item_bytes(dtype))])
    return call(vector(0, dtype, elements), storages=(data,))


def generated(dtype: str, elements: int, domain: Domain | None = None) -> CallRecord:
    """A call on a vector whose values follow from a seed."""
    storage = GeneratedStorage(
        elements * item_bytes(dtype), dtype, (elements,), (1,), 0, Normal() if domain is None else domain, seed=3
    )
    return call(vector(0, dtype, elements), storages=(storage,))


def contents(inputs: TimedInputs) -> list[list[bytes]]:
    """What the storages of each set hold."""
    return [[storage_bytes(storage) for storage in live.storages] for live in inputs.lives]


def made(record: CallRecord, count: int = 4, *, varied: bool = True) -> TimedInputs:
    """Sets of a call's inputs on the CPU, all of them."""
    inputs = TimedInputs(record, CPU, count, varied=varied)
    inputs.make(count)
    return inputs


@pytest.mark.parametrize("make", [explicit, generated])
def test_sets_that_nobody_has_asked_for_are_not_made(make: Callable[[str, int], CallRecord]) -> None:
    """Later ones have the values that they would have had, and what is asked for is there."""
    late, early = TimedInputs(make("f32", 100), CPU, 50, varied=True), made(make("f32", 100), 50)
    assert MADE_AT_ONCE == len(late.lives) < 50
    assert contents(early)[:MADE_AT_ONCE] == contents(late)
    late.renew(3, 20)
    early.renew(3, 50)
    assert contents(early)[:20] == contents(late)
    assert [storage_bytes(storage) for storage in late.before(19, 3)] == contents(late)[19]


@pytest.mark.parametrize("make", [explicit, generated])
@pytest.mark.parametrize("elements", [20, 24, 26, 64, 13 * 17, 1000])
def test_no_set_meets_the_values_of_another_one(make: Callable[[str, int], CallRecord], elements: int) -> None:
    """Within a round and over rounds, as long as there are rotations; none has the recorded values."""
    inputs = made(make("f32", elements))
    seen = {content_of(inputs.record.storages[0], CPU)}
    for round_number in range(4):
        inputs.renew(round_number, 4)
        seen.update(content for [content] in contents(inputs))
    assert 17 == len(seen)


def test_every_number_of_elements_has_as_many_different_sets() -> None:
    """A stride that divides it would give the same values over and over."""
    for elements in (*range(14, 300, 13), *STRIDES, 13 * 17 * 19):
        inputs = made(explicit("f32", elements), 13)
        assert 13 == len({content for [content] in contents(inputs)}), elements


def test_a_set_holds_the_recorded_elements_in_another_order() -> None:
    """Each number is whole: what a reduction gives stays about the same."""
    record = call(vector(0, "f32", 50), storages=(struct.pack("50f", *range(50)),))
    for live in made(record).lives:
        values = live.args[0].tolist()
        assert sorted(values) == list(range(50))
        assert values[0] != 0
        assert values == [(values[0] + place) % 50 for place in range(50)]


@pytest.mark.parametrize("make", [explicit, generated])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("elements", [2, 7, 31, 100])
def test_the_values_of_any_call_can_be_made_again(
    make: Callable[[str, int], CallRecord], dtype: str, elements: int
) -> None:
    """As a record, as storages and as they were met: byte for byte the same."""
    inputs = made(make(dtype, elements), 5)
    for round_number in (0, 1, 7, 1_000_003):
        inputs.renew(round_number, 5)
        for slot, [met] in enumerate(contents(inputs)):
            record = inputs.record_of(slot, round_number)
            assert met == content_of(record.storages[0], CPU)
            assert element_bytes(inputs.lives[slot].args[0]) == element_bytes(rebuild(record, CPU).args[0])
            [before] = inputs.before(slot, round_number)
            assert met == storage_bytes(before)


def test_two_processes_make_the_same_values() -> None:
    """Reference and candidate of a pair are timed on the same numbers."""
    one, other = made(generated("f32", 100)), made(generated("f32", 100))
    for inputs in (one, other):
        inputs.renew(5, 4)
    assert contents(one) == contents(other)


def test_what_a_call_has_done_to_its_inputs_is_undone_in_the_next_round() -> None:
    """In-place variants meet fresh values, not their own results."""
    inputs = made(explicit("f32", 20))
    before = contents(inputs)
    for live in inputs.lives:
        live.args[0].fill_(1)
    inputs.renew(0, 4)
    assert before == contents(inputs)


def test_only_as_many_sets_are_written_as_the_block_has_calls() -> None:
    """The others keep what they have, which costs nothing."""
    inputs = made(explicit("f32", 20))
    before = contents(inputs)
    inputs.renew(3, 2)
    assert before[2:] == contents(inputs)[2:]
    assert not set(map(tuple, before[:2])) & set(map(tuple, contents(inputs)[:2]))


def test_storages_from_before_are_fresh() -> None:
    """What runs on them cannot change what comes after."""
    inputs = made(explicit("f32", 20))
    [one] = inputs.before(1, 0)
    flat_view(one, torch.uint8).zero_()
    [again] = inputs.before(1, 0)
    assert contents(inputs)[1] == [storage_bytes(again)]


@pytest.mark.parametrize("dtype", ["i64", "i32", "u8", "b8"])
def test_integers_stay_as_they_are(dtype: str) -> None:
    """An index has its place: rotated, it might point past what it indexes."""
    record = call(
        vector(0, "f32", 20),
        vector(1, dtype, 20),
        storages=(explicit("f32", 20).storages[0], bytes([1, 0] * 10 * item_bytes(dtype))),
    )
    inputs = made(record)
    for round_number in (0, 3):
        inputs.renew(round_number, 4)
        for slot, (floats, integers) in enumerate(contents(inputs)):
            assert record.storages[1] == integers == inputs.record_of(slot, round_number).storages[1]
            assert record.storages[0] != floats


def test_a_storage_that_integers_look_at_too_stays_as_it_is() -> None:
    """A view of the same memory in another dtype."""
    record = explicit("f32", 20)
    both = call(vector(0, "f32", 20), vector(0, "i32", 20), storages=record.storages)
    assert {record.storages[0]} == {content for [content] in contents(made(both))}


def test_elements_that_depend_on_each_other_stay_as_they_are() -> None:
    """A rotated positive definite matrix is none."""
    matrix = TensorValue(0, "f32", (5, 5), (5, 1), 0, "")
    storage = GeneratedStorage(100, "f32", (5, 5), (5, 1), 0, Definite(), seed=3)
    inputs = made(call(matrix, storages=(storage,)))
    assert {content_of(storage, CPU)} == {content for [content] in contents(inputs)}
    assert inputs.record_of(2, 3) == inputs.record


def test_nothing_varies_where_the_op_refuses_it() -> None:
    """All sets have the recorded values in every round."""
    record = explicit("f32", 20)
    inputs = made(record, varied=False)
    inputs.renew(3, 4)
    assert {record.storages[0]} == {content for [content] in contents(inputs)}
    assert record == inputs.record_of(2, 3)


@pytest.mark.parametrize("size_bytes", [0, 1, 2, 3, 5, 7, 4, 6, 13, 17])
def test_a_storage_of_any_size_is_written(size_bytes: int) -> None:
    """Of few bytes, and of a number that no element divides."""
    data = bytes(range(1, size_bytes + 1))
    elements = size_bytes // 4
    inputs = made(call(vector(0, "f32", elements), storages=(data,)))
    for live in inputs.lives:
        flat_view(live.storages[0], torch.uint8).zero_()
    inputs.renew(2, 4)
    for slot, [met] in enumerate(contents(inputs)):
        assert sorted(data) == sorted(met)
        assert inputs.record_of(slot, 2).storages[0] == met


def test_a_complex_number_is_moved_as_a_whole() -> None:
    """Rotated by half of one, real parts would become imaginary ones."""
    record = call(vector(0, "c128", 30), storages=(struct.pack("60d", *range(60)),))
    for live in made(record).lives:
        numbers = live.args[0]
        assert torch.equal(numbers.real + 1, numbers.imag)
        assert numbers[0].real.item() != 0


def test_tensors_of_several_widths_on_one_storage_move_by_the_widest() -> None:
    """Every one of them keeps whole elements."""
    data = struct.pack("40f", *range(40))
    inputs = made(call(vector(0, "f32", 40), vector(0, "c64", 20), storages=(data,)))
    for live in inputs.lives:
        assert live.args[0][0].item() % 2 == 0
        assert live.args[0][0].item() != 0


def test_what_lies_between_the_elements_of_a_window_never_comes_under_them() -> None:
    """A rotated column of a matrix would show the matrix's other columns; here they hold NaN."""
    nan = float("nan")
    data = struct.pack("60f", *[number if number % 3 == 1 else nan for number in range(60)])
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
    together = TimedInputs(make(dtype, elements), CPU, 50, varied=True)
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
