"""The second opinion: the same overload, or the same Model, on the same inputs in float64.

Only asked where a result leaves the plain tolerance around eager's. Then either the candidate is
off or eager is, and float64 tells which: a kernel that is more accurate than eager passes, one
that computed in a lower precision than the dtype asks does not.

The unit of error is the tolerance around the oracle, ``T = atol + rtol * |oracle|``. For ops that
are linear in their inputs a term for the condition of the problem is added,
``LINEAR_SLACK * eps(float32) * op(|inputs|)``: data that cancel leave an absolute error of the
size of their *magnitudes*, whatever the order of summation. A module has no such formula, nor have the
few ops in ``SENSITIVE``: the condition of their results is seen by moving inputs, state and the result of every
op on the way, ``MODULE_SLACK`` times the farthest that each element goes when each float moves by
``eps(float32)``, up or down at random, in a few trials. (Monte Carlo arithmetic: Parker, "Monte Carlo
Arithmetic", UCLA 1997.) Moving the inputs alone would not do: the gradient of a bias in front of a batch norm
is 0 for all of them, and what is computed of it is what the steps on the way rounded. Of a sum on the way, in which
terms may cancel, that is what a single accumulator rounds. Of a product it is what its factors, multiplied one by
one, add up to as a random walk. An element passes when

- oracle and candidate are finite there,
- eager's own error is at most ``TRUST`` units, or explained by roundings to the result's dtype on the way (else
  float64 may mean something else here), and
- the candidate's error is at most one unit, or at most ``SLACK`` times eager's scale of error,
  which is its error at this element or its RMS over the output, whichever is larger: eager's
  error at one element may be tiny by luck. ``CEILING`` units are never exceeded. Where eager is off by more
  than ``TRUST`` units anywhere, its median stands for the RMS, which would be that of a few elements.

Where large terms cancel, eager's error may be any number of units: on a GPU it rounds a convolution to a half type
before it adds the bias, each product of a batch before it adds the next, the mean of a group before it takes it from
the elements, each product of a batch norm's gradient before it adds it to a sum in float32. What such roundings
explain is the size of the terms times the precision of the dtype, the result's or an input's, where the op is linear,
else found by trial, as above. A coordinate that is rounded may lie in another cell, and a pixel's number (bfloat16
has no odd ones from 257) may be another pixel's: that explains any error. One over a number of elements, and its
product with a difference, are next to nothing in float16, whose numbers lie 6e-8 apart there: a loss's gradient that
eager multiplies up from them may be off by any share. All of this makes the oracle believed and widens nothing: the
candidate still has to lie within units of float64.

Special values bind only where eager agrees with its own float64 run; where it doesn't, a
candidate may give either.

The constants come from sums of 2^8 to 2^20 terms and matrix products of 64 to 4096, over randn,
randn + 1000 and terms that cancel to 1e-6 of their size, float32 on CPU. Pairwise sums, sums in
1024 lanes and products in blocks of 1, 16 and 64 pass in every element, as do products split into
three TF32 ones. Products with bfloat16, float16 or TF32 operands or a float16 accumulator fail in
more than 90 % of the elements, and sums rounded to bfloat16 at every step fail. A single float32 accumulator
over more than some 4,000 terms of one sign is less accurate than eager's blocked sum and fails:
that is meant. layer_norm over data offset by 1e4, where eager itself is off by 1e-3, passes
computed in two passes and fails computed from the mean of squares.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.arguments import overload_of
from opsmith.aten.schemas import aten_schemas
from opsmith.core.op import TaskKind
from opsmith.evaluation.criteria.judged_call import LARGE_ELEMENTS, JudgedCall
from opsmith.evaluation.oracle.attention import BACKWARDS, FORWARDS, LOGSUMEXP, attention, gradients, logsumexp
from opsmith.evaluation.oracle.error_bound import LINEAR_SLACK, Opinion, half_a_step
from opsmith.tasks import registry

#: How many units eager may be off before the oracle is not believed, and how many a candidate may
#: ever be. Half types have wide units (1.6 % for bfloat16), so they get few of them.
TRUST = {torch.bfloat16: 64.0, torch.float16: 256.0, torch.complex32: 256.0}
CEILING = {torch.bfloat16: 4.0, torch.float16: 16.0, torch.complex32: 16.0}
TRUST_WIDE = CEILING_WIDE = 4096.0
#: A normal error exceeds six times its RMS once in 5e8 elements. Where the result is a half type,
#: nothing but computing in that type between steps explains an error of more than one unit; twice
#: eager's is enough for that.
SLACK = {torch.bfloat16: 2.0, torch.float16: 2.0, torch.complex32: 2.0}
SLACK_WIDE = 6.0
#: Of 1,500 draws of attention over scores in the hundreds, computed one query at a time in float32, 5 fail with 1,
#: none with 2, and 532 without this term; where inputs and state move but not the steps on the way, 66 with 1 and
#: 5 with 2. Computed from operands rounded to TF32 all fail.
MODULE_SLACK = 3.0
MODULE_TRIALS = 8

#: Ops whose float64 result answers another question.
EXCLUDED = frozenset(
    {
        # The answer depends on the number format itself: spacing, largest value, bit patterns.
        *("nextafter", "nan_to_num", "frexp", "view", "hash_tensor", "fake_quantize_per_tensor_affine_cachemask"),
        *("fake_quantize_per_channel_affine_cachemask", "linalg_lstsq", "_to_copy", "copy"),
        # Steps: at a boundary a rounding error becomes a whole step, and eager's side is the right one. (Remainders of
        # given numbers are exact; eager on a CPU has NaN for those whose quotient float32 does not hold.)
        *("floor_divide", "floor", "ceil", "trunc", "frac", "round", "sign", "sgn"),
        *("heaviside", "histc", "histogram", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"),
    }
)

#: Ops that are linear in their floating inputs (or bounded by themselves on magnitudes).
LINEAR = frozenset(
    {
        *("mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "addr", "dot", "vdot", "linear", "_trilinear"),
        *("convolution", "convolution_backward", "_convolution", "mkldnn_convolution", "cudnn_convolution"),
        *("_addmm_activation", "sum", "nansum", "mean", "cumsum", "trace", "add", "sub", "rsub", "addcmul"),
        *("index_add", "scatter_add", "index_put", "put", "embedding_dense_backward", "segment_reduce"),
        *("_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_dense_backward", "_embedding_bag_backward"),
        *("col2im",),
        *("avg_pool2d", "avg_pool3d", "avg_pool2d_backward", "avg_pool3d_backward", "unfold_backward"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d"),
        *("_adaptive_avg_pool3d_backward", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
        *("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"),
        *("upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"),
        *("_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward"),
        *("_upsample_nearest_exact3d_backward", "_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward"),
        *("upsample_bicubic2d", "upsample_bicubic2d_backward"),
        *("_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa_backward"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"),
        *("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"),
        *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "_unsafe_masked_index_put_accumulate"),
        *("fractional_max_pool2d_backward", "fractional_max_pool3d_backward"),
    }
)
#: The op that adds up magnitudes where the op itself takes a difference.
ADDING_UP = {"sub": "add", "rsub": "add", "sub_": "add_"}
#: Linear when their ``reduce`` argument is sum or mean.
LINEAR_REDUCTIONS = frozenset({"scatter_reduce", "index_reduce"})
#: Ops of whose results the second is a mean, which is linear.
WITH_MEAN = frozenset({"native_layer_norm", "var_mean", "std_mean"})
#: The second result of these, and of a gradient of sampling.
_MEAN = _OF_GRID = 1
#: Sampling an image at coordinates from -1 to 1, and its gradients.
_SAMPLERS = frozenset({"grid_sampler_2d_backward", "grid_sampler_3d_backward"})
_SAMPLING = frozenset({"grid_sampler_2d", "grid_sampler_3d"}) | _SAMPLERS
#: Roundings of a coordinate on the way to a pixel: 1 is added, it is scaled, reflected and split.
_COORDINATE_ROUNDINGS = 4
#: What the weights of a cubic slope, and of the cubics across it, add up to in magnitude.
_STEEPEST = 4
#: Gradients that subtract a mean of what they are given, weighed by probabilities one of which may be nearly 1.
_SOFTMAX_GRADIENTS = ("_softmax_backward_data", "_log_softmax_backward_data")
#: Solutions of systems of equations, inverses, determinants and factors of matrices that may be nearly singular: an
#: honest one is that of a matrix with other last digits (N. Higham, Accuracy and Stability of Numerical Algorithms,
#: theorems 8.5, 9.4 and 10.3). Of 300 random systems of 8 equations, solved by another method than eager's, 3 were
#: refused without this, none is; of matrices rounded to TF32 all are.
_SOLUTIONS = (
    *("triangular_solve", "linalg_solve_triangular", "linalg_lu_solve", "cholesky_solve", "_linalg_solve_ex"),
    *("linalg_inv_ex", "cholesky_inverse", "_linalg_det", "_linalg_slogdet", "cholesky", "linalg_cholesky_ex"),
)
#: Gradients of norms: those of parameters are sums over a batch, which may cancel, and that of an input is less its own
#: part along the input, all of it in a group of one element and nearly all in one of two.
_NORM_GRADIENTS = (
    *("native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward"),
    *("native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward"),
)
#: Ops next to whose poles and kinks the last digits of an input decide, and of which a difference of nearly the same is
#: a factor; what these explain is seen as for a module.
SENSITIVE = _SAMPLERS | {
    *("digamma", "polygamma", "_weight_norm_interface_backward"),
    *(*_SOFTMAX_GRADIENTS, *_NORM_GRADIENTS, *_SOLUTIONS),
}
#: Ops that subtract means, whose rounding is the same for all elements that it is taken from.
_IN_STEPS = (
    *("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm"),
    *("native_layer_norm", "native_group_norm"),
    *_NORM_GRADIENTS,
    *_SOFTMAX_GRADIENTS,
)
_WIDE = (torch.float64, torch.complex128)
#: What adds up terms, on the way of a module.
_SUMS = frozenset({"sum", "mean"})
#: A single accumulator in float32 of more terms is less accurate than it need be.
LONGEST_SUM = 4096
#: One standard deviation of a rounding, in ``eps`` of a number whose logarithm may be anything: 1/12 of the square of a
#: last digit, and the mean of 1/m^2 for mantissas m from 1 to 2.
_ROUNDING = (3 / 8 / math.log(2) / 12) ** 0.5
#: Gradients of losses that eager multiplies in the type of the elements, beginning at one over their number.
_LOSS_GRADIENTS = frozenset(
    {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "soft_margin_loss_backward"}
)
#: Products of many factors, each step of which is rounded: the errors add up as a random walk, in which eager's may be
#: small by luck all along. Of 600 products of up to 8,193 factors in another order 38 were refused without this, none
#: is; with steps rounded to a half type all are.
PRODUCTS = frozenset({"prod", "cumprod"})
#: Standard deviations of that walk: an element is as far off as this once in 5e8.
PRODUCT_SLACK = 6.0
#: Unitary transforms: an element's error has the scale of the whole signal.
ISOTROPIC = frozenset({"_fft_c2c", "_fft_r2c", "_fft_c2r"})

#: What is made of an input before the op runs on it.
Change = Callable[[torch.Tensor], torch.Tensor]

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class Oracle:
    """The float64 run of one call, made when it is first asked for.

    Args:
        call: the call that both sides answered.
        stem: the packet's name without the in-place underscore.
        count: how many results an execution has, written inputs included.
    """

    def __init__(self, call: JudgedCall, stem: str, count: int) -> None:
        self._call, self._stem, self._count = call, stem, count
        self._farthest: dict[float, list[torch.Tensor]] = {}

    def opinion(self, index: int) -> Opinion | None:
        """What the oracle says about result ``index``, or None where it has nothing to say."""
        if self._stem in FORWARDS and index == LOGSUMEXP:
            return self._logarithms
        if self._stem in FORWARDS | BACKWARDS:
            return self._attention[index] if index < len(self._attention) else None
        value = self._values[index] if self._values else None
        if not isinstance(value, torch.Tensor) or value.dtype not in _WIDE:
            return None
        return Opinion(value, self._slack(index, value), partial(self._rounding, index, value))

    def _slack(self, index: int, value: torch.Tensor) -> torch.Tensor | None:
        """What float32's roundings explain of result ``index``."""
        eps = torch.finfo(torch.float32).eps
        if self._stem in ISOTROPIC:
            rms = value.abs().square().mean().sqrt()
            return LINEAR_SLACK * eps * rms.expand(value.shape)
        if self._stem == "native_layer_norm" and index != _MEAN:
            return self._of_variance(value)
        if self._stem in PRODUCTS:
            share: torch.Tensor = PRODUCT_SLACK * _ROUNDING * eps * self._factors(value).sqrt()
            return share * value.abs().nan_to_num(0.0, 0.0, 0.0)
        if self._call.schema.kind is TaskKind.MODULE or self._stem in SENSITIVE:
            moved = MODULE_SLACK * self._movement(index, eps)
            if self._stem in _SAMPLERS and index == _OF_GRID:
                moved = torch.maximum(moved, LINEAR_SLACK * eps * self._slopes().to(moved.device))
            return moved
        magnitude = self._magnitude(index, value)
        return None if magnitude is None else LINEAR_SLACK * eps * magnitude

    def _factors(self, value: torch.Tensor) -> torch.Tensor:
        """How many factors each element of a product has."""
        arguments = self._call.bound()
        if self._stem == "prod" or not value.dim():
            return torch.tensor(_terms(arguments["self"], value), dtype=torch.float64, device=value.device)
        dim: int = arguments["dim"]
        along = [-1 if d == dim % value.dim() else 1 for d in range(value.dim())]
        return torch.arange(1, value.shape[dim] + 1, dtype=torch.float64, device=value.device).view(along)

    def _rounding(self, index: int, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What roundings to ``dtype``, or to that of an input, on the way explain of result ``index``."""
        if self._stem in _SAMPLING:
            return torch.full_like(value, torch.inf)
        tensors = [leaf for leaf in tree_leaves((self._call.args, self._call.kwargs)) if isinstance(leaf, torch.Tensor)]
        eps = max(torch.finfo(each).eps for each in (dtype, *(t.dtype for t in tensors if t.dtype in _WIDER)))
        if self._stem in _LOSS_GRADIENTS:
            return LINEAR_SLACK * (eps * value.abs() + self._of_small_products(value, dtype))
        magnitude = self._magnitude(index, value)
        return MODULE_SLACK * self._movement(index, eps) if magnitude is None else LINEAR_SLACK * eps * magnitude

    def _of_small_products(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """By how much half a step of ``dtype`` next to 0 moves a loss's gradient.

        It is taken by one over the number of elements, by that times a difference, and by that times the gradient.
        """
        given = self._call.bound()
        gradient, x, target = (given[name].double().to(value.device) for name in ("grad_output", "self", "target"))
        factor = (target if self._stem == "soft_margin_loss_backward" else x - target).abs()
        steps = (gradient.abs() * (factor + 1) + 1) / given.get("beta", 1.0)
        moved: torch.Tensor = (half_a_step(dtype) * steps).nan_to_num(0.0, 0.0, 0.0)
        return moved.expand(value.shape)

    def _magnitude(self, index: int, value: torch.Tensor) -> torch.Tensor | None:
        """What the terms of a linear result add up to in magnitude."""
        if self._stem in WITH_MEAN and index != _MEAN:
            return None
        magnitude = self._magnitudes[index] if self._magnitudes else None
        if not isinstance(magnitude, torch.Tensor) or magnitude.shape != value.shape:
            return None
        return magnitude.abs().nan_to_num(0.0, 0.0, 0.0)

    def _of_variance(self, value: torch.Tensor) -> torch.Tensor:
        """By how much a rounding of the variance moves a layer norm or its ``rstd``: far, if eps is its opposite."""
        assert self._values is not None
        rstd, shift = self._values[2].to(value.device), self._call.bound()
        variance = rstd.square().reciprocal() - shift["eps"]
        share = (
            LINEAR_SLACK * torch.finfo(torch.float32).eps * (variance * rstd.square()).abs().nan_to_num(0.0, 0.0, 0.0)
        )
        bias = shift["bias"]
        size = (
            value.abs()
            if bias is None or value.shape == rstd.shape
            else value.abs() + bias.double().to(value.device).abs()
        )
        slack: torch.Tensor = share * size
        return slack.nan_to_num(0.0, 0.0, 0.0)

    def _movement(self, index: int, eps: float) -> torch.Tensor:
        """How far a result goes when all that it is made of moves by ``eps``; 0 where it moves to no number."""
        if eps not in self._farthest:
            self._farthest[eps] = self._moved(eps)
        farthest = self._farthest[eps][index]
        # All trials may leave one of thousands of elements where it is.
        return farthest.clamp(min=farthest.median()) if farthest.numel() else farthest

    def _moved(self, eps: float) -> list[torch.Tensor]:
        """How far each result goes at most, of some runs of other last digits of inputs, state and steps."""
        assert self._values is not None
        values = [value if isinstance(value, torch.Tensor) else torch.empty(0) for value in self._values]
        farthest = [torch.zeros(value.shape, dtype=torch.float64, device=value.device) for value in values]
        for trial in range(MODULE_TRIALS):
            results = _execute(
                self._with_moved_coordinates(trial, eps),
                self._count,
                change=partial(_moved, trial=trial, eps=eps),
                steps=_RoundedSteps(trial, eps),
            )
            for place, (value, moved) in enumerate(zip(values, results or [], strict=False)):
                if isinstance(moved, torch.Tensor) and moved.shape == value.shape:
                    distance = (moved - value).abs().nan_to_num(0.0, 0.0, 0.0)
                    farthest[place] = torch.maximum(farthest[place], distance.double())
        return farthest

    def _with_moved_coordinates(self, trial: int, eps: float) -> JudgedCall:
        if self._stem not in _SAMPLERS:
            return self._call
        gradient, image, grid, *rest = self._call.args
        wide = grid.double()
        reach = _COORDINATE_ROUNDINGS * (wide.abs() + 1)
        return replace(self._call, args=(gradient, image, wide + _moved(reach, trial=trial, eps=eps) - reach, *rest))

    def _slopes(self) -> torch.Tensor:
        """Of each coordinate the largest slope that the image has room for, summed over the channels.

        Far outside of an image all pixels that are weighed are one, and the weights of a slope add up to 0.
        """
        gradient, image, grid = (arg.double().cpu() for arg in self._call.args[:3])
        largest = image.abs().flatten(2).amax(2) if image.numel() else image.flatten(2).sum(2)
        steep = (gradient.abs().flatten(2) * largest[..., None]).sum(1).view(grid.shape[:-1])
        pixels = _STEEPEST * torch.tensor(image.shape[:1:-1], dtype=torch.float64) / 2
        slopes: torch.Tensor = steep[..., None] * pixels
        return slopes.nan_to_num(0.0, 0.0, 0.0)

    @cached_property
    def _logarithms(self) -> Opinion | None:
        """What is known of the logarithms that a fused attention returns, which few calls are asked about."""
        return logsumexp(self._stem, self._call.bound())

    @cached_property
    def _attention(self) -> Sequence[Opinion]:
        """What is known of a fused attention's first result, or of all its gradients."""
        arguments = self._call.bound()
        if self._stem in BACKWARDS:
            return gradients(arguments) or ()
        found = attention(arguments)
        return () if found is None else [found]

    @cached_property
    def _values(self) -> list[Any] | None:
        if self._stem in EXCLUDED or self._call.bound().get("rounding_mode"):
            return None
        values = _execute(self._call, self._count)
        return self._with_poles(values) if self._stem == "polygamma" and values else values

    def _with_poles(self, values: list[Any]) -> list[Any]:
        """Trigamma's poles, which eager leaves finite in every dtype: its ``sin(pi x)`` is 0 for no integer x."""
        arguments = self._call.bound()
        x = arguments["self"].double()
        at_pole = (x <= 0) & (x == x.floor()) & (arguments["n"] == 1)
        return [value.masked_fill(at_pole.to(value.device), torch.inf) for value in values]

    @cached_property
    def _magnitudes(self) -> list[Any] | None:
        reduction = self._call.bound().get("reduce") if self._stem in LINEAR_REDUCTIONS else None
        if self._stem not in LINEAR | WITH_MEAN and reduction not in ("sum", "mean"):
            return None
        return _execute(self._call, self._count, change=torch.abs)


def _execute(
    call: JudgedCall,
    count: int,
    *,
    change: Change | None = None,
    steps: AbstractContextManager[Any] = nullcontext(),  # noqa: B008 - it holds nothing
) -> list[Any] | None:
    """Run ``call`` on copies of its inputs in float64, changed ones if ``change`` is given, within ``steps``.

    Takes up to four times the memory of half-precision inputs and results, and for a changed
    input the largest of them once more.

    Returns the leaves of the result, then the inputs that the op wrote to and did not return: large ones where
    they are, others on the CPU. None where the op cannot be run in float64, or not in the memory that there is.
    """
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return _WIDER.get(leaf, leaf)
        if not isinstance(leaf, torch.Tensor):
            return abs(leaf) if change is torch.abs and type(leaf) in (float, complex) else leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = leaf, _wide_copy(leaf, change)
        return copies[id(leaf)][1]

    is_op = call.schema.kind is TaskKind.OP
    # A Model runs in the dtypes of the state that it is given, which is widened with the inputs.
    function: Any = overload_of(call.schema) if is_op else registry.reference(call.schema.name)
    with torch.no_grad(), _float64_default(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = tree_map(widen, (call.args, call.kwargs))
            if change is torch.abs:
                kwargs |= {name: abs(kwargs[name]) for name in ("alpha", "beta") if name in kwargs}
                packet = ADDING_UP.get(call.schema.packet)
                function = getattr(getattr(torch.ops.aten, packet), function._overloadname) if packet else function
            args, kwargs = _without_half_to_float(call, args, kwargs) if is_op else (args, kwargs)
            with steps:
                returned = tree_leaves(function(*args, **kwargs))
            missing = count - len(returned)
            written = _written(list(copies.values()), returned, change) if missing else []
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
            return None
    results = returned + (written if len(written) == missing else [None] * missing)
    return [_settled(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in results]


def _wide_copy(tensor: torch.Tensor, change: Change | None) -> torch.Tensor:
    wide = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype), copy=True)
    return change(wide) if change is not None and (wide.is_floating_point() or wide.is_complex()) else wide


def _moved(wide: torch.Tensor, *, trial: int, eps: float = torch.finfo(torch.float32).eps) -> torch.Tensor:
    """Each element up or down by ``eps`` of it; the same each time for one content and trial."""
    # A generator of the CPU takes 32 bits of a seed.
    generator = torch.Generator(wide.device).manual_seed(hash((wide.sum().item(), trial)) % (1 << 32))
    return _jittered(wide, generator, eps)


def _jittered(wide: torch.Tensor, generator: torch.Generator, eps: float) -> torch.Tensor:
    return wide * (1 + eps * _signs(wide, generator))


def _signs(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """1 or -1 for each element."""
    signs = torch.randint(2, like.shape, generator=generator, device=generator.device, dtype=torch.int8)
    return signs.to(like.device).mul_(2).sub_(1)


class _RoundedSteps(TorchDispatchMode):
    """Moves what every op computes up or down by ``eps`` of it; copies, choices and what is written in place stay.

    Ops in which large terms cancel, normalisations above all, run as the steps that torch decomposes them into. Sums
    move by what adding up rounds, too (:func:`_rounding_of_sum`): far more than ``eps`` of them, where terms cancel.
    """

    def __init__(self, trial: int, eps: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trial, self._eps = trial, eps
        self._generators: dict[torch.device, torch.Generator] = {}
        self._in_steps = get_decompositions([getattr(torch.ops.aten, packet) for packet in _IN_STEPS])

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self._in_steps:
            with self:
                return self._in_steps[func](*args, **kwargs)
        returned = func(*args, **kwargs)
        schema = func._schema
        if (
            any(result.alias_info is not None for result in schema.returns)
            or not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(args))
            or not _rounds(str(func).removeprefix("aten."))
        ):
            return returned
        moved = tree_map(self._move, returned)
        packet = schema.name.removeprefix("aten::")
        if packet in _SUMS and returned.dtype in _WIDE:
            count = _terms(args[0], returned)
            squares = func(args[0].abs().square(), *args[1:], **kwargs) / (count if packet == "mean" else 1)
            return moved + self._rounded(returned, squares, count)
        if packet == "convolution_backward" and moved[2] is not None:
            squares = args[0].abs().square().sum([dim for dim in range(args[0].dim()) if dim != 1])
            return (*moved[:2], moved[2] + self._rounded(returned[2], squares, _terms(args[0], returned[2])))
        return moved

    def _rounded(self, total: torch.Tensor, squares: torch.Tensor, count: int) -> torch.Tensor:
        """What sums of so many terms each move by; accumulators are float32 at least."""
        rounding = _rounding_of_sum(total, squares, count, min(self._eps, torch.finfo(torch.float32).eps))
        return rounding * _signs(rounding, self._generator(rounding.device))

    def _move(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _WIDE:
            return leaf
        return _jittered(leaf, self._generator(leaf.device), self._eps)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._trial)
        return self._generators[device]


@cache
def _rounds(op: str) -> bool:
    """Whether an overload computes. What copies or chooses elements has nothing to round.

    The fiftieth largest element of a row, moved apart from it, would not be among the fifty largest any more.
    """
    from opsmith.evaluation.criteria.rules import PLACING, rule_for  # Comparing asks the oracle.

    schema = aten_schemas().get(op)
    if schema is None:
        return True
    rule = rule_for(schema)
    return rule.role(0) not in ("exact", "view", "metadata") or rule.stem in PLACING


def _terms(summed: torch.Tensor, sums: torch.Tensor) -> int:
    """How many terms each of the sums has; 1 where there are none."""
    return max(summed.numel() // max(sums.numel(), 1), 1)


def _rounding_of_sum(total: torch.Tensor, squares: torch.Tensor, count: int, eps: float) -> torch.Tensor:
    """One standard deviation of what is rounded while ``count`` terms are added one by one.

    Each of the partial sums is rounded by up to half of a last digit either way, which is between a half and all of
    ``eps``. They grow with the number of terms, to ``total``, and around that as a random walk. More than
    ``LONGEST_SUM`` terms have several accumulators.

    Args:
        total: the sum, or the mean.
        squares: the sum of the terms' squares; for a mean that over the square of ``count``.
        count: 1 or more.
        eps: of the accumulator.
    """
    longest = min(count, LONGEST_SUM)
    places = total.abs().square() * longest**2 / count / 3 + squares * longest / 2
    rounding: torch.Tensor = places.sqrt() * (eps * _ROUNDING)
    return rounding


def _without_half_to_float(
    call: JudgedCall, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``half_to_float`` asks for a wider result than the input; in float64 that is the plain result."""
    names = [argument.name for argument in overload_of(call.schema)._schema.arguments]
    if "half_to_float" not in names:
        return args, kwargs
    position = names.index("half_to_float")
    if position < len(args):
        return (*args[:position], False, *args[position + 1 :]), kwargs
    return args, {**kwargs, "half_to_float": False}


def _written(
    copies: list[tuple[torch.Tensor, torch.Tensor]], returned: list[Any], change: Change | None
) -> list[torch.Tensor]:
    """The input copies that the op changed and did not return, in the order of the arguments."""
    own = {id(leaf) for leaf in returned}
    return [
        copy
        for original, copy in copies
        if id(copy) not in own and copy.layout is torch.strided and _differ(copy, _wide_copy(original, change))
    ]


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether any element differs, NaN being equal to NaN."""
    return one.shape != other.shape or bool(((one != other) & ~(one.isnan() & other.isnan())).any())


def _settled(result: torch.Tensor) -> torch.Tensor:
    dense = (result if result.layout is torch.strided else result.to_dense()).detach()
    return dense if dense.numel() >= LARGE_ELEMENTS else dense.cpu()


@contextmanager
def _float64_default() -> Iterator[None]:
    """Factories and ops on integers answer in the default dtype: make it float64 for a moment."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)
