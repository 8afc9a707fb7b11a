"""Variants ask a recorded call again: what changes, what stays, and whom that must not harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.evaluation_calls import judge

from opsmith.aten.schemas import aten_schemas
from opsmith.calls.live import rebuild
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue, storage_size, tensor_values
from opsmith.core.domains import Integers, Normal
from opsmith.core.op import OpSchema
from opsmith.core.trace import TracedCall
from opsmith.suites.traced_size import result_bytes
from opsmith.suites.valid_inputs import traced_record
from opsmith.suites.variants import argument_variants, layout_variants, probes, shape_variants, value_variants
from opsmith.suites.variants.arguments import combined_arguments
from opsmith.suites.variants.guards import Guards
from opsmith.suites.variants.large import large_variants
from opsmith.suites.variants.results import result_variants
from opsmith.suites.variants.scope import DENSE, LABELS

CPU = torch.device("cpu")


def recorded(function: Any, *args: Any, **kwargs: Any) -> tuple[CallRecord, OpSchema]:
    """A call as a suite records it, and its schema."""
    with CallRecorder(lambda *_: True) as recorder:
        function(*args, **kwargs)
    record = recorder.calls[-1].record
    assert record is not None
    return record, aten_schemas()[record.op]


def tensors(record: CallRecord) -> list[torch.Tensor]:
    """The positional tensors of a call."""
    return [leaf for leaf in rebuild(record, CPU).args if isinstance(leaf, torch.Tensor)]


def values_of(record: CallRecord, schema: OpSchema, seed: int = 1) -> dict[str, CallRecord]:
    """Value variants by label."""
    return dict(value_variants(record, schema, seed))


def test_an_elementwise_op_gets_every_label() -> None:
    """What each label promises is in the values: range, structure, special numbers."""
    record, schema = recorded(torch.ops.aten.gelu.default, torch.randn(64, 33))
    variants = {label: tensors(variant)[0] for label, variant in values_of(record, schema).items()}
    assert set(LABELS) - {"nan", "infinite", "ties"} == set(variants)
    assert bool(((variants["large"].abs() >= 999) & (variants["large"].abs() <= 10001)).all())
    assert 80 < float(variants["huge"].abs().max()) < 91
    assert float(variants["tiny"].abs().max()) <= 1e-6
    assert abs(float(variants["offset"].mean()) - 16) < 1
    assert bool(variants["special"].isnan().any())
    assert {torch.inf, -torch.inf} <= set(variants["special"].flatten().tolist())
    assert 0 < float(variants["denormals"].abs().min()) < torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_labels_hold_for_every_floating_dtype(dtype: torch.dtype) -> None:
    """No label but ``special`` leaves the numbers that a dtype can hold."""
    record, schema = recorded(torch.ops.aten.mul.Tensor, torch.ones(9, 9, dtype=dtype), torch.ones(9, dtype=dtype))
    for label, variant in values_of(record, schema).items():
        assert (label != "special") is all(bool(t.isfinite().all()) for t in tensors(variant))


def test_the_seed_decides_the_values() -> None:
    """The same seed proposes the same values, another one others."""
    record, schema = recorded(torch.ops.aten.sum.dim_IntList, torch.randn(8, 9), [1])
    assert values_of(record, schema) == values_of(record, schema)
    ours, theirs = values_of(record, schema), values_of(record, schema, seed=2)
    assert {True} == {ours[label] != theirs[label] for label in ours}


def test_indices_masks_and_saved_statistics_keep_their_values() -> None:
    """What only some values are valid for is never varied."""
    index, source = torch.tensor([[0, 1], [2, 0]]), torch.randn(2, 2)
    calls = [
        recorded(torch.ops.aten.gather.default, torch.randn(3, 2), 0, index),
        recorded(torch.ops.aten.where.self, torch.rand(2, 2) > 0.5, source, source.clone()),
        recorded(
            torch.ops.aten.native_layer_norm_backward.default,
            *(torch.randn(4, 8), torch.randn(4, 8), [8], torch.randn(4, 1), torch.rand(4, 1)),
            *(torch.randn(8), torch.randn(8), [True, True, True]),
        ),
    ]
    kept = [{1}, {0}, {1, 2, 3, 4, 5}]
    for (record, schema), storages in zip(calls, kept, strict=True):
        for label, variant in values_of(record, schema).items():
            # What is asked on a dimension of its own repeats them.
            if label in DENSE:
                continue
            assert storages <= {n for n, s in enumerate(variant.storages) if s == record.storages[n]}


def test_results_of_out_variants_are_not_inputs() -> None:
    """The memory that an ``out=`` op writes is left as it was recorded."""
    out = torch.empty(5)
    record, schema = recorded(torch.ops.aten.exp.out, torch.randn(5), out=out)
    assert {record.storages[1]} == {variant.storages[1] for variant in values_of(record, schema).values()}


def test_generated_storages_stay_generated() -> None:
    """A traced call may take gigabytes, which never become bytes."""
    value = TensorValue(0, "f32", (4, 8), (8, 1), 0, "cpu")
    record = traced_record(TracedCall(op="relu.default", args=(value,), kwargs={}), seed=1)
    for label, variant in (
        *value_variants(record, aten_schemas()["relu.default"], 1),
        *layout_variants(record, aten_schemas()["relu.default"], 1),
    ):
        assert label in DENSE or isinstance(variant.storages[0], GeneratedStorage)


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether tensors have equal elements, whatever their layout."""
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_layouts_keep_the_values_and_change_the_memory() -> None:
    """A kernel that ignores strides or offsets reads elements of other places."""
    record, schema = recorded(torch.ops.aten.add.Tensor, torch.randn(3, 4), torch.randn(3, 4))
    variants = dict(layout_variants(record, schema, 1))
    assert {"misaligned", "gapped", "padded", "permuted", "expanded"} == set(variants)
    for label, variant in variants.items():
        assert (label != "expanded") is same(tensors(record), tensors(variant))
    first = {label: tensor_values(variant.args)[0] for label, variant in variants.items()}
    assert (1, (4, 1)) == (first["misaligned"].offset % 2, first["misaligned"].strides)
    step = first["gapped"].strides[1]
    assert (4 * step, step) == first["gapped"].strides
    assert 1 == first["padded"].strides[1]
    assert 4 < first["padded"].strides[0] <= 4 + 64
    assert (1, 3) == first["permuted"].strides
    assert 0 in first["expanded"].strides


