from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.dataset_rows import row, trace

from opsmith.core.trace import TraceEntry
from opsmith.errors import BadInput
from opsmith.traces.build import build, measurable, most_per_op, origins, unbuild
from opsmith.traces.exclusions import OTHER_DEVICE, SPARSE, SYNTHETIC
from opsmith.traces.grammar import print_trace
from opsmith.traces.measurements import Measurement
from opsmith.traces.schema import Row, identity, write_dataset
from opsmith.traces.trace_file import find_traces, read_trace

PUBLIC_TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"

public = pytest.mark.skipif(not PUBLIC_TRACES.is_dir(), reason="the public traces are not on this machine")

RELU = "((T([2], f16),), {})"


def only(rows: list[Row]) -> Row:
    """The one row that there is."""
    (row,) = rows
    return row


def test_the_same_input_of_two_models_is_one_row() -> None:
    """Counts are summed and models merged, each model once."""
    row = only(
        build(
            [
                trace("b", f"aten.relu.default 3 {RELU}", f"aten.relu 1 {RELU}"),
                *[trace(model, f"aten::relu 5 {RELU}") for model in ("d", "a", "e", "c")],
            ]
        )
    )
    assert ("aten.relu.default", RELU, 24, ("a", "b", "c", "d", "e"), 5) == (
        row.op_name,
        row.args,
        row.count,
        row.in_models,
        row.in_models_count,
    )
    assert (identity("aten.relu.default", RELU), True, True, ()) == (
        row.uuid,
        row.runnable,
        row.included_in_benchmark,
        row.why_excluded,
    )


def test_two_spellings_are_one_input() -> None:
    """What is distinct is the call, not its text."""
    spellings = ("((T([2, 3], 'f16', [3, 1]), torch.half), {})", "((T([2,3], f16), f16), {})")
    row = only(build([trace("a", *[f"aten.op.default 1 {text}" for text in spellings])]))
    assert ("((T([2, 3], f16), f16), {})", 2) == (row.args, row.count)


def test_an_int_a_float_and_a_bool_are_three_inputs() -> None:
    """Python calls 1, 1.0 and True equal; ATen does not."""
    rows = build([trace("a", *[f"aten.add.Tensor 1 ((T([2], f16), {other}), {{}})" for other in ("1", "1.0", "True")])])
    assert 3 == len(rows)


def test_before_measuring_no_runtime_is_known() -> None:
    """None, not zero."""
    row = only(build([trace("a", f"aten.relu.default 1 {RELU}")]))
    assert (None, None, None) == (row.runtime_ms, row.relative_runtime_to_kernel_launch, row.is_overhead_dominated_op)


@pytest.mark.parametrize(("ratio", "dominated"), [(1.0, True), (1.29, True), (1.3, False), (20.0, False)])
def test_an_input_near_the_cost_of_a_launch_is_flagged_and_stays(ratio: float, *, dominated: bool) -> None:
    """A kernel has little to win there; a person may still want to see it."""
    traces = [trace("a", f"aten.relu.default 1 {RELU}")]
    uuid = only(build(traces)).uuid
    measured = Measurement(uuid=uuid, device="NVIDIA H200", runtime_ms=ratio * 0.004, launch_ms=0.004)
    row = only(build(traces, measurements={uuid: measured}))
    assert (ratio * 0.004, dominated, True) == (row.runtime_ms, row.is_overhead_dominated_op, row.included_in_benchmark)
    assert pytest.approx(ratio) == row.relative_runtime_to_kernel_launch


def test_an_input_that_does_not_run_is_excluded_with_its_error() -> None:
    """And with the device that said so."""
    traces = [trace("a", f"aten.relu.default 1 {RELU}")]
    uuid = only(build(traces)).uuid
    failed = Measurement(uuid=uuid, device="NVIDIA H200", problem="out of memory")
    row = only(build(traces, measurements={uuid: failed}))
    assert (False, False, ("does not run on NVIDIA H200: out of memory",), None) == (
        row.runnable,
        row.included_in_benchmark,
        row.why_excluded,
        row.runtime_ms,
    )


