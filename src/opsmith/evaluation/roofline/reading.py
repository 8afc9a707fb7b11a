"""Which arguments have to be read whole, whatever their values are.

A time is called impossible on the strength of these tables, so an argument is in them only if no kernel
that gives the right results can leave any of it unread. An op that is not named here reads nothing that
is sure. Why some well-known ones are missing:

==============================================  =======================================================
missing                                         because
==============================================  =======================================================
gather, index, index_select, take, embedding,   the indices say what is read
grid_sampler, upsample, bucketize, searchsorted
where, masked_fill, masked_select, dropout      the mask says which side is read; where both sides agree,
                                                the mask need not be read
scatter, index_put, slice_scatter, ...          what is overwritten need not be read
all, any, equal, allclose, isin                 the answer may be known early
fmax, fmin, hypot, xlogy, pow of two tensors    one operand may settle the result alone
threshold_backward, hardtanh_backward, ...      where one operand is zero, the other one is not needed
convolution, pooling, im2col                    windows may skip elements
attention                                       a mask may skip whole keys
nll_loss, slices, tril, triu, trace             a part of the argument is all that is asked for
remainder, fmod                                 some divisors make every result NaN
optimizers                                      a flag says that nothing is to be done
==============================================  =======================================================

One thing is taken for granted: that a product of two floating-point numbers needs both of them, since zero
times an infinity is NaN, and that nobody stops at the first NaN. Both are so in what eager computes.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from opsmith.core.case import OutputTensor, TensorValue
from opsmith.evaluation.roofline.call import BoundCall, is_integral
from opsmith.evaluation.roofline.products import PRODUCTS

#: Given a call and its first result: whether the rule does not hold for it after all.
Exemption: TypeAlias = Callable[[BoundCall, OutputTensor], bool]


class Reads(NamedTuple):
    """Arguments that an op must read whole.

    Attributes:
        names: of the arguments.
        unless: calls that the rule does not hold for.
        integers: it holds for whole numbers and truth values too, of which none absorbs another here.
        moves: the op moves its arguments and computes nothing, so that no scalar can make them unnecessary.
    """

    names: tuple[str, ...]
    unless: Exemption | None = None
    integers: bool = False
    moves: bool = False


#: A comparison's scalar is one that every floating-point dtype can hold: ``x == 0.1`` is false for all bf16.
EXACT_IN_EVERY_DTYPE = 256
#: A larger scalar may lie beyond all values of a dtype, which makes comparisons and clamps constant.
ORDINARY = 2.0**15
#: Scalars that switch an operand off when they are zero.
MULTIPLIERS = frozenset({"alpha", "beta", "exponent", "input_scale", "scalar", "scalars", "scale", "value", "weight"})


def required(call: BoundCall, stem: str, results: Sequence[OutputTensor]) -> list[TensorValue]:
    """The tensors of a call that every implementation reads whole.

    Args:
        call: the call, of a functional, in-place or ``out=`` overload.
        stem: the op's name without what marks its variant.
        results: the tensors that it returns.
    """
    reads = TABLE.get(stem)
    if reads is None or not results or 0 in results[0].shape or (reads.unless and reads.unless(call, results[0])):
        return []
    operands = [tensor for name in reads.names for tensor in call.tensors.get(name, ())]
    if not reads.moves and _may_be_settled(call, stem, reads, operands):
        return []
    is_alone = len(call.tensors) == 1 and not call.scalars
    names = [name for name in reads.names if name not in call.written or is_alone]
    return [tensor for name in _multiplied(call, stem, names) for tensor in call.tensors.get(name, ())]


def _may_be_settled(call: BoundCall, stem: str, reads: Reads, operands: list[TensorValue]) -> bool:
    """Whether a scalar, a single element or the dtype may make (part of) the operands unnecessary."""
    scalars = [number for own in call.scalars.values() for number in own]
    if any(not cmath.isfinite(number) or abs(number) > ORDINARY for number in scalars):
        return True
    if stem not in PRODUCTS and any(0 in own for name, own in call.scalars.items() if _multiplies(stem, name)):
        return True
    sizes = [math.prod(tensor.shape) for tensor in (*operands, *call.inputs)]
    if min(sizes, default=0) == 0 or min(sizes) == 1 < max(sizes):
        return True
    return any(map(is_integral, (*operands, *call.inputs))) and not (reads.integers and _are_distinct(call, operands))


def _multiplies(stem: str, name: str) -> bool:
    return name in MULTIPLIERS or (stem == "mul" and name == "other")


def _are_distinct(call: BoundCall, operands: list[TensorValue]) -> bool:
    """Whether whole numbers meet neither themselves (``x - x``), nor floats, nor a factor that wraps to zero."""
    is_plain = all(number in (1, -1) for number in call.scalars.get("alpha", ()))
    return is_plain and all(map(is_integral, operands)) and len({t.storage for t in operands}) == len(operands)


def _multiplied(call: BoundCall, stem: str, names: list[str]) -> Iterator[str]:
    """Of a matrix product the operands that ``alpha`` and ``beta`` do not switch off."""
    for name in names:
        scale = "beta" if name in ("self", "bias") else "alpha"
        if stem not in PRODUCTS or 0 not in call.scalars.get(scale, ()):
            yield name


def _crops(call: BoundCall, _: OutputTensor) -> bool:
    return any(size < 0 for name in ("pad", "padding") for size in call.wholes(name))


def _compares_with_unusual(call: BoundCall, _: OutputTensor) -> bool:
    numbers = [number for own in call.scalars.values() for number in own]
    return any(abs(number) > EXACT_IN_EVERY_DTYPE or number != round(number.real) for number in numbers)


def _is_constant_range(call: BoundCall, _: OutputTensor) -> bool:
    """A range of one value, or bounds that are tensors and may be one."""
    if {"min", "max"} & call.tensors.keys():
        return True
    low, high = (
        [number for name in names for number in call.scalars.get(name, ()) if isinstance(number, int | float)]
        for names in (("min", "min_val"), ("max", "max_val"))
    )
    return bool(low and high and min(high) <= max(low))


def _has_no_number(name: str) -> Exemption:
    """The overload that takes a tensor there may meet an element that settles its result."""
    return lambda call, _: not call.scalars.get(name)


def _is_given(name: str) -> Exemption:
    """With that argument some calls are constant."""
    return lambda call, _: call.is_set(name)


def _reduces_to_truth(_: BoundCall, result: OutputTensor) -> bool:
    return result.dtype == "b8"


def _reduces_nothing(call: BoundCall, result: OutputTensor) -> bool:
    """The index of the largest of one is 0; their variance is no number, or 0."""
    return math.prod(call.tensors["self"][0].shape) < 2 * math.prod(result.shape)


def _varies_oddly(call: BoundCall, result: OutputTensor) -> bool:
    is_odd = any(number not in (0, 1) for number in call.scalars.get("correction", ()))
    return is_odd or _reduces_nothing(call, result)


def _normalises_one(call: BoundCall, result: OutputTensor) -> bool:
    """The softmax of one element is 1."""
    dim = call.whole("dim")
    return dim is None or not result.shape or result.shape[dim] < 2


def _normalises_few(call: BoundCall, _: OutputTensor) -> bool:
    """Each element is a group, so that its normalised value is 0; or of a gradient the input's is not asked for."""
    if mask := call.wholes("output_mask"):
        return not mask[0] or _has_single_groups(call)
    return _has_single_groups(call)


