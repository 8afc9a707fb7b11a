"""Valid values for traced calls: what each argument holds, and that no index leaves its range."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.renames import current
from opsmith.aten.schemas import overload
from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord, storage_size
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
from opsmith.core.trace import TracedCall
from opsmith.suites.valid_inputs import CannotRebuild, domains, traced_record
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall, stem_of
from opsmith.suites.valid_inputs.indices import INDEX_RULES
from opsmith.suites.valid_inputs.values import COMMON_RULES, VALUE_RULES
from opsmith.traces.grammar import parse_call
from opsmith.traces.trace_file import find_traces, read_trace

PUBLIC_TRACES = Path(__file__).parents[3] / "shared/data/traces"
CPU = torch.device("cpu")
#: Tensors of both signs and small whole numbers: what an argument without a rule holds.
ANYTHING, ANY_INTEGER, SINGLE = Normal(), Integers(-10, 11), Magnitude(0.25, 4, signed=True)


def run(record: CallRecord) -> list[Any]:
    """The leaves of what eager returns on the CPU."""
    live = rebuild(record, CPU)
    with torch.no_grad():
        return tree_leaves(overload(record.op)(*live.args, **live.kwargs))


def tensors(op: str, text: str, *, seed: int = 1) -> list[torch.Tensor]:
    """The tensors of a call that is written as in a trace, in order."""
    live = rebuild(traced_record(parse_call(op, text), seed=seed), CPU)
    return [leaf for leaf in tree_leaves((live.args, live.kwargs)) if isinstance(leaf, torch.Tensor)]


# fmt: off
EXAMPLES: list[tuple[str, str, list[Domain]]] = [
    # Places along one dimension.
    ("gather.default", "((T([5, 7], f32), 1, T([5, 3], i64)), {})", [ANYTHING, Integers(0, 7)]),
    ("gather.default", "((T([5, 7], f32), -2, T([5, 3], i64)), {})", [ANYTHING, Integers(0, 5)]),
    ("scatter.src", "((T([5, 7], f32), 1, T([5, 3], i64), T([5, 3], f32)), {})",
     [ANYTHING, Distinct(7, (1,)), ANYTHING]),
    ("scatter.value", "((T([5, 7], f32), 1, T([5, 3], i64), 1.5), {})", [ANYTHING, Integers(0, 7)]),
    ("scatter_add.default", "((T([9], f32), 0, T([40], i64), T([40], f32)), {})",
     [ANYTHING, Integers(0, 9), ANYTHING]),
    ("scatter_reduce.two", "((T([9], f32), 0, T([40], i64), T([40], f32), 'amax'), {})",
     [ANYTHING, Integers(0, 9), ANYTHING]),
    ("index_select.default", "((T([5, 7], f32), 1, T([30], i64)), {})", [ANYTHING, Integers(0, 7)]),
    ("index_add.default", "((T([5, 7], f32), 0, T([30], i64), T([30, 7], f32)), {})",
     [ANYTHING, Integers(0, 5), ANYTHING]),
    ("index_copy.default", "((T([5, 7], f32), 0, T([3], i64), T([3, 7], f32)), {})",
     [ANYTHING, Distinct(5, (0,)), ANYTHING]),
    ("take.default", "((T([5, 7], f32), T([9], i64)), {})", [ANYTHING, Integers(0, 35)]),
    # Places in several dimensions.
    ("index.Tensor", "((T([5, 7], f32), [None, T([3, 3], i64)]), {})", [ANYTHING, Integers(0, 7)]),
    ("index.Tensor", "((T([5, 7, 2], f32), [T([5, 7], b8), T([], i64)]), {})",
     [ANYTHING, Mask(0.5), Integers(0, 2)]),
    ("index_put.default", "((T([5, 7], f32), [T([9], i64)], T([9, 7], f32), True), {})",
     [ANYTHING, Integers(0, 5), ANYTHING]),
    ("index_put_.default", "((T([5, 7], f32), [T([20], i64), T([20], i64)], T([20], f32)), {})",
     [ANYTHING, Distinct(35, (0,), 7, 5), Distinct(35, (0,), 1, 7), ANYTHING]),
    ("index_put_.default", "((T([5, 7], f32), [T([5, 1], i64), T([3], i64)], T([5, 3], f32)), {})",
     [ANYTHING, Distinct(5, (0, 1)), Distinct(7, (0,)), ANYTHING]),
    ("index_put.default", "((T([5, 7], f32), [T([5, 7], b8)], T([11], f32)), {})", [ANYTHING, Subset(11), ANYTHING]),
    ("masked_scatter.default", "((T([5, 7], f32), T([5, 7], b8), T([10], f32)), {})",
     [ANYTHING, Subset(10), ANYTHING]),
    # Tables of embeddings.
    ("embedding.default", "((T([50, 8], f32), T([4, 6], i64), 0), {})", [ANYTHING, Integers(0, 50)]),
    ("embedding_dense_backward.default", "((T([4, 6, 8], f32), T([4, 6], i64), 50, -1, False), {})",
     [ANYTHING, Integers(0, 50)]),
    ("_embedding_bag.default", "((T([50, 8], f32), T([60], i64), T([16], i64), False, 0, True, T([60], f32)), {})",
     [ANYTHING, Integers(0, 50), Segments(60, 16, SegmentForm.STARTS), ANYTHING]),
    ("_embedding_bag_dense_backward.default",
     "((T([16, 8], f32), T([60], i64), T([60], i64), T([16], i64), T([16, 8], i64), 50, False, 2, None), {})",
     [ANYTHING, Integers(0, 50), Segments(60, 16, SegmentForm.NUMBERS), Segments(60, 16, SegmentForm.SIZES),
      Integers(0, 50)]),
    # Classes and sequences.
    ("nll_loss_forward.default", "((T([40, 9], f32), T([40], i64), None, 1, -100), {})",
     [Probabilities(1, logarithms=True), Targets(9, -100)]),
    ("nll_loss_backward.default", "((T([], f32), T([40, 9], f32), T([40], i64), None, 1, 3, T([], f32)), {})",
     [Magnitude(90, 1440, signed=True), Probabilities(1, logarithms=True), Targets(9, 3), Integers(35, 36)]),
    ("mse_loss_backward.default", "((T([], f32), T([40, 9], f32), T([40, 9], f32), 1), {})",
     [Magnitude(90, 1440, signed=True), ANYTHING, ANYTHING]),
    ("nll_loss2d_forward.default", "((T([2, 9, 4, 4], f32), T([2, 4, 4], i64), None, 1, -100), {})",
     [Probabilities(1, logarithms=True), Targets(9, -100)]),
    ("cross_entropy_loss.default", "((T([40, 9], f32), T([40], i64), T([9], f32)), {})",
     [ANYTHING, Targets(9, -100), Magnitude(0.5, 2)]),
    ("cross_entropy_loss.default", "((T([40, 9], f32), T([40, 9], f32)), {})", [ANYTHING, Probabilities(1)]),
    ("take_along_dim.default", "((T([5, 7], f32), T([5, 3], i64), 1), {})", [ANYTHING, Integers(0, 7)]),
    ("_ctc_loss.default", "((T([12, 2, 5], f32), T([2, 3], i64), [12, 11], [3, 2], 0, False), {})",
     [Probabilities(2, logarithms=True), Integers(1, 5)]),
    ("_pack_padded_sequence.default", "((T([12, 3, 5], f32), T([3], i64), False), {})",
     [ANYTHING, Ordered(1, 12, descending=True)]),
    ("repeat_interleave.Tensor", "((T([8], i64),), {'output_size': 20})", [Segments(20, 8, SegmentForm.SIZES)]),
    ("repeat_interleave.Tensor", "((T([8], i64),), {})", [Integers(0, 4)]),
    ("bincount.default", "((T([80], i64),), {})", [Integers(0, 64)]),
    ("bucketize.Tensor", "((T([80], f32), T([9], f32)), {})", [ANYTHING, Ordered(-3, 3)]),
    ("searchsorted.Tensor", "((T([4, 9], f32), T([4, 20], f32)), {})", [Ordered(-3, 3), ANYTHING]),
    # Pooling and grids.
    ("max_pool2d_with_indices_backward.default",
     "((T([1, 2, 3, 3], f32), T([1, 2, 6, 7], f32), [2], [2], [0], [1], False, T([1, 2, 3, 3], i64)), {})",
     [ANYTHING, ANYTHING, PoolIndices((6, 7), (2, 2), (2, 2), (0, 0), (1, 1))]),
    ("adaptive_max_pool2d_backward.default",
     "((T([1, 2, 3, 3], f32), T([1, 2, 6, 7], f32), T([1, 2, 3, 3], i64)), {})",
     [ANYTHING, ANYTHING, PoolIndices((6, 7))]),
    ("max_unpool2d.default", "((T([1, 2, 3, 3], f32), T([1, 2, 3, 3], i64), [6, 7]), {})",
     [ANYTHING, Distinct(42, (2, 3))]),
    ("grid_sampler_2d.default", "((T([1, 2, 6, 7], f32), T([1, 4, 4, 2], f32), 0, 0, False), {})",
     [ANYTHING, Uniform(-1.1, 1.1)]),
    # Truth values.
    ("where.self", "((T([5, 7], b8), T([5, 7], f32), T([], f32)), {})", [Mask(0.5), ANYTHING, SINGLE]),
    ("masked_fill.Scalar", "((T([5, 7], f32), T([5, 7], b8), 0), {})", [ANYTHING, Mask(0.5)]),
    ("any.dim", "((T([5, 50], b8), 1), {})", [Mask(1 / 50, mixed=False)]),
    ("all.default", "((T([5, 50], b8),), {})", [Mask(1 - 1 / 250, mixed=False)]),
    ("native_dropout_backward.default", "((T([5, 7], f32), T([5, 7], b8), 1.25), {})", [ANYTHING, Mask(0.8)]),
    ("cumsum.default", "((T([5, 7], b8), 1), {})", [Mask(0.5)]),
    ("isnan.default", "((T([5, 7], f32),), {})", [Specials(0.25)]),
    # Ranges.
    ("log.default", "((T([5, 7], f32),), {})", [Magnitude(1 / 16, 16)]),
    ("rsqrt.default", "((T([5, 7], f16),), {})", [Magnitude(1 / 16, 16)]),
    ("_foreach_sqrt.default", "(([T([5], f32), T([7], f32)],), {})", [Magnitude(1 / 16, 16)] * 2),
    ("div.Tensor", "((T([5, 7], f32), T([5, 7], f32)), {})", [ANYTHING, Magnitude(0.25, 4, signed=True)]),
    ("remainder.Tensor", "((T([5, 7], i64), T([5, 7], i64)), {})", [ANY_INTEGER, Magnitude(1, 4, signed=True)]),
    ("floor_divide.default", "((T([5, 7], i64), 42), {})", [Integers(-168, 169)]),
    ("div.Scalar", "((T([5, 7], f32), 200), {})", [Normal(200)]),
    ("addcdiv.default", "((T([5], f32), T([5], f32), T([5], f32)), {})",
     [ANYTHING, ANYTHING, Magnitude(0.25, 4, signed=True)]),
    ("pow.Tensor_Scalar", "((T([5, 7], f32), 0.5), {})", [Magnitude(1 / 16, 16)]),
    ("pow.Tensor_Tensor", "((T([5, 7], f32), T([5, 7], f32)), {})", [Magnitude(0.25, 4), Uniform(-2, 2)]),
    ("pow.Tensor_Tensor", "((T([5, 7], i64), T([5, 7], i64)), {})", [Magnitude(1, 3, signed=True), Integers(0, 4)]),
    ("eq.Scalar", "((T([50], i64), -100), {})", [Integers(-103, -96)]),
    ("eq.Tensor", "((T([50], f32), T([50], f32)), {})", [Integers(-3, 4)] * 2),
    ("clamp.default", "((T([50], i64), 0, 128), {})", [Integers(-64, 193)]),
    ("hardtanh.default", "((T([50], f32), 0.0, 6.0), {})", [Uniform(-3, 9)]),
    ("mul.Tensor", "((T([50], f16), -65504.0), {})", [Integers(0, 2)]),
    ("_to_copy.default", "((T([50], f32),), {'dtype': u8})", [Uniform(0, 100)]),
    ("bernoulli.default", "((T([50], f32),), {})", [Uniform(0, 1)]),
    ("multinomial.default", "((T([5, 50], f32), 3), {})", [Magnitude(1 / 16, 16)]),
    ("linalg_cholesky_ex.default", "((T([3, 5, 5], f32),), {})", [Definite()]),
    # What a forward op saved.
    ("sigmoid_backward.default", "((T([5], f32), T([5], f32)), {})", [ANYTHING, Uniform(0.02, 0.98)]),
    ("tanh_backward.default", "((T([5], f32), T([5], f32)), {})", [ANYTHING, Uniform(-0.98, 0.98)]),
    ("_softmax_backward_data.default", "((T([5, 7], f32), T([5, 7], f32), -1, f32), {})",
     [ANYTHING, Probabilities(-1)]),
    ("_log_softmax_backward_data.default", "((T([5, 7], f32), T([5, 7], f32), 1, f32), {})",
     [ANYTHING, Probabilities(1, logarithms=True)]),
    ("native_layer_norm_backward.default",
     ("((T([4, 6], f32), T([4, 6], f32), [6], T([4, 1], f32), T([4, 1], f32), T([6], f32), T([6], f32),"
      " [True, True, True]), {})"),
     [ANYTHING, ANYTHING, Normal(0.25), Magnitude(0.5, 2), ANYTHING, ANYTHING]),
    ("native_batch_norm.default",
     "((T([4, 6, 3, 3], f32), T([6], f32), T([6], f32), T([6], f32), T([6], f32), True, 0.1, 1e-05), {})",
     [ANYTHING, ANYTHING, ANYTHING, Normal(0.25), Magnitude(0.5, 2)]),
    ("_fused_adamw_.default",
     ("(([T([6], f32)], [T([6], f32)], [T([6], f32)], [T([6], f32)], [], [T([], f32)]),"
      " {'lr': 0.01, 'beta1': 0.9, 'beta2': 0.99, 'weight_decay': 0.1, 'eps': 1e-08, 'amsgrad': False,"
      " 'maximize': False})"),
     [ANYTHING, ANYTHING, ANYTHING, Magnitude(1 / 16, 4), Integers(1, 100)]),
]
# fmt: on


@pytest.mark.parametrize(("op", "text", "expected"), EXAMPLES, ids=[op for op, *_ in EXAMPLES])
def test_each_argument_holds_what_its_op_wants(op: str, text: str, expected: list[Domain]) -> None:
    """An index stays in range, a mask is mixed, a logarithm has something to take it of."""
    assert expected == domains(parse_call(op, text))


@pytest.mark.parametrize("example", EXAMPLES, ids=[op for op, *_ in EXAMPLES])
def test_eager_answers_with_numbers_that_are_not_all_the_same(example: tuple[str, str, list[Domain]]) -> None:
    """A degenerate result would let a degenerate kernel pass."""
    op, text, _ = example
    results = [leaf for leaf in run(traced_record(parse_call(op, text), seed=1)) if isinstance(leaf, torch.Tensor)]
    # The second result of _ctc_loss is memory that is written in part.
    results = [result for result in results[: 1 if op == "_ctc_loss.default" else None] if result.numel() > 1]
    assert not any(bool(result.isnan().any()) for result in results)
    assert not results or any(result.unique().numel() > 1 for result in results)


def test_the_tables_name_ops_and_arguments_that_exist() -> None:
    """A rule under a misspelt name never applies."""
    arguments: dict[str, set[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        stem = stem_of(f"{schema.name.removeprefix('aten::')}.{schema.overload_name}")
        arguments.setdefault(stem, set()).update(argument.name for argument in schema.arguments)
    for rules in (INDEX_RULES, VALUE_RULES):
        assert [] == [op for op, of_op in rules.items() if not of_op.keys() & arguments.get(op, set())]
    assert set() == COMMON_RULES.keys() - set().union(*arguments.values())


# ---------------------------------------------------------------- records


def test_values_follow_from_the_seed_and_the_call_alone() -> None:
    """The same seed gives the same record; another seed, or another shape, gives other values."""
    call = parse_call("add.Tensor", "((T([5, 7], f32), T([5, 7], f32)), {})")
    other = parse_call("add.Tensor", "((T([5, 8], f32), T([5, 8], f32)), {})")
    record = traced_record(call, seed=1)
    assert record == traced_record(call, seed=1)
    seeds = [s.seed for r in (record, traced_record(call, seed=2), traced_record(other, seed=1)) for s in r.storages]  # type: ignore[union-attr]
    assert 6 == len(set(seeds))
    assert 1 not in seeds


def test_a_record_of_gigabytes_is_a_few_hundred_bytes() -> None:
    """Its values are made where they are used."""
    record = traced_record(parse_call("relu.default", "((T([64, 256, 512, 512], f16),), {})"), seed=1)
    assert 64 * 256 * 512 * 512 * 2 == sum(map(storage_size, record.storages))
    assert 200 > len(msgspec.msgpack.encode(record))


def test_layouts_are_those_of_the_trace() -> None:
    """Expanded and overlapping tensors share elements; gaps between elements are there."""
    text = "((T([4, 3], f32, stride=(0, 1)), T([4, 3], f32, stride=(2, 1)), T([4, 3], f32, stride=(1, 9))), {})"
    expanded, overlapping, strided = tensors("addcmul.default", text)
    assert [(0, 1), (2, 1), (1, 9)] == [t.stride() for t in (expanded, overlapping, strided)]
    assert [3, 9, 22] == [t.untyped_storage().nbytes() // 4 for t in (expanded, overlapping, strided)]


def test_an_explicit_view_finds_the_memory_that_it_asks_for() -> None:
    """``as_strided`` may look further than the tensor that it is given."""
    (result,) = run(traced_record(parse_call("as_strided.default", "((T([4], f32), [3, 3], [4, 1], 2), {})"), seed=1))
    assert [3, 3] == list(result.shape)


def test_the_parts_of_an_embedding_bag_describe_the_same_bags() -> None:
    """Offsets, bag numbers and bag sizes are results of one forward call."""
    text = "((T([16, 8], f32), T([50, 8], f32), T([60], i64), T([16], i64), T([60], i64), 0), {})"
    _, _, _, offsets, numbers = tensors("_embedding_bag_per_sample_weights_backward.default", text)
    sizes = torch.cat([offsets, torch.tensor([60])]).diff()
    assert torch.arange(16).repeat_interleave(sizes).tolist() == numbers.tolist()


def test_any_and_all_are_asked_for_both_answers() -> None:
    """With one answer for every seed a kernel that always gives it would be right."""
    for op in ("any.default", "all.default"):
        records = [traced_record(parse_call(op, "((T([64, 64], b8),), {})"), seed=seed) for seed in range(20)]
        assert {True, False} == {bool(result) for record in records for result in run(record)}


def test_an_expanded_mask_is_true_as_often_as_there_are_elements_to_take() -> None:
    """One element of it stands for many of self."""
    text = "((T([1, 6, 4], f32), T([1, 6, 4], b8, stride=(6, 1, 0)), T([6, 4], f32)), {})"
    _, mask, _ = tensors("masked_scatter.default", text)
    assert 12 == int(mask.sum())
    run(traced_record(parse_call("masked_scatter.default", text, source="test"), seed=1))


def test_values_are_stored_at_places_that_differ() -> None:
    """Of two values for one place either may stay, so a kernel could not be judged."""
    text = "((T([5, 7], f32), [T([20], i64), T([20], i64)], T([20], f32)), {})"
    _, rows, columns, _ = tensors("index_put_.default", text)
    assert 20 == len({*zip(rows.tolist(), columns.tolist(), strict=True)})


def test_lengths_of_packed_sequences_are_on_the_host() -> None:
    """The op reads them there, wherever it runs; on a device it raises."""
    record = traced_record(EXAMPLE_CALLS["_pack_padded_sequence.default"], seed=1)
    assert ["cuda", "cpu"] == [tensor.device for tensor in record.args[:2]]  # type: ignore[union-attr]


def test_the_state_of_dropout_is_on_the_host_where_attention_reads_it_there() -> None:
    """A pointer to the device would end the process that follows it."""
    half = "T([1, 2, 8, 8], bf16)"
    sums, state = "T([1, 2, 32], f32)", "T([], u64)"
    text = f"(({half}, {half}, {half}, {half}, None, {half}, {sums}, {state}, {state}, 0.1, [1, 1, 1, 0]), {{}})"
    op = "_scaled_dot_product_efficient_attention_backward.default"
    record = traced_record(parse_call(op, text, source="test"), seed=1)
    assert ["cuda", "cpu", "cpu"] == [tensor.device for tensor in record.args[6:9]]  # type: ignore[union-attr]


@pytest.mark.parametrize("scale", ["", "'scale': 1.0"])
@pytest.mark.parametrize("size", [40, 256])
def test_no_weight_of_an_attention_is_much_larger_than_their_sum(size: int, scale: str) -> None:
    """The sum is an argument of its own; of random heads exp(20) would be left, and gradients infinite in float16."""
    rows, keys, sums = f"T([2, 8, 512, {size}], f16)", f"T([2, 8, 77, {size}], f16)", "T([2, 8, 512], f32)"
    state = "None, None, 512, 77, 0.0, False, T([2], u64), T([], u64)"
    text = f"(({rows}, {rows}, {keys}, {keys}, {rows}, {sums}, {state}), {{{scale}}})"
    _, query, key, *_, logsumexp, _, _ = tensors("_scaled_dot_product_flash_attention_backward.default", text)
    scores = query.double() @ key.double().mT * (1.0 if scale else size**-0.5)
    assert (scores - logsumexp[..., None]).max() < 1
    assert 0.1 < scores.square().mean().sqrt() < 0.3


EXAMPLE_CALLS = {op: parse_call(op, text) for op, text, _ in EXAMPLES}

# ---------------------------------------------------------------- refusals and old names


@pytest.mark.parametrize(
    ("op", "text", "reason"),
    [
        ("no_such_op.default", "((T([4], f32),), {})", "no op no_such_op.default"),
        ("relu.default", "((T([4], f32), 1), {})", "takes 1 positional"),
        ("relu.default", "((T([4], f32),), {'alpha': 1})", "takes no argument 'alpha'"),
        ("searchsorted.Tensor", "((T([9], f32), T([4], f32)), {'sorter': T([9], i64)})", "`sorter`"),
        ("index.Tensor", "((T([4], f32), [T([1], i64), T([1], i64)]), {})", "more indices than"),
        ("gather.default", "((T([4], f32), 3, T([1], i64)), {})", "no dimension 3"),
        ("max_unpool2d.default", "((T([1, 3, 3], f32), T([1, 3, 3], i64), [2, 2]), {})", "shape of `indices`"),
        ("_grouped_mm.default", "((T([4, 8], f32), T([2, 8, 8], f32), T([2, 2], i32)), {})", "shape of `offs`"),
        (
            "_softmax_backward_data.default",
            "((T([4, 3], f32), T([4, 3], f32, stride=(1, 1)), 1, f32), {})",
            "`output` overlaps itself",
        ),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_with_a_reason(op: str, text: str, reason: str) -> None:
    """Such an input is excluded with a sentence that a reader understands."""
    with pytest.raises(CannotRebuild, match=reason):
        domains(parse_call(op, text))


@pytest.mark.parametrize(
    ("op", "text", "shape"),
    [
        ("sum.SymInt", "((T([4, 6], f32), [0], True), {})", (1, 6)),
        ("im2col_backward.default", "((T([1, 8, 9], f32), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]), {})", (1, 2, 4, 4)),
        ("col2im_backward.default", "((T([1, 2, 4, 4], f32), [2, 2], [1, 1], [0, 0], [1, 1]), {})", (1, 8, 9)),
        (
            "upsample_nearest2d_backward.vec",
            "((T([1, 2, 8, 8], f32), None, [1, 2, 4, 4], [2.0, 2.0]), {})",
            (1, 2, 4, 4),
        ),
        (
            "upsample_bilinear2d_backward.vec",
            "((T([1, 2, 8, 8], f32), [8, 8], [1, 2, 4, 4], True, None), {})",
            (1, 2, 4, 4),
        ),
    ],
)
def test_an_overload_that_torch_has_renamed_is_called_by_its_name_of_today(
    op: str, text: str, shape: tuple[int, ...]
) -> None:
    """Public traces were written with a torch of 2022."""
    (result,) = run(traced_record(parse_call(op, text), seed=1))
    assert shape == tuple(result.shape)


# ---------------------------------------------------------------- the public traces


@functools.cache
def public_calls() -> tuple[TracedCall, ...]:
    """Every distinct input of the public traces."""
    if not PUBLIC_TRACES.is_dir():
        pytest.skip("the public traces are not here")
    entries = (entry for path in find_traces([PUBLIC_TRACES]) for entry in read_trace(path).entries)
    return tuple({msgspec.msgpack.encode(entry.call): entry.call for entry in entries}.values())


def along(name: str) -> Callable[[BoundCall, ArgumentSlot], int]:
    """An index along ``dim`` of an argument."""
    return lambda call, _: call.shape(name)[call.integer("dim")]


def of_pair(call: BoundCall, slot: ArgumentSlot) -> int:
    """Index number n of a list looks at dimension n of self, those that are None included."""
    return call.shape("self")[slot.number]


#: (op, argument) -> how many places it may point at, written down from the documentation of each
#: op and not from the rules that are tested.
PLACES: dict[tuple[str, str], Callable[[BoundCall, ArgumentSlot], int]] = {
    ("gather", "index"): along("self"),
    ("scatter", "index"): along("self"),
    ("scatter_add", "index"): along("self"),
    ("index_select", "index"): along("self"),
    ("index_add", "index"): along("self"),
    ("index", "indices"): of_pair,
    ("index_put", "indices"): of_pair,
    ("_index_put_impl", "indices"): of_pair,
    ("embedding", "indices"): lambda call, _: call.shape("weight")[0],
    ("embedding_dense_backward", "indices"): lambda call, _: call.integer("num_weights"),
    ("_embedding_bag", "indices"): lambda call, _: call.shape("weight")[0],
    ("_embedding_bag_per_sample_weights_backward", "indices"): lambda call, _: call.shape("weight")[0],
    ("_embedding_bag_per_sample_weights_backward", "offset2bag"): lambda call, _: call.shape("offsets")[0],
    ("nll_loss_forward", "target"): lambda call, _: call.shape("self")[1],
    ("nll_loss_backward", "target"): lambda call, _: call.shape("self")[1],
    ("max_pool2d_with_indices_backward", "indices"): lambda call, _: math.prod(call.shape("self")[-2:]),
    ("_sparse_coo_tensor_with_dims_and_tensors", "indices"): lambda call, _: call.integers("size")[0],
    # An offset may also be the number of indices: the bag is empty then.
    ("_embedding_bag", "offsets"): lambda call, _: call.elements("indices") + 1,
    ("_embedding_bag_per_sample_weights_backward", "offsets"): lambda call, _: call.elements("indices") + 1,
}
#: Ops that compute with whole numbers, place none of them, and divide by none.
WHOLE_NUMBERS = frozenset(
    {
        *("_to_copy", "_unsafe_view", "add", "bitwise_xor", "cat", "clamp", "clone", "copy", "cumsum", "eq", "fill"),
        *("flip", "ge", "gt", "lift_fresh_copy", "lt", "masked_fill", "max", "min", "mul", "ne", "new_full"),
        *("new_zeros", "stack", "sub", "sum", "unbind", "unsqueeze"),
    }
)
#: The same, and these divide by a scalar.
DIVIDED = frozenset({"div", "floor_divide", "fmod", "remainder"})
#: Arguments that hold whole numbers beside the one that indexes.
INDEXED = frozenset({("gather", "self"), ("index", "self"), ("index_put", "self"), ("index_put", "values")})


def reach(domain: Domain) -> tuple[int, int]:
    """The lowest and the highest value that a domain can give."""
    match domain:
        case Integers(low, high, 1.0, 0.0):
            return low, high - 1
        case Distinct(high, _, divisor, modulus):
            return 0, min((high - 1) // divisor, high if modulus is None else modulus - 1)
        case Targets(classes):
            return 0, classes - 1
        case PoolIndices(plane):
            return 0, math.prod(plane) - 1
        case Segments(total, count, SegmentForm.NUMBERS):
            return 0, count - 1
        case Segments(total):
            return 0, total
    raise AssertionError(f"{domain} is no domain of indices")


def whole_number_slots() -> Iterator[tuple[BoundCall, ArgumentSlot, Domain]]:
    """Every integer tensor with elements in the public traces."""
    for call in public_calls():
        bound = BoundCall(current(call))
        for slot, domain in zip(bound.slots, domains(call), strict=True):
            if slot.tensor.dtype in ("i64", "i32") and 0 not in slot.tensor.shape:
                yield bound, slot, domain


@pytest.mark.slow
def test_every_call_of_the_public_traces_has_valid_values() -> None:
    """None is refused, whatever its size."""
    records = [traced_record(call, seed=3) for call in public_calls()]
    assert 18_208 == len(records)
    assert 1 << 30 < max(sum(map(storage_size, record.storages)) for record in records)


@pytest.mark.slow
def test_no_index_of_the_public_traces_can_leave_its_range() -> None:
    """On a GPU one that does takes the device context, and every later case, with it."""
    checked = 0
    for call, slot, domain in whole_number_slots():
        if (call.stem, slot.name) in PLACES:
            lowest, highest = reach(domain)
            assert 0 <= lowest <= highest < PLACES[call.stem, slot.name](call, slot), (call.op, slot, domain)
            checked += 1
    assert 1_200 < checked


@pytest.mark.slow
def test_every_integer_argument_of_the_public_traces_is_known_as_index_or_as_number() -> None:
    """An index that nobody recognised would get numbers of both signs."""
    unknown = {
        (call.stem, slot.name)
        for call, slot, _ in whole_number_slots()
        if call.stem not in WHOLE_NUMBERS | DIVIDED and (call.stem, slot.name) not in PLACES.keys() | INDEXED
    }
    assert set() == unknown


@pytest.mark.slow
def test_ignored_targets_of_the_public_traces_are_those_that_the_loss_ignores() -> None:
    """Any other number outside the classes is an error."""
    ignored = [
        (domain.ignored, call.integer("ignore_index", -100))
        for call, _, domain in whole_number_slots()
        if isinstance(domain, Targets)
    ]
    assert len(ignored) > 50
    assert all(found == wanted for found, wanted in ignored)


#: What eager has on GPUs only: at all, or for the dtypes of these inputs.
NOT_ON_CPU = frozenset(
    {
        *("native_batch_norm_backward.default", "native_layer_norm_backward.default"),
        *("_cudnn_rnn.default", "_cudnn_rnn_backward.default", "_fft_c2c.default"),
    }
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_eager_runs_the_smallest_inputs_of_every_op_of_the_public_traces() -> None:
    """Two inputs an op, all of them in range for the checks that eager makes on a CPU."""
    by_op: dict[str, list[CallRecord]] = {}
    for call in public_calls():
        record = traced_record(call, seed=1)
        by_op.setdefault(record.op, []).append(record)
    for op in by_op.keys() - NOT_ON_CPU:
        for record in sorted(by_op[op], key=lambda record: sum(map(storage_size, record.storages)))[:2]:
            run(record)
