"""Arguments whose values have a range: logarithms, divisors, comparisons, what a forward op saved.

The ranges keep results finite in float16, on both sides of every bend that an op has, and away
from answers that are the same everywhere.
"""

from __future__ import annotations

import math

from opsmith.core.case import NamedValue
from opsmith.core.domains import (
    IGNORED_EVERY,
    Definite,
    Domain,
    Integers,
    Magnitude,
    Mask,
    Normal,
    Ordered,
    Probabilities,
    Specials,
    Uniform,
)
from opsmith.core.dtypes import SHORT_NAMES
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall
from opsmith.suites.valid_inputs.rules import Rules, for_each

#: float16 ends at 65504; a result of this size leaves room for what is done with it.
LARGE = 30000.0
#: Few different whole numbers, so that some are equal, some zero, some negative.
FEW = Integers(-3, 4)
ANY_INTEGER = Integers(-10, 11)
POSITIVE = Magnitude(1 / 16, 16)
DIVISOR = Magnitude(1 / 4, 4, signed=True)
#: Around 1: variances, their inverse roots, weights of classes.
UNIT = Magnitude(1 / 2, 2)
OPEN_INTERVAL = Uniform(-0.98, 0.98)
PROBABILITY = Uniform(0.02, 0.98)
#: Of the largest parts of a ``Normal`` tensor, relative to all of it.
LARGEST_RMS = 2.4

_WHOLE_DTYPES = frozenset({"i64", "i32", "i16", "i8", "u8"})


# ---------------------------------------------------------------- around a scalar