def _has_single_groups(call: BoundCall) -> bool:
    if groups := call.whole("group"):
        return (call.whole("C") or 0) * (call.whole("HxW") or 0) < 2 * groups
    return math.prod(call.wholes("normalized_shape")) < 2


def _asks_no_gradient(call: BoundCall, _: OutputTensor) -> bool:
    return not any(call.wholes("output_mask"))


def _rules(stems: str, reads: Reads) -> dict[str, Reads]:
    return dict.fromkeys(stems.split(), reads)


#: By stem.
TABLE: dict[str, Reads] = {
    # Every element of these arguments is somewhere in the results.
    **_rules(
        """
        clone _to_copy contiguous flip roll rot90 permute transpose t view unsqueeze squeeze expand alias detach
        lift_fresh repeat pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diag_embed unbind split
        split_with_sizes unsafe_split unsafe_split_with_sizes unsafe_chunk view_as_real conj_physical _conj_physical
        """,
        Reads(("self",), integers=True, moves=True),
    ),
    **_rules("copy", Reads(("src",), integers=True, moves=True)),
    **_rules("cat concat stack hstack vstack dstack block_diag _chunk_cat", Reads(("tensors",), moves=True)),
    **_rules("complex", Reads(("real", "imag"), moves=True)),
    **_rules(
        """
        constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
        replication_pad3d
        """,
        Reads(("self",), _crops, moves=True),
    ),
    # Each result depends on one element.
    **_rules("abs neg bitwise_not logical_not", Reads(("self",), integers=True)),
    **_rules(
        """
        acos acosh angle asin asinh atan atanh ceil celu cos cosh deg2rad digamma elu erf erfc erfinv exp exp2 expm1
        floor frac frexp gelu glu hardshrink hardsigmoid hardswish i0 isfinite isinf isnan isneginf isposinf leaky_relu
        lgamma log log10 log1p log2 log_sigmoid_forward mish mvlgamma nan_to_num polygamma rad2deg reciprocal relu
        relu6 rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_entr special_erfcx
        special_i0e special_i1 special_i1e special_log_ndtr special_ndtri sqrt square tan tanh threshold trunc
        _prelu_kernel
        """,
        Reads(("self",)),
    ),
    **_rules("clamp clamp_min clamp_max hardtanh", Reads(("self",), _is_constant_range)),
    **_rules("round", Reads(("self",), _is_given("decimals"))),
    **_rules("logit", Reads(("self",), _is_given("eps"))),
    **_rules("pow", Reads(("self",), _has_no_number("exponent"))),
    # Each result depends on one element of every operand.
    **_rules("add sub rsub", Reads(("self", "other"), integers=True)),
    **_rules("bitwise_xor", Reads(("self", "other"), _has_no_number("other"), integers=True)),
    **_rules("mul div maximum minimum atan2 copysign logaddexp logaddexp2", Reads(("self", "other"))),
    **_rules("eq ne lt le gt ge", Reads(("self", "other"), _compares_with_unusual)),
    **_rules("polar", Reads(("abs", "angle"))),
    **_rules("mse_loss smooth_l1_loss huber_loss", Reads(("self", "target"))),
    **_rules("addcmul addcdiv", Reads(("self", "tensor1", "tensor2"))),
    **_rules("gelu_backward silu_backward mish_backward", Reads(("grad_output", "self"))),
    **_rules("sigmoid_backward tanh_backward", Reads(("grad_output", "output"))),
    # Each result depends on a row, or on all of them.
    **_rules("sum mean cumsum count_nonzero", Reads(("self",), _reduces_to_truth, integers=True)),
    **_rules("sort", Reads(("self",), integers=True)),
    **_rules(
        """
        prod nansum amax amin aminmax norm linalg_vector_norm logsumexp cumprod cummax cummin logcumsumexp median
        nanmedian topk kthvalue histc
        """,
        Reads(("self",), _reduces_to_truth),
    ),
    **_rules("max min", Reads(("self", "other"))),
    **_rules("argmax argmin", Reads(("self",), _reduces_nothing)),
    **_rules("var std var_mean std_mean", Reads(("self",), _varies_oddly)),
    **_rules("_softmax _log_softmax", Reads(("self",), _normalises_one)),
    **_rules("_softmax_backward_data _log_softmax_backward_data", Reads(("grad_output", "output"), _normalises_one)),
    **_rules("native_layer_norm native_group_norm _fused_rms_norm", Reads(("input",), _normalises_few)),
    **_rules(
        """
        native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update cudnn_batch_norm
        """,
        Reads(("input",)),
    ),
    **_rules(
        "native_layer_norm_backward native_group_norm_backward _fused_rms_norm_backward",
        Reads(("grad_out", "input"), _normalises_few),
    ),
    **_rules("native_batch_norm_backward", Reads(("grad_out",), _asks_no_gradient)),
    **{stem: Reads(names) for stem, names in PRODUCTS.items()},
}