def test_steps_pads_and_offsets_are_drawn() -> None:
    """A step that is always 2 would be the one that a kernel is written for."""
    record, schema = recorded(torch.ops.aten.neg.default, torch.randn(3, 5, 4))
    drawn = [dict(layout_variants(record, schema, seed)) for seed in range(40)]
    windows = {label: [tensor_values(variants[label].args)[0] for variants in drawn] for label in drawn[0]}
    assert set(range(2, 8)) == {window.strides[-1] for window in windows["gapped"]}
    assert 10 < len({window.strides[0] for window in windows["padded"]})
    assert 10 < len({window.offset for window in windows["misaligned"]})
    assert 5 == len({window.strides for window in windows["permuted"]})


def test_what_is_written_is_laid_out_otherwise_too() -> None:
    """An in-place kernel that takes its argument for dense writes to elements of others."""
    in_place, schema = recorded(torch.ops.aten.add_.Tensor, torch.randn(3, 4), torch.randn(3, 4))
    variants = dict(layout_variants(in_place, schema, 1))
    moved = {label for label, variant in variants.items() if variant.args[0] != in_place.args[0]}
    assert {"misaligned", "gapped", "padded", "permuted"} == moved
    assert {"expanded"} == set(variants) - moved, "two elements cannot be written to one place"
    into, schema = recorded(torch.ops.aten.neg.out, torch.randn(3, 4), out=torch.zeros(3, 4))
    variants = dict(layout_variants(into, schema, 1))
    assert moved == {label for label, variant in variants.items() if variant.kwargs["out"] != into.kwargs["out"]}


def test_running_statistics_and_layout_ops_keep_their_layout() -> None:
    """Where the layout is the answer, another one would be another question; statistics are dense in every model."""
    x, statistics = torch.randn(2, 3, 4), (torch.zeros(3), torch.ones(3))
    norm = torch.ops.aten._native_batch_norm_legit.default
    record, schema = recorded(norm, x, None, None, *statistics, True, 0.1, 1e-5)
    for _, variant in layout_variants(record, schema, 1):
        assert record.args[3:5] == variant.args[3:5]
    indices, offsets = torch.tensor([0, 2, 1]), torch.tensor([0, 2])
    for trusting, schema in (
        recorded(torch.ops.aten.as_strided.default, torch.randn(12), [2, 2], [3, 1]),
        recorded(torch.ops.aten._embedding_bag.default, torch.randn(3, 2), indices, offsets),
        recorded(torch.ops.aten._weight_norm_interface.default, torch.randn(3, 2), torch.randn(3, 1)),
    ):
        assert [] == list(layout_variants(trusting, schema, 1))


def test_no_layout_is_asked_of_what_eager_reads_wrongly() -> None:
    """On a CPU a batch norm with ``out=`` takes its input's strides for those of the result."""
    norm, arguments = torch.ops.aten._native_batch_norm_legit, (None, None, True, 0.5, 1e-5)
    x, given = torch.randn(1, 2, 3), {"out": torch.empty(1, 2, 3)}
    given |= {"save_mean": torch.empty(2), "save_invstd": torch.empty(2)}
    norm.no_stats_out(torch.empty(1, 2, 6)[..., ::2].copy_(x), *arguments, **given)
    assert not torch.allclose(given["out"], norm.no_stats(x, *arguments)[0])  # Else ask for layouts again.
    record, schema = recorded(norm.no_stats_out, x, *arguments, **given)
    assert [] == list(layout_variants(record, schema, 1))
    record, schema = recorded(norm.no_stats, x, *arguments)
    assert {"gapped", "permuted"} <= dict(layout_variants(record, schema, 1)).keys()


def arguments_of(function: Any, *args: Any, seeds: int = 8, **kwargs: Any) -> dict[str, list[Any]]:
    """For each label of arguments what eager answers, over several seeds; None where it refuses."""
    record, schema = recorded(function, *args, **kwargs)
    found: dict[str, list[Any]] = {}
    for seed in range(seeds):
        for label, variant in (*argument_variants(record, schema, seed), *combined_arguments(record, schema, seed)):
            live = rebuild(variant, CPU)
            try:
                found.setdefault(label, []).append((live, function(*live.args, **live.kwargs)))
            except (RuntimeError, IndexError):
                continue
    return found