def _compared(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Few whole numbers, and the scalar in the middle of them if the tensor is compared with one."""
    scalar = call.scalar("other")
    if scalar is None:
        return FEW
    if not math.isfinite(scalar):
        return Specials(0.25)
    return Integers(int(scalar) - 3, int(scalar) + 4) if scalar == int(scalar) else Integers(-3, 4, origin=scalar)


def _dividend(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """As large as the divisor where that is large, so that no quotient is next to zero.

    Where whole quotients or remainders are asked for, several times the divisor, so that they vary.
    """
    divisor = abs(call.number("other") or 0)
    if call.stem in ("div", "true_divide") and call.value("rounding_mode") is None:
        return _scaled(slot, min(divisor, LARGE / 16))
    return Uniform(-4 * divisor, 4 * divisor) if 0 < divisor < LARGE else default_domain(slot)


def _factor(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """0 or 1 where a very large number multiplies a mask; else as large as the product may get."""
    factor = call.number("other")
    if factor is None or 16 * abs(factor) <= LARGE or slot.tensor.dtype in _WHOLE_DTYPES:
        return default_domain(slot)
    largest = LARGE / abs(factor)
    return Uniform(-largest, largest) if largest > 1 else Integers(0, 2)


def _clamped(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """A range that reaches half its width beyond both bounds, or 4 to each side of the only one."""
    bounds = [call.number(name) for name in ("min", "max", "min_val", "max_val")]
    finite = [float(bound) for bound in bounds if bound is not None and abs(bound) <= LARGE]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    reach = (high - low) / 2 or 4.0
    # In whole numbers a bound of 1e-12 bends nothing.
    return Uniform(low - reach, high + reach) if finite or slot.tensor.dtype in _WHOLE_DTYPES else Normal()


def _beyond_threshold(call: BoundCall, _: ArgumentSlot) -> Domain:
    threshold = call.number("threshold")
    return Uniform(threshold - 2, threshold + 2) if threshold else Normal()


# ---------------------------------------------------------------- powers and products


def _base(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Bases whose power is finite: positive unless the exponent is a whole number."""
    exponent = call.number("exponent")
    if slot.tensor.dtype in _WHOLE_DTYPES:
        return Magnitude(1, 3, signed=True) if exponent is None or exponent < 0 else FEW
    if exponent is None:
        return Magnitude(1 / 4, 4)
    largest = min(16.0, LARGE ** (1 / max(abs(exponent), 1)))
    if exponent != int(exponent):
        return Magnitude(1 / largest, largest)
    return Magnitude(1 / largest, largest, signed=True) if exponent < 0 else Uniform(-largest / 4, largest / 4)


def _exponent(call: BoundCall, slot: ArgumentSlot) -> Domain:
    if slot.tensor.dtype in _WHOLE_DTYPES:
        return Integers(0, 4)  # Whole numbers have no negative powers.
    base = call.number("self")
    if base is None or base <= 0 or base == 1:
        return Uniform(-2, 2)
    largest = min(2.0, math.log(LARGE) / abs(math.log(base)))
    return Uniform(-largest, largest)


def _multiplied_up(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Factors close enough to 1 for the product of them all to stay finite."""
    dim = call.value("dim")
    terms = call.size("self", dim) if isinstance(dim, int) else call.elements("self")
    if slot.tensor.dtype in _WHOLE_DTYPES:
        return Magnitude(1, 2, signed=True)
    largest = math.exp(4 / math.sqrt(max(terms, 1)))
    return Magnitude(1 / largest, largest, signed=True)


# ---------------------------------------------------------------- truth values


def _rarely_true(call: BoundCall, _: ArgumentSlot) -> Domain:
    """About one true element among those that ``any`` looks at together, and often none."""
    return Mask(1 / max(_reduced(call), 2), mixed=False)


def _rarely_false(call: BoundCall, _: ArgumentSlot) -> Domain:
    return Mask(1 - 1 / max(_reduced(call), 2), mixed=False)


def _reduced(call: BoundCall) -> int:
    """How many elements are reduced to one."""
    dims = call.integers("dim")
    return math.prod(call.size("self", dim) for dim in dims) if dims else call.elements("self")


def _kept(call: BoundCall, _: ArgumentSlot) -> Domain:
    """The mask of a dropout, of which ``1 / scale`` was kept."""
    scale = call.number("scale")
    return Mask(1 / scale) if scale is not None and scale > 1 else Mask(0.9)


# ---------------------------------------------------------------- conversions


def _converted(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """What another dtype can hold: a float out of an integer's range converts to no defined value."""
    named, tensor = call.value("dtype"), call.tensor("self")
    target = SHORT_NAMES.get(named.name) if isinstance(named, NamedValue) else None
    if slot.name == "src" and tensor is not None:
        target = tensor.dtype
    if target == "b8":
        return FEW if slot.tensor.dtype != "b8" else Mask(0.5)
    if target not in _WHOLE_DTYPES or slot.tensor.dtype == "b8":
        return default_domain(slot)
    return Uniform(0, 100) if "u8" in (target, slot.tensor.dtype) else Uniform(-100, 100)


# ---------------------------------------------------------------- saved by a forward op


def _softmax_output(call: BoundCall, _: ArgumentSlot) -> Domain:
    return Probabilities(call.integer("dim"))


def _log_softmax_output(call: BoundCall, _: ArgumentSlot) -> Domain:
    return Probabilities(call.integer("dim"), logarithms=True)


def _log_probabilities(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Class probabilities ``[N, classes, ...]`` or ``[classes]``."""
    return Probabilities(min(1, len(call.shape("self")) - 1), logarithms=True)


def _ctc_log_probabilities(call: BoundCall, _: ArgumentSlot) -> Domain:
    return Probabilities(len(call.shape("log_probs")) - 1, logarithms=True)


def _total_weight(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Without weights it is the number of targets that are not ignored."""
    targets = call.elements("target")
    counted = targets - targets // IGNORED_EVERY
    if call.tensor("weight") is None:
        return Integers(counted, counted + 1)
    return Uniform(counted * 0.9, counted * 1.1)


def _loss_gradient(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """The gradient of a mean is divided by the number of elements; a loss scaler makes up for that."""
    if math.prod(slot.tensor.shape) != 1:
        return default_domain(slot)
    return _scaled(slot, min(call.elements("self"), LARGE / 4))


def _elu_result(call: BoundCall, _: ArgumentSlot) -> Domain:
    """The input, or the result, which is above ``-alpha * scale``."""
    if not call.flag("is_result"):
        return Normal()
    lowest = (call.number("alpha") or 1.0) * (call.number("scale") or 1.0)
    return Uniform(-0.95 * lowest, 3)


def _attending(call: BoundCall, _: ArgumentSlot) -> Domain:
    """Queries whose scores have a root mean square of 1 at most, where they and the keys are largest.

    The sum of the weights is an argument of its own, and no weight may be larger than it. Were scores in the tens, as
    those of random heads are, weights would reach exp(20) and gradients no number of float16.
    """
    columns = max(call.size("query", -1), 1)
    scale = abs(call.number("scale") or 1 / math.sqrt(columns))
    return Normal(1 / (scale * math.sqrt(columns) * LARGEST_RMS**2))


def _log_sum(call: BoundCall, _: ArgumentSlot) -> Domain:
    """The logarithm of a sum over the keys, each of them about 1."""
    keys = math.log(max(call.size("key", 2 if call.stem.startswith("_scaled_dot") else 1), 1))
    return Uniform(keys, keys + 2)


def _dropout_noise(call: BoundCall, _: ArgumentSlot) -> Domain:
    return Uniform(call.number("lower") or 1 / 8, call.number("upper") or 1 / 3)


# ---------------------------------------------------------------- draws and sets


def _repeated_values(call: BoundCall, slot: ArgumentSlot) -> Domain:
    """Few enough different values for most to occur several times."""
    largest = 100 if slot.tensor.dtype in ("i8", "u8") else 2000
    return Integers(0, min(largest, max(2, call.elements("self") // 4)))


# ---------------------------------------------------------------- defaults


def default_domain(slot: ArgumentSlot) -> Domain:
    """For an argument without a rule: both signs, moderate."""
    if slot.tensor.dtype == "b8":
        return Mask(0.5)
    return ANY_INTEGER if slot.tensor.dtype in _WHOLE_DTYPES and not _is_single(slot) else _scaled(slot, 1)


def _scaled(slot: ArgumentSlot, scale: float) -> Domain:
    """Floats of this scale, at least 1; a single number is not near zero."""
    largest = max(scale, 1)
    return Magnitude(largest / 4, largest * 4, signed=True) if _is_single(slot) else Normal(largest)


def _is_single(slot: ArgumentSlot) -> bool:
    """Whether the tensor is one element, maybe seen many times."""
    return all(size == 1 or stride == 0 for size, stride in zip(slot.tensor.shape, slot.tensor.strides, strict=True))


_SIGNS = Integers(0, 2, 2, -1)
_POLYNOMIALS = " ".join(
    f"special_{family}"
    for family in (
        *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
        *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
    )
)
_ATTENTION_GRADIENTS = " ".join(
    (
        *(f"_scaled_dot_product_{kind}_attention_backward" for kind in ("flash", "efficient", "cudnn")),
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_fused_attention_overrideable_backward",
        *(f"_{kind}_attention_backward" for kind in ("flash", "efficient", "cudnn")),
    )
)
_BOTH_COMPARED: Rules = {"self": _compared, "other": FEW}
_LOSS_BACKWARD: Rules = {"grad_output": _loss_gradient}
_LIKELIHOOD: Rules = {"self": _log_probabilities, "weight": UNIT}
_WEIGHTED_PROBABILITY: Rules = {"target": PROBABILITY, "weight": UNIT}
_MATRIX: Rules = dict.fromkeys(("self", "A", "LU", "LD", "LU_data"), Definite())

#: Op -> its arguments whose values have a range.
VALUE_RULES: dict[str, Rules] = {
    # One argument.
    **for_each("log log2 log10 rsqrt sqrt lgamma digamma polygamma special_psi special_gammaln", {"self": POSITIVE}),
    **for_each("special_bessel_y0 special_bessel_y1 special_modified_bessel_k0", {"self": POSITIVE}),
    **for_each("special_modified_bessel_k1", {"self": POSITIVE}),
    **for_each("special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1", {"x": POSITIVE}),
    **for_each("mvlgamma special_multigammaln", {"self": Uniform(8, 32)}),
    **for_each("log1p special_log1p", {"self": Uniform(-0.9, 8)}),
    **for_each("acos asin atanh erfinv special_erfinv", {"self": OPEN_INTERVAL}),
    **for_each("acosh", {"self": Uniform(1.05, 16)}),
    **for_each("exp exp2 expm1 sinh cosh special_erfcx", {"self": Uniform(-4, 8)}),
    **for_each("tan", {"self": Uniform(-1.4, 1.4)}),
    **for_each("sin cos", {"self": Uniform(-100, 100)}),
    **for_each("logit special_logit special_ndtri special_entr", {"self": PROBABILITY}),
    **for_each("reciprocal", {"self": Magnitude(1 / 8, 8, signed=True)}),
    **for_each("sgn sign signbit logical_not nonzero nonzero_static count_nonzero argwhere mode", {"self": FEW}),
    **for_each("round floor ceil trunc frac special_round", {"self": Integers(-20, 21, unit=0.25)}),
    **for_each("isnan isinf isfinite isposinf isneginf nan_to_num", {"self": Specials(0.25)}),
    **for_each("nansum nanmean nanmedian", {"self": Specials(0.25, infinities=False)}),
    **for_each("hardsigmoid hardswish hardsigmoid_backward hardswish_backward softplus", {"self": Normal(4)}),
    **for_each("hardtanh hardtanh_backward clamp clamp_min clamp_max relu6", {"self": _clamped}),
    **for_each("threshold threshold_backward", {"self": _beyond_threshold}),
    **for_each("histc", {"self": _clamped}),
    **for_each("any _is_any_true", {"self": _rarely_true}),
    **for_each("all _is_all_true", {"self": _rarely_false}),
    **for_each("prod cumprod", {"self": _multiplied_up}),
    **for_each("_to_copy", {"self": _converted}),
    **for_each("copy", {"src": _converted}),
    **for_each("_unique _unique2", {"self": _repeated_values}),
    **for_each("unique_consecutive unique_dim", {"self": Integers(0, 2)}),
    # Two arguments and more.
    **for_each("eq ne lt le gt ge isclose", _BOTH_COMPARED),
    **for_each("heaviside", {"self": FEW}),
    **for_each("div true_divide floor_divide fmod remainder", {"self": _dividend, "other": DIVISOR}),
    **for_each("mul", {"self": _factor}),
    **for_each("pow float_power", {"self": _base, "exponent": _exponent}),
    **for_each("addcdiv", {"tensor2": DIVISOR}),
    **for_each("lerp", {"weight": Uniform(0, 1)}),
    **for_each("xlogy special_xlogy", {"other": POSITIVE}),
    **for_each("special_xlog1py", {"other": Uniform(-0.9, 8)}),
    **for_each("igamma igammac", {"self": POSITIVE, "other": POSITIVE}),
    **for_each("special_zeta", {"self": Uniform(1.5, 8), "other": POSITIVE}),
    **for_each("logical_and logical_or logical_xor", {"self": Integers(0, 2), "other": Integers(0, 2)}),
    **for_each("bitwise_left_shift bitwise_right_shift", {"self": Integers(0, 16), "other": Integers(0, 4)}),
    **for_each("__lshift__ __rshift__", {"self": Integers(0, 16), "other": Integers(0, 4)}),
    **for_each("gcd lcm", {"self": Integers(-30, 31), "other": Integers(-30, 31)}),
    **for_each("ldexp", {"other": Integers(-3, 4)}),
    **for_each(_POLYNOMIALS, {"x": Uniform(-1, 1), "n": Integers(0, 6)}),
    **for_each("polar", {"abs": POSITIVE}),
    **for_each("quantile nanquantile", {"q": Uniform(0, 1)}),
    **for_each("isin", {"elements": Integers(0, 16), "test_elements": Integers(0, 16)}),
    **for_each("searchsorted", {"sorted_sequence": Ordered(-3, 3)}),
    **for_each("bucketize", {"boundaries": Ordered(-3, 3)}),
    **for_each("histogram _histogramdd_from_bin_tensors", {"bins": Ordered(-3, 3)}),
    # Losses.
    **for_each("nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d nll_loss_nd", _LIKELIHOOD),
    **for_each(
        "nll_loss_backward nll_loss2d_backward", {**_LIKELIHOOD, **_LOSS_BACKWARD, "total_weight": _total_weight}
    ),
    **for_each("mse_loss_backward smooth_l1_loss_backward huber_loss_backward", _LOSS_BACKWARD),
    **for_each("cross_entropy_loss multi_margin_loss", {"weight": UNIT}),
    **for_each("multi_margin_loss_backward", {**_LOSS_BACKWARD, "weight": UNIT}),
    **for_each("binary_cross_entropy", {"self": PROBABILITY, **_WEIGHTED_PROBABILITY}),
    **for_each("binary_cross_entropy_backward", {**_LOSS_BACKWARD, "self": PROBABILITY, **_WEIGHTED_PROBABILITY}),
    **for_each("binary_cross_entropy_with_logits", _WEIGHTED_PROBABILITY),
    **for_each("soft_margin_loss hinge_embedding_loss", {"target": _SIGNS}),
    **for_each("soft_margin_loss_backward", {**_LOSS_BACKWARD, "target": _SIGNS}),
    **for_each("margin_ranking_loss cosine_embedding_loss", {"target": _SIGNS}),
    **for_each("poisson_nll_loss", {"target": POSITIVE}),
    **for_each("kl_div", {"self": _log_probabilities, "target": PROBABILITY}),
    **for_each("multilabel_margin_loss_backward", {**_LOSS_BACKWARD, "is_target": Integers(0, 2)}),
    **for_each("_ctc_loss _cudnn_ctc_loss ctc_loss", {"log_probs": _ctc_log_probabilities}),
    **for_each(
        "_ctc_loss_backward",
        {"log_probs": _ctc_log_probabilities, "neg_log_likelihood": POSITIVE, "log_alpha": Uniform(-16, 0)},
    ),
    # What a forward op saved.
    **for_each("sigmoid_backward", {"output": PROBABILITY}),
    **for_each("tanh_backward", {"output": OPEN_INTERVAL}),
    **for_each("logit_backward", {"self": PROBABILITY}),
    **for_each("elu_backward", {"self_or_result": _elu_result}),
    **for_each("log_sigmoid_backward", {"buffer": PROBABILITY}),
    **for_each("_softmax_backward_data _masked_softmax_backward", {"output": _softmax_output}),
    **for_each("_log_softmax_backward_data", {"output": _log_softmax_output}),
    **for_each("_masked_softmax", {"mask": Mask(0.25)}),
    **for_each("native_dropout_backward _masked_scale", {"mask": _kept}),
    **for_each("rrelu_with_noise_backward", {"noise": _dropout_noise}),
    **for_each(_ATTENTION_GRADIENTS, {"query": _attending}),
    # Randomness.
    **for_each("bernoulli", {"self": Uniform(0, 1), "p": Uniform(0, 1)}),
    **for_each("poisson", {"self": Uniform(0, 10)}),
    **for_each("binomial", {"count": Integers(1, 20), "prob": PROBABILITY}),
    **for_each("multinomial _sample_dirichlet _standard_gamma _standard_gamma_grad", {"self": POSITIVE}),
    **for_each("normal", {"std": UNIT}),
    **for_each("fractional_max_pool2d fractional_max_pool3d", {"random_samples": PROBABILITY}),
    # Linear algebra.
    **for_each("linalg_cholesky_ex linalg_cholesky cholesky cholesky_inverse linalg_solve_triangular", _MATRIX),
    **for_each("triangular_solve linalg_inv_ex linalg_inv inverse linalg_solve_ex _linalg_solve_ex", _MATRIX),
    **for_each("_linalg_det _linalg_slogdet _linalg_eigh linalg_ldl_factor_ex linalg_ldl_solve", _MATRIX),
    **for_each("linalg_lu_solve lu_solve", _MATRIX),
    **for_each("cholesky_solve _cholesky_solve_helper", {"input2": Definite(), "A": Definite()}),
    **for_each("_linalg_check_errors", {"info": Integers(0, 1)}),
    **for_each("linalg_matrix_exp matrix_exp", {"self": Normal(0.25)}),
    # Recurrent layers of cuDNN: weights as they are initialised; bytes that read as gates below 1.
    **for_each("_cudnn_rnn", {"weight": Normal(0.05), "weight_buf": Normal(0.05)}),
    **for_each("_cudnn_rnn_backward", {"weight": Normal(0.05), "weight_buf": Normal(0.05), "reserve": Integers(0, 59)}),
}

#: Arguments that mean the same in every op that has them.
COMMON_RULES: Rules = {
    "running_mean": Normal(0.25),
    "save_mean": Normal(0.25),
    "mean": Normal(0.25),
    "running_var": UNIT,
    "save_var": UNIT,
    "save_invstd": UNIT,
    "invstd": UNIT,
    "rstd": UNIT,
    "saved_norms": Magnitude(1, 4),
    "cdist": Magnitude(1 / 4, 4),
    "pdist": Magnitude(1 / 4, 4),
    "grid": Uniform(-1.1, 1.1),
    "logsumexp": _log_sum,
    "philox_seed": Integers(0, 1 << 16),
    "philox_offset": Integers(0, 1 << 8),
    "state_steps": Integers(1, 100),
    "exp_avg_sqs": Magnitude(1 / 16, 4),
    "max_exp_avg_sqs": Magnitude(1 / 16, 4),
    "state_sums": Magnitude(1 / 16, 4),
    "lr": Uniform(0.001, 0.1),
    "grad_scale": UNIT,
    "inv_scale": UNIT,
    "found_inf": Integers(0, 1),
    "growth_tracker": Integers(0, 10),
    "scale": Magnitude(1 / 32, 1 / 8),
    "zero_point": Integers(-5, 6),
    "workspace": PROBABILITY,
    "pos_weight": UNIT,
}