@pytest.mark.parametrize(
    ("line", "runnable", "reasons"),
    [
        ("aten.bernoulli_.float 1 ((T([2], f16), 0.5), {})", True, ()),
        ("aten.new_empty.default 1 ((T([2], f16), [3]), {'device': 'cuda', 'layout': torch.strided})", True, ()),
        ("aten.index.Tensor 1 ((T([9], f16), [T([4], i64)]), {})", True, ()),
        ("aten.relu.default 0 ((T([2], f16),), {})", True, (SYNTHETIC,)),
        ("aten._to_copy.default 1 ((T([2], f16),), {'device': 'cpu'})", True, (OTHER_DEVICE,)),
        ("aten._to_copy.default 1 ((T([2], f16),), {'layout': torch.sparse_coo})", True, (SPARSE,)),
        ("aten._to_copy.default 0 ((T([2], f16),), {'device': 'cpu'})", True, (SYNTHETIC, OTHER_DEVICE)),
        ("aten.no_such.default 1 ((), {})", False, ("has no op no_such.default",)),
    ],
)
def test_what_is_not_asked_says_why(line: str, reasons: tuple[str, ...], *, runnable: bool) -> None:
    """Random, creation and indexing ops are asked; there can be several reasons not to."""
    row = only(build([trace("a", line)]))
    assert (runnable, not reasons, len(reasons)) == (row.runnable, row.included_in_benchmark, len(row.why_excluded))
    for reason, found in zip(reasons, row.why_excluded, strict=True):
        assert reason in found


def test_a_synthetic_input_has_no_model() -> None:
    """Unless a model makes the call as well: then it is a real one."""
    synthetic, real = trace("made-up", f"aten.relu.default 0 {RELU}"), trace("a", f"aten.relu.default 2 {RELU}")
    alone = only(build([synthetic]))
    assert (True, 0, ()) == (alone.is_synthetic, alone.count, alone.in_models)
    both = only(build([synthetic, real]))
    assert (False, 2, ("a",), True) == (both.is_synthetic, both.count, both.in_models, both.included_in_benchmark)


def test_old_overloads_become_todays() -> None:
    """And merge with calls that were recorded under the new name."""
    args = "((T([4, 5], f16), [0], True), {})"
    row = only(build([trace("a", f"aten.sum.SymInt 1 {args}", f"aten.sum.dim_IntList 2 {args}")]))
    assert ("aten.sum.dim_IntList", 3) == (row.op_name, row.count)


def test_rows_are_sorted_whatever_the_order_of_the_traces() -> None:
    """By op, then the most frequent input first, then by text."""
    traces = [
        trace("b", f"aten.relu.default 1 {RELU}", "aten.relu.default 9 ((T([3], f16),), {})"),
        trace("a", "aten.exp.default 1 ((T([3], f16),), {})", "aten.relu.default 1 ((T([1], f16),), {})"),
    ]
    orders = [build(order) for order in itertools.permutations(traces)]
    assert orders[0] == orders[1]
    expected = [("exp", 1), ("relu", 9), ("relu", 1), ("relu", 1)]
    assert expected == [(row.op_name.split(".")[1], row.count) for row in orders[0]]
    assert "((T([1], f16),), {})" == orders[0][2].args


def test_traces_without_a_call_are_no_dataset() -> None:
    """The complaint says how to get some."""
    with pytest.raises(BadInput, match="the traces hold no call; record some with `opsmith trace`"):
        build([trace("a")])
    with pytest.raises(BadInput, match="the traces hold no call of a model"):
        origins([trace("a", f"aten.relu.default 0 {RELU}")])


def test_origins_name_each_model_of_each_input() -> None:
    """Under the names that the traces have; synthetic inputs have no origin."""
    args = "((T([4, 5], f16), [0], True), {})"
    traces = [
        trace("b", f"aten.sum.SymInt 1 {args}", f"aten.relu.default 0 {RELU}"),
        trace("a", f"aten.sum.SymInt 7 {args}"),
    ]
    found = [(origin.op_name, origin.model, origin.args) for origin in origins(traces)]
    assert [("aten.sum.SymInt", "a", args), ("aten.sum.SymInt", "b", args)] == found


def test_what_torch_lacks_is_not_measured() -> None:
    """All else is, synthetic inputs too."""
    traces = [trace("a", "aten.no_such.default 1 ((), {})", f"aten.relu.default 0 {RELU}")]
    assert ["relu.default"] == [call.op for _, call in measurable(traces)]
    assert {row.uuid for row in build(traces) if row.runnable} == {uuid for uuid, _ in measurable(traces)}


def test_rows_turn_back_into_a_trace() -> None:
    """With counts; without models."""
    lines = ("aten.exp.default 0 ((T([3], f16),), {})", f"aten.relu.default 4 {RELU}")
    entries: list[TraceEntry] = unbuild(build([trace("a", *lines)]), source="rows.json")
    expected = (
        "Operator: aten.exp.default\ncnt: 0, ((T([3], f16),), {})\n"
        "Operator: aten.relu.default\ncnt: 4, ((T([2], f16),), {})\n"
    )
    assert expected == print_trace(entries)


