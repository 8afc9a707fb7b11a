"""Suite ``traces``: which rows of a dataset are asked, and in which dtype."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.dataset_rows import row

from opsmith.core.case import CallRecord, TensorValue, tensor_values
from opsmith.core.run import Selection
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.traces import MOST_BYTES, Traces, in_dtype
from opsmith.traces.grammar import parse_call, print_arguments
from opsmith.traces.schema import Row, write_dataset

#: Elements of float32 that fit exactly, arguments and result together.
FITTING = MOST_BYTES["cpu"] // 8


def relu(elements: int, **changes: object) -> Row:
    """A row of ``relu`` on a vector."""
    return row(args=f"((T([{elements}], f32),), {{}})", **changes)


def asked(
    tmp_path: Path, rows: Sequence[Row], *, entry: str = "relu.default", dtype: str = "recorded", **selection: object
) -> list[SuiteCall]:
    """What the suite asks of one op, on the CPU."""
    path = tmp_path / "rows.parquet"
    write_dataset(path, rows)
    suite = Traces()
    suite.select(msgspec.convert({"dataset": str(path), **selection}, Selection))
    calls = []
    if entry in suite.entries(dtype, "cpu"):
        for call in suite.calls(entry, dtype, "cpu", 1, lambda _op, _signature: True):
            assert not isinstance(call, Skipped), call.reason
            calls.append(call)
    return calls


def sizes(calls: Sequence[SuiteCall]) -> list[int]:
    """The number of elements of each call's first tensor."""
    return [tensor(call.record).shape[0] for call in calls]


def tensor(record: CallRecord | None) -> TensorValue:
    """The first one of a call."""
    assert record is not None
    return tensor_values(record.args)[0]


def test_every_row_becomes_a_case(tmp_path: Path) -> None:
    """The largest first, each under the number of its row."""
    calls = asked(tmp_path, [relu(5), relu(7)])
    assert [7, 5] == sizes(calls)
    assert ["traces:relu.default:recorded:input:2:0", "traces:relu.default:recorded:input:1:0"] == [
        str(call.address) for call in calls
    ]


def test_counts_are_those_of_the_trace(tmp_path: Path) -> None:
    """Scores weigh a case by how often models make the call."""
    assert [12] == [call.count for call in asked(tmp_path, [relu(5, count=12)])]


def test_top_inputs_are_the_largest_that_fit(tmp_path: Path) -> None:
    """Sizes are capped; the result counts too."""
    rows = [relu(5), relu(FITTING), relu(FITTING + 1), relu(9)]
    assert [FITTING, 9] == sizes(asked(tmp_path, rows, top_inputs=2))


@pytest.mark.parametrize(
    ("count", "expected"),
    [(2, [9, 1]), (3, [9, 5, 1]), (4, [9, 6, 4, 1]), (5, [9, 7, 5, 3, 1]), (20, [9, 8, 7, 6, 5, 4, 3, 2, 1])],
)
def test_spread_inputs_are_evenly_spaced_by_rank(tmp_path: Path, count: int, expected: list[int]) -> None:
    """The largest, the smallest and evenly between them; all where there are fewer."""
    rows = [relu(elements) for elements in (4, 9, 1, 6, 3, 8, 2, 7, 5)]
    assert expected == sizes(asked(tmp_path, rows, spread_inputs=count))


def test_spread_inputs_are_among_those_that_fit(tmp_path: Path) -> None:
    """By rank, not by size; ranks count from the largest that fits."""
    rows = [relu(elements) for elements in (5, FITTING, FITTING + 1, 9, 6, 2 * FITTING, 7)]
    assert [FITTING, 7, 5] == sizes(asked(tmp_path, rows, spread_inputs=3))


def test_spread_inputs_of_an_op_with_few_inputs(tmp_path: Path) -> None:
    """One, the smallest of those that are too large, or none."""
    assert [5] == sizes(asked(tmp_path, [relu(5)], spread_inputs=5))
    assert [2 * FITTING] == sizes(asked(tmp_path, [relu(3 * FITTING), relu(2 * FITTING)], spread_inputs=5))
    assert [] == asked(tmp_path, [relu(17 * FITTING)], spread_inputs=5)


def test_an_op_with_large_inputs_only_gets_the_smallest(tmp_path: Path) -> None:
    """It would go unasked otherwise."""
    assert [2 * FITTING] == sizes(asked(tmp_path, [relu(3 * FITTING), relu(2 * FITTING)]))


