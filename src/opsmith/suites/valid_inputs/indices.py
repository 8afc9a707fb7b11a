"""Arguments that hold places: indices, offsets, lengths, class numbers.

Out of range they are an error on the CPU, and on a GPU an assert that takes the device context with
it. Where an op stores at indices, no place occurs twice: which of two values stays is not defined.
"""

from __future__ import annotations

import math

from opsmith.core.case import SequenceValue, TensorValue
from opsmith.core.domains import (
    Distinct,
    Domain,
    Integers,
    Mask,
    Ordered,
    PoolIndices,
    Probabilities,
    SegmentForm,
    Segments,
    Subset,
    Targets,
)
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall, CannotRebuild
from opsmith.suites.valid_inputs.rules import Rule, Rules, for_each

#: Segments of grouped products end at multiples of 16 rows where they can: tensor cores want that.
GROUP_UNIT = 16


def below(count: int) -> Integers:
    """Indices into ``count`` places; an empty index tensor may index nothing."""
    return Integers(0, max(count, 1))


# ---------------------------------------------------------------- one dimension


def _along_self(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(call.size("self", call.integer("dim")))


def _taken_along(call: BoundCall, _: ArgumentSlot) -> Domain:
    return _along_self(call, _) if call.value("dim") is not None else below(call.elements("self"))


def _into_self(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(call.elements("self"))


def _stored_along_self(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Places along ``dim`` of self, none of them twice for one row of the index if there are enough."""
    size, shape = call.size("self", call.integer("dim")), slot.tensor.shape
    dim = call.integer("dim") % max(len(shape), 1) if call.stem.startswith("scatter") else 0
    if not shape or shape[dim] > size:
        return below(size)
    return Distinct(size, (dim,))


def _scattered(call: BoundCall, slot: ArgumentSlot) -> Domain:
    adds_up = call.value("reduce") is not None or call.tensor("src") is None
    return _along_self(call, slot) if adds_up else _stored_along_self(call, slot)


def _put(call: BoundCall, slot: ArgumentSlot) -> Domain:
    places, count = call.elements("self"), math.prod(slot.tensor.shape)
    if call.flag("accumulate") or count > places:
        return below(places)
    return Distinct(places, tuple(range(len(slot.tensor.shape))))


def _selected_value(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """What sort, topk and their like selected: places along ``dim``, each once."""
    sizes = call.integers("sizes")
    dim = call.integer("dim") % max(len(sizes), 1)
    if len(slot.tensor.shape) == len(sizes) and sizes:
        return Distinct(sizes[dim], (dim,))
    return below(sizes[dim] if sizes else 1)


def _running_place(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(call.size("input", call.integer("dim")))


# ---------------------------------------------------------------- several dimensions


def indexed_dims(call: BoundCall) -> dict[int, tuple[int, ...]]:
    """For each tensor of ``indices`` the sizes of the dimensions of self that it indexes.

    A mask stands for as many dimensions as it has itself.
    """
    indices = call.value("indices")
    shape, first, found = call.shape("self"), 0, {}
    for number, index in enumerate(indices.items if isinstance(indices, SequenceValue) else (indices,)):
        width = len(index.shape) if isinstance(index, TensorValue) and index.dtype in ("b8", "u8") else 1
        if first + width > len(shape):
            raise CannotRebuild(f"{call.op} was traced with more indices than `self` has dimensions")
        if isinstance(index, TensorValue):
            found[number] = shape[first : first + width]
        first += width
    return found


def _taken(call: BoundCall, slot: ArgumentSlot) -> Domain:
    if slot.tensor.dtype in ("b8", "u8"):
        return Mask(0.5)
    return below(indexed_dims(call)[slot.number][0])


def _stored(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """As :func:`_taken`; where values are stored and not added, no place occurs twice."""
    if slot.tensor.dtype in ("b8", "u8"):
        return _stored_mask(call, slot)
    sizes = indexed_dims(call)
    shapes = {s.number: s.tensor.shape for s in call.slots if s.name == "indices"}
    if call.flag("accumulate") or call.elements("values") <= 1:
        return below(sizes[slot.number][0])
    shape, size = slot.tensor.shape, sizes[slot.number][0]
    dims = tuple(range(len(shape)))
    if len(set(shapes.values())) > 1:
        # They broadcast to a grid: each is on its own axis of it.
        return Distinct(size, dims) if math.prod(shape) <= size else below(size)
    places = math.prod(sizes[number][0] for number in shapes)
    if math.prod(shape) > places:
        return below(size)
    later = math.prod(sizes[number][0] for number in shapes if number > slot.number)
    return Distinct(places, dims, later, size)


def _stored_mask(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """A mask with as many true elements as there are values for them."""
    values, rest = call.shape("values"), len(call.shape("self")) - len(slot.tensor.shape)
    if len(values) <= rest or values[0] == 1:
        return Mask(0.5)
    return Subset(min(values[0], math.prod(slot.own_shape)))


def _masked_source(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """A mask that is true half the time, and not more often than there are elements in ``source``."""
    elements = math.prod(slot.own_shape)
    repeated = max(1, call.elements("self") // max(elements, 1))
    return Subset(min(elements // 2, call.elements("source") // repeated))


def _sparse_places(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Coordinates ``[sparse_dim, nnz]``: one row for each of the first dimensions."""
    sizes = call.integers("size")[: slot.tensor.shape[0]] if slot.tensor.shape else ()
    return below(min(sizes, default=1))


# ---------------------------------------------------------------- tables of embeddings


def _row_of_weight(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(call.size("weight", 0))


def _row_of_self(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(call.size("self", 0))


def _numbered_row(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(call.integer("num_weights"))


def _bags(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """``offsets``, ``offset2bag`` and ``bag_size`` of one division of the indices into bags."""
    total, length = call.elements("indices"), math.prod(slot.tensor.shape)
    if slot.name == "offset2bag":
        sized = call.tensor("bag_size") or call.tensor("offsets")
        bags = math.prod(sized.shape) if sized is not None else call.size("grad", 0)
        # Not all modes fill it; the others leave it empty.
        return Segments(total, max(bags, 1), SegmentForm.NUMBERS) if length else below(1)
    if slot.name == "bag_size":
        return Segments(total, length, SegmentForm.SIZES)
    if call.flag("include_last_offset") and length:
        return Segments(total, length - 1, SegmentForm.BOUNDS)
    return Segments(total, length, SegmentForm.STARTS)


# ---------------------------------------------------------------- classes and sequences


def _classes(call: BoundCall) -> int:
    """Classes of a loss whose input is ``[classes]`` or ``[N, classes, ...]``."""
    return call.size("self", 1 if len(call.shape("self")) > 1 else 0)


def _class_targets(call: BoundCall, slot: ArgumentSlot) -> Domain:
    if slot.tensor.dtype not in ("i64", "i32", "u8"):
        raise CannotRebuild(f"{call.op} was traced with targets that are no class numbers")
    return Targets(_classes(call), call.integer("ignore_index", -100))


def _classes_or_probabilities(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Cross entropy takes either."""
    if slot.tensor.dtype in ("i64", "i32", "u8"):
        return _class_targets(call, slot)
    return Probabilities(min(1, len(slot.tensor.shape) - 1))


def _one_hot(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Below the number of classes, which the op finds by itself where it is not given."""
    classes = call.integer("num_classes", -1)
    return Integers(0, classes if classes > 0 else 16)


def _class_numbers(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(_classes(call))


def _several_classes(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Class numbers up to the first -1."""
    return Integers(-1, max(_classes(call), 1))


def _labels(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Labels of ``_ctc_loss``: any class but the blank, which is the first or the last."""
    classes, blank = call.size("log_probs", 2 if len(call.shape("log_probs")) > 2 else 1), call.integer("blank")
    if slot.tensor.dtype not in ("i64", "i32") or blank not in (0, classes - 1):
        raise CannotRebuild(f"{call.op} was traced with a blank among the labels")
    return Integers(0, max(blank, 1)) if blank else Integers(1, max(classes, 2))


def _input_lengths(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Between all of the time steps and half of them."""
    steps = call.size("log_probs", 0)
    return Integers((steps + 1) // 2, steps + 1)


def _target_lengths(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """At most half as many labels as the shortest input has steps, so that they can be aligned."""
    targets = call.shape("targets")
    if len(targets) == 1:
        return Segments(targets[0], math.prod(slot.tensor.shape), SegmentForm.SIZES)
    return Integers(0, min(targets[1], call.size("log_probs", 0) // 4) + 1)


def _batch_lengths(call: BoundCall, _: ArgumentSlot) -> Domain:
    return Ordered(1, call.size("input", 1 if call.flag("batch_first") else 0), descending=True)


def _repeats(call: BoundCall, slot: ArgumentSlot) -> Domain:
    total = call.integer("output_size", -1)
    if total < 0:
        return Integers(0, 4)
    return Segments(total, math.prod(slot.tensor.shape), SegmentForm.SIZES)


def _segment_lengths(call: BoundCall, slot: ArgumentSlot) -> Domain:
    total, count = call.size("data", call.integer("axis")), math.prod(slot.tensor.shape)
    if slot.name == "lengths":
        return Segments(total, count, SegmentForm.SIZES)
    return Segments(total, count - 1, SegmentForm.BOUNDS)


def _dependent(call: BoundCall, slot: ArgumentSlot) -> Domain:
    raise CannotRebuild(f"{call.op} was traced with `{slot.name}`, which follows from the values of another argument")


# ---------------------------------------------------------------- attention and grouped products


def _sequence_bounds(tensor: str, dim: int, longest: str) -> Rule:
    """Rule for the bounds of sequences that lie one after another along a dimension of ``tensor``."""

    def rule(call: BoundCall, slot: ArgumentSlot) -> Domain:
        count = math.prod(slot.tensor.shape)
        if count <= 1:
            return below(1)  # A batch of equal sequences has no bounds.
        return Segments(call.size(tensor, dim), count - 1, SegmentForm.BOUNDS, call.integer(longest) or None)

    return rule


def _jagged_bounds(call: BoundCall, slot: ArgumentSlot) -> Domain:
    values, lengths = call.tensor("values"), call.integers("max_lengths")
    total = call.size("values", 0) if values is not None else call.integer("total_L")
    longest = lengths[0] if lengths else call.size("dense", 1)
    return Segments(total, max(math.prod(slot.tensor.shape) - 1, 0), SegmentForm.BOUNDS, longest)


def _group_ends(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Groups divide the rows of the left factor, the columns of the right one, or what is summed over."""
    batched = (len(call.shape("self")) == 3, len(call.shape("mat2")) == 3)
    tensor, dim = {(True, False): ("mat2", -1), (False, True): ("self", 0)}.get(batched, ("self", -1))
    total = call.size(tensor, dim)
    unit = 1 if total % GROUP_UNIT else GROUP_UNIT
    return Segments(total, math.prod(slot.tensor.shape), SegmentForm.ENDS, unit=unit)


# ---------------------------------------------------------------- pooling


def _spread(values: tuple[int, ...], dimensions: int, default: tuple[int, ...]) -> tuple[int, ...]:
    """One value a dimension; a single one stands for all, none for the default."""
    chosen = values or default
    return chosen * dimensions if len(chosen) == 1 else chosen


def _pooled(call: BoundCall, _: ArgumentSlot) -> Domain:
    dimensions = 3 if "3d" in call.stem else 2
    kernel = _spread(call.integers("kernel_size"), dimensions, (1,))
    return PoolIndices(
        call.shape("self")[-dimensions:],
        kernel,
        _spread(call.integers("stride"), dimensions, kernel),
        _spread(call.integers("padding"), dimensions, (0,)),
        _spread(call.integers("dilation"), dimensions, (1,)),
    )


def _adaptively_pooled(call: BoundCall, _: ArgumentSlot) -> Domain:
    return PoolIndices(call.shape("self")[-3 if "3d" in call.stem else -2 :])


def _randomly_pooled(call: BoundCall, _: ArgumentSlot) -> Domain:
    return below(math.prod(call.shape("self")[-3 if "3d" in call.stem else -2 :]))


def _unpooled(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Each place of the output plane is filled once."""
    plane = call.integers("output_size")
    return Distinct(math.prod(plane), tuple(range(len(slot.tensor.shape)))[-len(plane) :])


# ---------------------------------------------------------------- factorisations


def _pivots(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Row numbers from 1."""
    matrix = {"linalg_lu_solve": "LU", "linalg_ldl_solve": "LD"}.get(call.stem, "LU_data")
    return Integers(1, max(call.size(matrix, -2), 1) + 1)


_LENGTHS: Rules = {"targets": _labels, "input_lengths": _input_lengths, "target_lengths": _target_lengths}
_DENSE_BAGS: Rules = {"offsets": _bags, "offset2bag": _bags, "bag_size": _bags}
_SEQUENCES: Rules = {
    "cum_seq_q": _sequence_bounds("query", 0, "max_q"),
    "cum_seq_k": _sequence_bounds("key", 0, "max_k"),
    "cu_seqlens_q": _sequence_bounds("query", 1, "max_seqlen_q"),
    "cu_seqlens_k": _sequence_bounds("key", 1, "max_seqlen_k"),
}

#: Op -> its arguments that hold places.
INDEX_RULES: dict[str, Rules] = {
    **for_each(
        "gather scatter_add scatter_reduce index_select index_add index_reduce index_fill", {"index": _along_self}
    ),
    **for_each("scatter", {"index": _scattered}),
    **for_each("index_copy", {"index": _stored_along_self}),
    **for_each("take", {"index": _into_self}),
    **for_each("take_along_dim", {"indices": _taken_along}),
    **for_each("put", {"index": _put}),
    **for_each("index _unsafe_index _unsafe_masked_index _unsafe_masked_index_put_accumulate", {"indices": _taken}),
    **for_each("index_put _index_put_impl _unsafe_index_put", {"indices": _stored}),
    **for_each("masked_scatter", {"mask": _masked_source}),
    **for_each("_sparse_coo_tensor_with_dims_and_tensors", {"indices": _sparse_places}),
    **for_each("embedding", {"indices": _row_of_weight}),
    **for_each("embedding_renorm", {"indices": _row_of_self}),
    **for_each("embedding_dense_backward embedding_sparse_backward embedding_backward", {"indices": _numbered_row}),
    **for_each(
        "_embedding_bag _embedding_bag_forward_only embedding_bag _embedding_bag_per_sample_weights_backward",
        {"indices": _row_of_weight, **_DENSE_BAGS},
    ),
    **for_each(
        "_embedding_bag_backward _embedding_bag_dense_backward _embedding_bag_sparse_backward",
        {"indices": _numbered_row, "maximum_indices": _numbered_row, **_DENSE_BAGS},
    ),
    **for_each(
        "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward nll_loss nll_loss2d nll_loss_nd",
        {"target": _class_targets},
    ),
    **for_each("cross_entropy_loss", {"target": _classes_or_probabilities}),
    **for_each("multi_margin_loss multi_margin_loss_backward", {"target": _class_numbers}),
    **for_each(
        "multilabel_margin_loss multilabel_margin_loss_forward multilabel_margin_loss_backward",
        {"target": _several_classes},
    ),
    **for_each("_ctc_loss _ctc_loss_backward _cudnn_ctc_loss ctc_loss", _LENGTHS),
    **for_each("_pack_padded_sequence", {"lengths": _batch_lengths}),
    **for_each(
        "_pack_padded_sequence_backward _pad_packed_sequence lstm gru rnn_tanh rnn_relu", {"batch_sizes": _dependent}
    ),
    **for_each("repeat_interleave", {"repeats": _repeats}),
    **for_each("segment_reduce _segment_reduce_backward", {"lengths": _segment_lengths, "offsets": _segment_lengths}),
    **for_each("searchsorted", {"sorter": _dependent}),
    **for_each("value_selecting_reduction_backward", {"indices": _selected_value}),
    **for_each("cummaxmin_backward", {"indices": _running_place}),
    **for_each(
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
        {"indices": _pooled},
    ),
    **for_each("fractional_max_pool2d_backward fractional_max_pool3d_backward", {"indices": _randomly_pooled}),
    **for_each("adaptive_max_pool2d_backward adaptive_max_pool3d_backward", {"indices": _adaptively_pooled}),
    **for_each("max_unpool2d max_unpool3d", {"indices": _unpooled}),
    **for_each("linalg_lu_solve lu_solve lu_unpack linalg_ldl_solve", {"pivots": _pivots, "LU_pivots": _pivots}),
    **for_each("one_hot", {"self": _one_hot}),
    **for_each("bincount", {"self": Integers(0, 64)}),
    **for_each("_flash_attention_forward _flash_attention_backward", _SEQUENCES),
    **for_each("_efficient_attention_forward _efficient_attention_backward", _SEQUENCES),
    **for_each("_jagged_to_padded_dense_forward _padded_dense_to_jagged_forward", {"offsets": _jagged_bounds}),
    **for_each("_grouped_mm _scaled_grouped_mm", {"offs": _group_ends}),
}
#: Attention on a padded batch has an empty tensor, or a pair of zeros, where packed sequences have bounds.
INDEX_RULES |= for_each(
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward"
    " _cudnn_attention_forward _cudnn_attention_backward"
    " _scaled_dot_product_fused_attention_overrideable_backward",
    {"cum_seq_q": Integers(0, 1), "cum_seq_k": Integers(0, 1)},
)