def test_trace_files_are_found_once_and_in_order(tmp_path: Path) -> None:
    """A folder is searched to the bottom; a file named twice counts once."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "notes.md"):
        (tmp_path / name).touch()
    found = find_traces([tmp_path / "b.txt", tmp_path])
    assert ["b.txt", "a.txt", "c.txt"] == [path.name for path in found]


def test_a_path_without_traces_is_told(tmp_path: Path) -> None:
    """A folder without one, and a name of nothing."""
    with pytest.raises(BadInput, match=r"holds no trace file \(\*.txt\)"):
        find_traces([tmp_path])
    with pytest.raises(BadInput, match="there is no trace file or folder"):
        find_traces([tmp_path / "nothing"])


@pytest.mark.slow
@public
def test_the_public_traces_make_the_public_figures(tmp_path: Path) -> None:
    """155 models; their 180 ops are 177 of today's, and two pairs of inputs are one each."""
    traces = [read_trace(path) for path in find_traces([PUBLIC_TRACES])]
    rows = build(traces)
    models = {model for row in rows for model in row.in_models}
    assert (155, 177, 18_206) == (len(models), len({row.op_name for row in rows}), len(rows))
    assert 18_206 == len({row.uuid for row in rows})
    assert sum(entry.count for each in traces for entry in each.entries) == sum(row.count for row in rows)
    assert (23_513, 180) == (len(origins(traces)), len({origin.op_name for origin in origins(traces)}))

    write_dataset(tmp_path / "a.parquet", rows)
    write_dataset(tmp_path / "b.parquet", build(reversed(traces)))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_models_choose_in_turn_what_is_kept_of_an_op() -> None:
    """A model with many inputs does not crowd out one with few; an op with few inputs keeps them all."""
    traces = [
        trace("many", *[f"aten.relu.default {9 - size} ((T([{size}], f16),), {{}})" for size in range(1, 6)]),
        trace("few", "aten.relu.default 1 ((T([77], f16),), {})", "aten.exp.default 1 ((T([2], f16),), {})"),
    ]
    kept = [row.args for row in most_per_op(build(traces), 3)]
    assert [
        "((T([2], f16),), {})",
        "((T([1], f16),), {})",
        "((T([2], f16),), {})",
        "((T([77], f16),), {})",
    ] == kept


def test_an_input_that_several_models_make_counts_once() -> None:
    """A model whose first choice is taken chooses its next."""
    shared = "aten.relu.default 9 ((T([1], f16),), {})"
    traces = [trace("a", shared), trace("b", shared, "aten.relu.default 1 ((T([2], f16),), {})")]
    assert 2 == len(most_per_op(build(traces), 2))


def test_a_dataset_merges_with_traces() -> None:
    """Counts add up and models join; its times are of another device and stay behind."""
    old = row(args="((T([2], f16),), {})", count=5, in_models=("b",), in_models_count=1, runtime_ms=1.0)
    (merged,) = build([trace("a", "aten.relu.default 3 ((T([2], f16),), {})")], [old])
    assert (8, ("a", "b"), None) == (merged.count, merged.in_models, merged.runtime_ms)


def test_a_dataset_built_of_itself_is_itself() -> None:
    """So a dataset without its traces can be measured on another device."""
    rows = build([trace("a", "aten.relu.default 3 ((T([2], f16),), {})", "aten.exp.default 0 ((T([2], f16),), {})")])
    assert rows == build([], rows)


def test_a_sum_beyond_64_bits_is_refused() -> None:
    """It was a traceback when the file was written."""
    most = 10**18 - 1  # What a trace may say of one model.
    with pytest.raises(BadInput, match="is called more than"):
        build([trace(str(model), f"aten.relu.default {most} {RELU}") for model in range(10)])


@pytest.mark.parametrize(("data", "says"), [(b"\xef\xbb\xbf", None), (b"\xff\xfe", "is in UTF-16")])
def test_a_byte_order_mark_is_no_riddle(tmp_path: Path, data: bytes, says: str | None) -> None:
    """That of UTF-8 is skipped, another one is named."""
    path = tmp_path / "trace.txt"
    path.write_bytes(data + f"Operator: aten.relu.default\ncnt: 1, {RELU}\n".encode())
    if says is None:
        assert 1 == len(read_trace(path).entries)
    else:
        with pytest.raises(BadInput, match=says):
            read_trace(path)