def test_an_input_far_above_the_cap_is_not_asked_at_all(tmp_path: Path) -> None:
    """One call must not take all of a machine."""
    assert [] == asked(tmp_path, [relu(17 * FITTING)])


def test_an_excluded_row_is_not_asked(tmp_path: Path) -> None:
    """The dataset says why it is excluded."""
    rows = [relu(5), relu(7, included_in_benchmark=False, why_excluded=("synthetic",))]
    assert [5] == sizes(asked(tmp_path, rows))


def test_models_select_rows(tmp_path: Path) -> None:
    """A pattern that one of the row's models matches."""
    rows = [relu(5, in_models=("timm:vit", "x:y")), relu(7, in_models=("transformers:llama",))]
    assert [5] == sizes(asked(tmp_path, rows, models=("timm:*",)))
    assert [7, 5] == sizes(asked(tmp_path, rows, models=("*vit", "*llama")))


@pytest.mark.parametrize(("which", "expected"), [("with", [9, 7, 5]), ("without", [9, 5]), ("only", [7])])
def test_overhead_dominated_rows_can_be_left_out_or_asked_alone(
    tmp_path: Path, which: str, expected: list[int]
) -> None:
    """A row that was not measured is not known to be one."""
    rows = [relu(5), relu(7, is_overhead_dominated_op=True), relu(9, is_overhead_dominated_op=False)]
    assert expected == sizes(asked(tmp_path, rows, overhead_dominated=which))


def test_a_renamed_overload_is_asked_under_todays_name(tmp_path: Path) -> None:
    """Public traces call sum.SymInt."""
    old = row(op_name="aten.sum.SymInt", args="((T([2, 3], f32), [0], True), {})")
    assert ["sum.dim_IntList"] == [call.op for call in asked(tmp_path, [old], entry="sum.dim_IntList")]


def test_values_follow_from_the_seed_and_the_row(tmp_path: Path) -> None:
    """Fresh values for every run, the same ones for a resumed run."""
    path = tmp_path / "rows.parquet"
    write_dataset(path, [relu(5), relu(7)])
    suite = Traces()
    suite.select(Selection(dataset=str(path)))

    def records(seed: int) -> list[CallRecord | None]:
        calls = suite.calls("relu.default", "recorded", "cpu", seed, lambda *_: True)
        return [call.record for call in calls if isinstance(call, SuiteCall)]

    assert records(1) == records(1)
    assert records(1) != records(2)


@pytest.mark.parametrize(
    ("op", "before", "dtype", "after"),
    [
        ("relu.default", "((T([2], f16),), {})", "f32", "((T([2], f32),), {})"),
        ("relu.default", "((T([2], f16),), {})", "recorded", "((T([2], f16),), {})"),
        ("add.Tensor", "((T([2], f32), T([2], f64)), {})", "bf16", "((T([2], bf16), T([2], f64)), {})"),
        ("gather.default", "((T([2], f16), 0, T([2], i64)), {})", "f32", "((T([2], f32), 0, T([2], i64)), {})"),
        ("_to_copy.default", "((T([2], f32),), {'dtype': f16})", "bf16", "((T([2], bf16),), {'dtype': bf16})"),
        ("_to_copy.default", "((T([2], f32),), {'dtype': i64})", "bf16", "((T([2], bf16),), {'dtype': i64})"),
        ("cat.default", "(([T([2], f16), T([2], f16)],), {})", "f32", "(([T([2], f32), T([2], f32)],), {})"),
        ("_softmax.default", "((T([2], f16), 0, True), {})", "f32", "((T([2], f32), 0, False), {})"),
        ("_softmax.default", "((T([2], f32), 0, True), {})", "f16", "((T([2], f16), 0, True), {})"),
        ("_fft_c2c.default", "((T([2], c32), [0], 0, True), {})", "f32", "((T([2], c64), [0], 0, True), {})"),
    ],
)
def test_a_call_is_converted_to_the_dtype_asked_for(op: str, before: str, dtype: str, after: str) -> None:
    """Half and single precision become the dtype; flags that only make sense for halves follow."""
    call = parse_call(op, before, source="test")
    assert print_arguments(parse_call(op, after, source="test")) == print_arguments(in_dtype(call, dtype))