ATEN = torch.ops.aten
INDICES = torch.tensor([0, 2, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("function", "args", "labels"),
    [
        (ATEN.embedding_dense_backward.default, (torch.randn(6, 4), INDICES, 3, -1, False), {"padding_idx"}),
        (ATEN.embedding_dense_backward.default, (torch.randn(6, 4), INDICES, 3, -1, False), {"scale_grad_by_freq"}),
        (ATEN.clamp.default, (torch.linspace(-2, 2, 9), -0.5, 0.5), {"crossed", "min", "max"}),
        (ATEN.clamp.Tensor, (torch.randn(9), -torch.rand(9), torch.rand(9)), {"crossed"}),
        (ATEN.nan_to_num.default, (torch.randn(40),), {"nan", "posinf", "neginf"}),
        (ATEN.argmax.default, (torch.randn(4, 5),), {"dim", "keepdim"}),
        (ATEN.masked_fill.Scalar, (torch.randn(9), torch.arange(9) > 5, 2.0), {"value"}),
        (ATEN.addmm.default, (torch.randn(3, 5), torch.randn(3, 4), torch.randn(4, 5)), {"alpha", "beta"}),
        (ATEN.addmv.default, (torch.randn(3), torch.randn(3, 4), torch.randn(4)), {"alpha", "beta"}),
        (ATEN.add.Tensor, (torch.randn(9), torch.randn(9)), {"alpha"}),
        (ATEN.sum.dim_IntList, (torch.randn(4, 5), [0]), {"dim", "keepdim", "dtype"}),
        (
            ATEN.avg_pool2d.default,
            (torch.randn(2, 9, 9), [3, 3], [2, 2], [1, 1]),
            {"count_include_pad", "divisor_override"},
        ),
        (ATEN.nll_loss_forward.default, (torch.randn(6, 3), INDICES, None, 1, -100), {"reduction"}),
        (ATEN.tril.default, (torch.randn(5, 5),), {"diagonal"}),
        (ATEN.var.correction, (torch.randn(5, 5), [0]), {"correction", "dim", "keepdim"}),
        (ATEN.softplus.default, (torch.linspace(-9, 9, 19),), {"beta", "threshold"}),
        (ATEN.roll.default, (torch.randn(5, 5), [1, 2], [0, 1]), {"shifts"}),
        (ATEN.constant_pad_nd.default, (torch.randn(3, 3), [1, 1], 0.0), {"value"}),
    ],
)
def test_each_argument_makes_a_difference(function: Any, args: tuple[Any, ...], labels: set[str]) -> None:
    """A kernel that leaves one out, or takes its default for it, is wrong in some variant of that name."""
    torch.manual_seed(0)
    found = arguments_of(function, *args)
    for label in labels:
        assert label in found, set(found)
        assert any(not equal(answer, function(*args)) for _, answer in found[label])


def equal(one: Any, other: Any) -> bool:
    """Whether two answers are the same, in dtypes too."""
    pairs = zip(*([answer] if isinstance(answer, torch.Tensor) else answer for answer in (one, other)), strict=True)
    return all(
        left.dtype is right.dtype and left.shape == right.shape and torch.equal(left, right) for left, right in pairs
    )


def test_numbers_that_replace_nan_and_infinities_meet_them() -> None:
    """``nan_to_num(posinf=7)`` of finite numbers is what any ``posinf`` gives."""
    found = arguments_of(ATEN.nan_to_num.default, torch.randn(64))
    for live, _ in (*found["posinf"], *found["arguments"]):
        assert bool(live.args[0].isnan().any())
        assert {torch.inf, -torch.inf} <= set(live.args[0].tolist())


def test_the_first_dimension_is_asked_before_others() -> None:
    """A kernel may take 0 for nothing given."""
    record, schema = recorded(ATEN.min.dim, torch.randn(5, 4, 3), 1)
    for seed in range(4):
        found = [variant for label, variant in argument_variants(record, schema, seed) if label == "dim"]
        assert 0 == rebuild(found[0], CPU).args[1]
    assert 1 < len({rebuild(dict(argument_variants(record, schema, seed))["dim"], CPU).args[1] for seed in range(4)})


def test_several_arguments_change_in_one_call() -> None:
    """``argmax(None, keepdim=True)`` is asked of neither argument alone."""
    found = arguments_of(ATEN.argmax.default, torch.randn(4, 5), None, False, seeds=20)
    assert (None, True) in {live.args[1:] for live, _ in found["keepdim"]}
    both = {live.args[1:] for live, _ in found["arguments"]}
    assert both
    assert all(dim is not None and keepdim for dim, keepdim in both)
    found = arguments_of(ATEN.addmm.default, torch.randn(3, 5), torch.randn(3, 4), torch.randn(4, 5))
    assert {2} == {len({"alpha", "beta"} & live.kwargs.keys()) for live, _ in found["arguments"]}
    assert 0 in {live.kwargs["beta"] for live, _ in found["beta"]}


def test_filled_numbers_are_infinite_too() -> None:
    """A mask is filled with minus infinity in every attention."""
    found = arguments_of(ATEN.masked_fill.Scalar, torch.randn(9), torch.rand(9) > 0.5, 2.0)
    assert {torch.inf, -torch.inf} <= {live.args[2] for live, _ in found["value"]}


def test_a_mean_of_no_element_is_asked() -> None:
    """It is NaN, and a sum of none is 0."""
    record, schema = recorded(ATEN.mean.dim, torch.randn(4, 5), [1])
    variants = [variant for label, variant in shape_variants(record, schema, 1) if label == "empty"]
    assert {(0, 5), (4, 0)} == {t.shape for variant in variants for t in tensor_values(variant.args)}


def test_a_dimension_that_holds_places_stays() -> None:
    """Along another one an index points outside, which ends the context of a GPU."""
    assert "dim" not in arguments_of(ATEN.gather.default, torch.randn(3, 2), 0, torch.tensor([[0, 1], [2, 0]]))


def large_of(function: Any, *args: Any, seeds: int = 20) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the first tensor of large variants, by label."""
    record, schema = recorded(function, *args)
    found: dict[str, list[tuple[int, ...]]] = {}
    for seed in range(seeds):
        for label, variant in large_variants(record, schema, seed):
            found.setdefault(label, []).append(tensor_values(variant.args)[0].shape)
    return found


def test_large_calls_leave_the_range_of_blocks_and_grids() -> None:
    """A counter of 20 bits, a grid of 65,535 blocks or a scan of one block are right on every small call."""
    for function, args, along in (
        (ATEN.add.Tensor, (torch.randn(3, 4), torch.randn(4)), None),
        (ATEN.cumsum.default, (torch.randn(3, 4), 1), 1),
        (ATEN._softmax.default, (torch.randn(3, 4), 0, False), 0),
        (ATEN.sum.dim_IntList, (torch.randn(3, 4), [-1]), 1),
    ):
        found = large_of(function, *args)
        assert {"vast", "many_rows"} | ({"long_row"} if along is not None else set()) == set(found)
        assert all(1 << 21 < shape[0] * shape[1] < 1 << 22 for shape in found["vast"])
        assert all(1 << 16 < max(shape) <= 1 << 17 and min(shape) <= 7 for shape in found["many_rows"])
        assert along is None or all(1 << 16 < shape[along] <= 1 << 18 for shape in found["long_row"])
        assert all(15 < len(set(shapes)) for shapes in found.values())


def test_what_broadcasts_goes_on_doing_so_on_large_tensors() -> None:
    """Sizes of 1 stay, and missing dimensions stay missing."""
    record, schema = recorded(ATEN.add.Tensor, torch.randn(3, 4), torch.randn(3, 1))
    for _, variant in large_variants(record, schema, 1):
        one, other = tensor_values(variant.args)
        assert (one.shape[0], 1) == other.shape


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (ATEN.sum.dim_IntList, ([0],)),
        (ATEN.prod.dim_int, (0,)),
        (ATEN.cumsum.default, (0,)),
        (ATEN.cumprod.default, (0,)),
        (ATEN.linalg_vector_norm.default, (2, [0])),
    ],
)
def test_sums_of_large_tensors_are_exact_in_any_order(function: Any, args: tuple[Any, ...]) -> None:
    """Where two right kernels add up in two orders, a million roundings would tell them apart."""
    record, schema = recorded(function, torch.randn(5), *args)
    for _, variant in large_variants(record, schema, 1):
        [x] = tensors(variant)
        exact = function(x.double(), *args)
        assert torch.equal(exact.float(), function(x, *args))
        assert float(exact.abs().max()) <= 1 << 24


@pytest.mark.parametrize(("left", "right"), [((10, 5), (5, 10)), ((5, 5), (5, 5))], ids=["outer sizes", "all sizes"])
def test_no_product_has_a_large_square(left: tuple[int, int], right: tuple[int, int]) -> None:
    """Rows and columns of one size grow together: 131,072 of each are 64 GiB."""
    record, schema = recorded(ATEN.mm.default, torch.ones(left), torch.ones(right))
    for seed in range(12):
        for _, variant in large_variants(record, schema, seed):
            rows, columns = variant.args
            assert isinstance(rows, TensorValue)
            assert isinstance(columns, TensorValue)
            assert rows.shape[0] * columns.shape[1] <= 1 << 21


def test_a_size_that_is_an_outputs_too_makes_no_large_result() -> None:
    """Three channels and an output of 3 x 3 x 3 would become 127 channels and 127 x 127 x 127."""
    record, schema = recorded(ATEN._adaptive_avg_pool3d.default, torch.randn(2, 3, 4, 4, 4), [3, 3, 3])
    for seed in range(10):
        for _, variant in shape_variants(record, schema, seed):
            assert result_bytes(TracedCall(op=variant.op, args=variant.args, kwargs={})) < 1 << 20


def test_one_size_of_a_product_is_large() -> None:
    """Rows, columns or the sum between them, which is exact in any order."""
    record, schema = recorded(ATEN.addmm.default, torch.randn(5), torch.randn(3, 4), torch.randn(4, 5))
    sizes = set()
    for seed in range(12):
        [(label, variant)] = large_variants(record, schema, seed)
        _, left, right = tensor_values(variant.args)
        sizes |= {place for place, size in enumerate((*left.shape, right.shape[1])) if size > 1 << 16}
        live, wide = rebuild(variant, CPU), rebuild(variant, CPU)
        exact = ATEN.addmm.default(*(tensor.double() for tensor in wide.args))
        assert ("many_rows", True) == (label, torch.equal(exact.float(), ATEN.addmm.default(*live.args)))
    assert {0, 1, 2} == sizes


PLACES = torch.zeros(2, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    "call",
    [
        (ATEN.gather.default, torch.randn(3, 4), 0, PLACES),
        (ATEN.take.default, torch.randn(3, 4), PLACES),
        (ATEN.embedding.default, torch.randn(5, 4), PLACES),
        (ATEN.index_select.default, torch.randn(3, 4), 1, PLACES[0]),
    ],
    ids=lambda call: str(call[0]),
)
@pytest.mark.slow
def test_copies_from_places_that_indices_name_are_asked_for_many_numbers(call: tuple[Any, ...]) -> None:
    """Of few numbers none lies in a narrow band in which a kernel is wrong."""
    op, *args = call
    record, schema = recorded(op, *args)
    for seed in range(4):
        ((_, large),) = large_variants(record, schema, seed)
        live = rebuild(large, torch.device("cpu"))
        assert op(*live.args, **live.kwargs).numel() > 1 << 16


def test_only_cheap_ops_are_asked_on_large_tensors() -> None:
    """The sums of a normalisation depend on their order; half types hold no running sums."""
    assert {} == large_of(ATEN.native_layer_norm.default, torch.randn(3, 4), [4], None, None, 1e-5)
    assert {} == large_of(ATEN.cumsum.default, torch.randn(3, 4).bfloat16(), 1)
    assert {} == large_of(ATEN.scatter_add.default, torch.randn(3, 4), 0, PLACES, torch.randn(2, 4))


def test_large_calls_come_first_and_only_where_asked_for() -> None:
    """They cost most, and an interpreter has no time for them."""
    record, schema = recorded(ATEN.add.Tensor, torch.randn(3, 4), torch.randn(4))
    assert not {"vast", "many_rows"} & {label for label, _ in probes([record], schema, 1, 40)}
    chosen = [label for label, _ in probes([record], schema, 1, 8, large=2)]
    assert (8, {"vast", "many_rows"}) == (len(chosen), set(chosen[:2]))


def results_of(function: Any, *args: Any, out: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """For each label what ``out=`` was given as, and what eager made of it."""
    record, schema = recorded(function, *args, out=out)
    found = {}
    for label, variant in result_variants(record, schema, 1):
        live, before = rebuild(variant, CPU), rebuild(variant, CPU)
        found[label] = before.kwargs["out"], function(*live.args, **live.kwargs)
    return found


def test_results_get_another_size_or_dtype() -> None:
    """Eager resizes what it is given and casts its result into it."""
    x = torch.randn(3, 4)
    found = results_of(torch.ops.aten.exp.out, x, out=torch.empty(3, 4))
    assert {"emptied", "refitted", "cast"} == set(found)
    assert 0 == found["emptied"][0].numel()
    assert found["refitted"][0].numel()
    assert (3, 4) not in {found["emptied"][0].shape, found["refitted"][0].shape}
    assert [(3, 4)] * 3 == [tuple(result.shape) for _, result in found.values()]
    assert torch.bfloat16 is found["cast"][1].dtype
    assert "cast" not in results_of(torch.ops.aten.mm.out, x, x.t(), out=torch.empty(3, 3))


def test_only_out_overloads_have_results_to_vary() -> None:
    """An in-place argument is its own result."""
    record, schema = recorded(torch.ops.aten.exp_.default, torch.randn(3))
    assert [] == list(result_variants(record, schema, 1))


def test_sizes_that_belong_together_change_together() -> None:
    """A product's inner dimensions, a norm's weight and a broadcast tensor follow, so that eager answers."""
    calls = [
        recorded(torch.ops.aten.mm.default, torch.randn(5, 6), torch.randn(6, 7)),
        recorded(torch.ops.aten.native_layer_norm.default, torch.randn(5, 6), [6], torch.randn(6), None, 1e-5),
        recorded(torch.ops.aten.mul.Tensor, torch.randn(5, 6), torch.randn(6)),
        recorded(torch.ops.aten.sum.dim_IntList, torch.randn(5, 6), [1], True),
    ]
    for record, schema in calls:
        variants = list(shape_variants(record, schema, 1))
        assert {"single", "resized"} <= {label for label, _ in variants}
        for _, variant in variants:
            live = rebuild(variant, CPU)
            getattr(getattr(torch.ops.aten, schema.packet), schema.name.rpartition(".")[2])(*live.args, **live.kwargs)


def test_generated_indices_fit_the_new_sizes() -> None:
    """Values of resized calls follow their domains."""
    record, schema = recorded(torch.ops.aten.clamp.default, torch.randn(5), 0.0, 1.0)
    domains = [
        v.storages[0].domain for _, v in shape_variants(record, schema, 1) if not isinstance(v.storages[0], bytes)
    ]
    assert domains
    assert not any(isinstance(domain, Normal | Integers) for domain in domains)


def test_probes_are_limited_and_cover_the_labels() -> None:
    """Values, layouts and sizes take turns; with room for all, each label of values occurs."""
    schema = aten_schemas()["add.Tensor"]
    tensor, row = torch.randn(4, 5), torch.randn(5)
    records = [recorded(torch.ops.aten.add.Tensor, tensor, row, alpha=alpha)[0] for alpha in (1, 2, -1)]
    assert [] == probes(records, schema, 1, 0)
    few, many = probes(records, schema, 1, 4), probes(records, schema, 1, 40)
    assert 4 == len(few)
    assert 40 == len(many)
    assert set(LABELS) - {"nan", "infinite", "ties", "sweep"} <= {label for label, _ in many}
    assert {1, 2, -1} < {record.kwargs.get("alpha", 1) for _, record in many}
    assert probes(records, schema, 1, 9) == probes(records, schema, 1, 9)


def test_every_label_of_an_op_is_asked_before_one_is_asked_again() -> None:
    """Of all kinds of variants: those with few labels wait for those with many."""
    record, schema = recorded(torch.scatter_add, torch.randn(4, 5), 1, torch.randint(5, (4, 5)), torch.randn(4, 5))
    labels = [label for label, _ in probes([record], schema, 3, 200)]
    first = labels[: len(set(labels))]
    assert len(set(first)) == len(first)


def test_what_sees_most_comes_first() -> None:
    """A sweep has every value that the other labels have."""
    record, schema = recorded(torch.nn.functional.silu, torch.randn(40, 30))
    values = [label for label, _ in probes([record], schema, 3, 200) if label in LABELS]
    assert {"sweep", "boundaries", "special", "denormals"} == set(values[:4])


def test_a_nan_is_in_the_factors_and_not_in_what_is_added_to_the_product() -> None:
    """There it would hide what becomes of one in the product; an infinity there hides nothing."""
    record, schema = recorded(torch.baddbmm, torch.randn(2, 4, 4), torch.randn(2, 4, 4), torch.randn(2, 4, 4))
    found = values_of(record, schema)
    assert [False, True, True] == [bool(tensor.isnan().any()) for tensor in tensors(found["nan"])]
    assert [True, False, False] == [bool(tensor.isinf().any()) for tensor in tensors(found["infinite"])]


@pytest.mark.parametrize("function", [torch.bucketize, lambda x, edges: torch.searchsorted(edges, x)])
def test_numbers_that_are_looked_up_are_found(function: Any) -> None:
    """Which side of an equal one they belong to is asked both ways."""
    record, schema = recorded(function, torch.randn(50), torch.linspace(-2, 2, 9))
    found = [each for _, each in value_variants(record, schema, 1) if "right" in each.kwargs]
    assert [False, True] == [each.kwargs["right"] for each in found]
    for each in found:
        one, other = sorted(tensors(each), key=len)
        assert bool(torch.isin(other, one).all())


def test_probes_of_nothing_are_nothing() -> None:
    """An op without recorded calls, or one whose results are random values only, ends the search."""
    assert [] == probes([], aten_schemas()["relu.default"], 1, 5)


def guarded(record: CallRecord, schema: OpSchema, seed: int = 1) -> CallRecord:
    """The call with guard elements around its tensors."""
    return Guards(schema, seed).around(record)


def test_guards_lie_around_every_tensor_and_change_no_value() -> None:
    """A kernel that writes one element too many overwrites memory of the call's, which is compared."""
    record, schema = recorded(torch.ops.aten.add_.Tensor, torch.randn(3, 4), torch.randn(4, 6)[1:, 1:5])
    for seed in range(8):
        variant = guarded(record, schema, seed)
        assert same(tensors(record), tensors(variant))
        for before, after, storage in zip(record.args, variant.args, variant.storages, strict=True):
            assert isinstance(before, TensorValue)
            assert isinstance(after, TensorValue)
            assert (before.shape, before.strides) == (after.shape, after.strides)
            assert after.offset > before.offset
            grown = storage_size(storage) - storage_size(record.storages[before.storage])
            assert grown > 4 * (after.offset - before.offset)


def test_how_far_guards_reach_follows_from_the_seed() -> None:
    """A known offset would be a map of what is safe; most calls are aligned, as most tensors are."""
    record, schema = recorded(torch.ops.aten.add_.Tensor, torch.randn(3, 4), torch.randn(3, 4))
    offsets = [[t.offset for t in tensor_values(guarded(record, schema, seed).args)] for seed in range(64)]
    assert len({tuple(two) for two in offsets}) > 16
    assert [] == [two for two in offsets if (two[0] % 16 == 0) is not (two[1] % 16 == 0)]
    assert 32 < sum(two[0] % 16 == 0 for two in offsets) < 64


def test_elements_next_to_a_tensor_are_changed_by_what_works_in_place() -> None:
    """``relu_`` of a positive number that is not the kernel's to write would leave no trace."""
    for op in (torch.relu, torch.abs, torch.neg, torch.floor, torch.zeros_like, torch.sigmoid):
        record, schema = recorded(torch.ops.aten.relu_.default, torch.randn(5, dtype=torch.float64))
        [value], [storage] = tensor_values(guarded(record, schema).args), guarded(record, schema).storages
        assert isinstance(storage, bytes)
        memory = torch.frombuffer(bytearray(storage), dtype=torch.float64)
        neighbours = memory[[value.offset - 1, value.offset + 5]]
        assert not bool((op(neighbours) == neighbours).any())


def test_what_has_no_elements_or_asks_for_its_layout_is_not_guarded() -> None:
    """An empty ``out=`` is resized, and ``as_strided`` counts from the beginning of the storage."""
    record, schema = recorded(torch.ops.aten.neg.out, torch.randn(3), out=torch.empty(0))
    assert (0, b"") == (guarded(record, schema).kwargs["out"].offset, guarded(record, schema).storages[1])  # type: ignore[union-attr]
    record, schema = recorded(torch.ops.aten.as_strided.default, torch.randn(12), [2, 2], [3, 1])
    assert record == guarded(record, schema)


def test_generated_tensors_are_guarded_too() -> None:
    """Their storages grow, and what lies around them is drawn like them."""
    value = TensorValue(0, "f32", (4, 8), (8, 1), 0, "cpu")
    schema = aten_schemas()["relu_.default"]
    variant = guarded(traced_record(TracedCall(op="relu_.default", args=(value,), kwargs={}), seed=1), schema)
    [moved], [storage] = tensor_values(variant.args), variant.storages
    assert isinstance(storage, GeneratedStorage)
    assert storage.offset == moved.offset > 0
    assert storage.size_bytes > 4 * (moved.offset + 32)


# ---------------------------------------------------------------- kernels


def layer_norm(x_MN: torch.Tensor) -> torch.Tensor:  # noqa: N803 - a shape suffix
    """Two passes, in another order than eager's."""
    centred_MN = x_MN - x_MN.mean(-1, keepdim=True)  # noqa: N806 - a shape suffix
    return centred_MN * torch.rsqrt(centred_MN.square().mean(-1, keepdim=True) + 1e-5)


def single_pass_layer_norm(x_MN: torch.Tensor) -> torch.Tensor:  # noqa: N803 - a shape suffix
    """The variance as a mean of squares less a square of a mean."""
    mean = x_MN.mean(-1, keepdim=True)
    return (x_MN - mean) * torch.rsqrt(x_MN.square().mean(-1, keepdim=True) - mean.square() + 1e-5)


def softmax(x_MN: torch.Tensor) -> torch.Tensor:  # noqa: N803 - a shape suffix
    """With the row's maximum taken off."""
    e_MN = (x_MN - x_MN.amax(-1, keepdim=True)).exp()  # noqa: N806 - a shape suffix
    return e_MN / e_MN.sum(-1, keepdim=True)


def naive_softmax(x_MN: torch.Tensor) -> torch.Tensor:  # noqa: N803 - a shape suffix
    """Without: overflows."""
    return x_MN.exp() / x_MN.exp().sum(-1, keepdim=True)


def verdicts(function: Any, kernel: Callable[[torch.Tensor], torch.Tensor], *rest: Any, keep: int) -> dict[str, bool]:
    """For each value label whether a kernel of the first argument passes on it."""
    record, schema = recorded(function, torch.randn(64, 256), *rest)

    def judged() -> Iterator[tuple[str, bool]]:
        for label, variant in value_variants(record, schema, 3):
            args = rebuild(variant, CPU).args
            results = function(*args)
            answer = (kernel(args[0]), *results[1:]) if keep else kernel(args[0])
            yield label, judge(function, args, answer).passed

    return dict(judged())


@pytest.mark.parametrize(
    ("op", "honest", "wrong", "rest", "caught"),
    [
        ("native_layer_norm", layer_norm, single_pass_layer_norm, ([256], None, None, 1e-5), "offset"),
        ("_softmax", softmax, naive_softmax, (-1, False), "huge"),
        ("exp", lambda x: x.double().exp().float(), lambda x: x.clamp(-9, 9).exp(), (), "large"),
        ("log", lambda x: x.double().log().float(), lambda x: (x + 1e-9).log(), (), "tiny"),
        ("relu", lambda x: torch.where(x <= 0, torch.zeros_like(x), x), lambda x: x.clamp(0, 6), (), "large"),
    ],
)
def test_values_expose_what_random_numbers_hide(
    op: str, honest: Any, wrong: Any, rest: tuple[Any, ...], caught: str
) -> None:
    """An honest kernel passes every label; one that is right near 1 only fails the label that it is made for."""
    torch.manual_seed(0)
    function = getattr(torch.ops.aten, op).default
    keep = len(function._schema.returns) > 1
    assert {True} == set(verdicts(function, honest, *rest, keep=keep).values())
    assert verdicts(function, wrong, *rest, keep=keep)[caught] is False


def test_looking_nothing_up_proposes_no_boundaries() -> None:
    """OpInfo has calls without numbers; they must not cost the op all of its variants."""
    record, schema = recorded(torch.bucketize, torch.randn(0), torch.linspace(-2, 2, 9))
    assert not any("right" in each.kwargs for _, each in value_variants(record, schema, 1))


def test_filters_of_some_channels_are_no_numbers() -> None:
    """A product that passes over NaN shows; a NaN of the input may spread over what a kernel computes together."""
    record, schema = recorded(
        torch.ops.aten.convolution.default,
        *(torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    )
    image, weight = tensors(values_of(record, schema)["nan"])
    assert not bool(image.isnan().any())
    assert 2 == int(weight.isnan().flatten(1).all(1).sum()) == int(weight.isnan().flatten(1).any(1).sum())


@pytest.mark.parametrize(("dtype", "level"), [(torch.bfloat16, 248), (torch.float16, 1500)])
def test_a_variance_in_a_half_type_meets_rows_that_hardly_move(dtype: torch.dtype, level: int) -> None:
    """In float32, the difference of means of squares is lost there."""
    record, schema = recorded(torch.ops.aten.var.correction, torch.randn(8, 250).to(dtype), [1])
    (x,) = tensors(values_of(record, schema)["offset"])
    assert [level, level + 1] == x.unique().tolist()


def test_a_label_is_asked_of_a_larger_call_first() -> None:
    """Of a scalar, no NaN is left out of a row."""
    small, schema = recorded(torch.ops.aten.index_fill.int_Scalar, torch.randn(1), 0, torch.tensor([0]), 0.0)
    large, _ = recorded(torch.ops.aten.index_fill.int_Scalar, torch.randn(5, 5), 0, torch.tensor([0]), 0.0)
    for seed in range(4):
        found = dict(reversed(probes([small, large], schema, seed, 24)))
        assert bool(tensors(found["nan"])[0].isnan().any())
        assert [5, 5] == list(tensors(found["nan"])[0].shape)


def test_defaults_are_left_to_the_kernel() -> None:
    """A suite that always gives ``alpha`` never asks which default a kernel has."""
    record, schema = recorded(torch.ops.aten.elu.default, torch.randn(5, 5), 0.5, 2.0)
    found = dict(argument_variants(record, schema, 1))
    assert 1 == len(found["defaults"].args)


def test_a_gradient_is_asked_from_the_result_too() -> None:
    """Frameworks hand it either; eager's own samples are of one kind."""
    record, schema = recorded(
        torch.ops.aten.elu_backward.default, torch.randn(5, 5), 1.0, 1.0, 1.0, False, torch.randn(5, 5)
    )
    assert any(each.args[4] is True for label, each in argument_variants(record, schema, 1) if label == "is_result")


def test_a_replacement_of_nan_may_be_zero() -> None:
    """Zero is no None."""
    record, schema = recorded(torch.ops.aten.nan_to_num.default, torch.randn(5, 5), None, 1.0, 2.0)
    asked = [each.args[3] for label, each in argument_variants(record, schema, 1) if label == "neginf"]
    assert 0.0 in asked


def test_numbers_that_elements_are_compared_with_are_held_by_the_half_type() -> None:
    """A kernel may compare in float32, or in the type: both are right."""
    record, schema = recorded(torch.ops.aten.threshold.default, torch.randn(8, 8).bfloat16(), 0.3, 7.1)
    for _, each in probes([record], schema, 1, 24):
        for number in each.args[1:]:
            assert isinstance(number, (int, float))
            assert number == float(torch.tensor(number).bfloat16())


def test_a_label_is_asked_of_a_call_without_empty_tensors_first() -> None:
    """A product over no element has no NaN in its factors."""
    empty, schema = recorded(ATEN.bmm.default, torch.randn(1, 0, 3), torch.randn(1, 3, 50))
    full, _ = recorded(ATEN.bmm.default, torch.randn(9, 5, 5), torch.randn(9, 5, 5))
    for seed in range(8):
        found = dict(reversed(probes([empty, full], schema, seed, 24)))
        assert bool(tensors(found["nan"])[0].isnan().any())


def test_one_side_of_a_square_changes_alone_where_it_may() -> None:
    """A kernel that takes one side for the other is right on squares only; factors of a product change together."""
    square = torch.randn(5, 5)
    for call in (
        (ATEN.min.dim, square, 1),
        (ATEN.mul.Tensor, square, square + 1),
        (ATEN._softmax.default, square, 1, False),
    ):
        record, schema = recorded(*call)
        shapes = {tensor_values(variant.args)[0].shape for _, variant in shape_variants(record, schema, 1)}
        assert all(5 in shape and shape != (5, 5) for shape in shapes)
        assert {0, 1} == {shape.index(5) for shape in shapes}
    record, schema = recorded(ATEN.mm.default, square, square + 1)
    assert all(len({*tensor_values(v.args)[0].shape}) == 1 for _, v in shape_variants(record, schema, 1))


def test_losses_that_add_nothing_up_are_asked_on_large_tensors() -> None:
    """Where they do, of a million roundings two right kernels make different ones."""
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    for reduction, large in ((0, True), (1, False), (2, False)):
        record, schema = recorded(ATEN.mse_loss.default, x, y, reduction)
        assert large is bool(list(large_variants(record, schema, 1)))
    record, schema = recorded(ATEN.mse_loss.default, x, y)
    assert [] == list(large_variants(record, schema, 1))


def test_the_gradient_of_what_is_cut_off_meets_nan() -> None:
    """Where eager selects, NaN does not pass."""
    record, schema = recorded(torch.ops.aten.threshold_backward.default, torch.randn(8, 8), torch.randn(8, 8), 0)
    gradient, other = tensors(values_of(record, schema)["nan"])
    assert bool(gradient.isnan().any())
    assert not bool(other.isnan().any())
