"""What passes do with infinities, NaN, zeros of both signs and numbers that are hardly any: the same as eager mode.

Or what their documentation names instead. ``ROWS`` has it for every pass: where a result may differ, and what it may be
there. Whether sums and products of huge numbers are finite depends on their order: rows that are ``huge`` keep that
too, ``OVERFLOWS`` has examples of those that do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from tests.graphs import in_aten
from torch import Tensor

from opsmith.compile import choose_passes
from opsmith.compile.built_in import ATTENTION_CALLS, BUILT_IN
from opsmith.compile.report import PassReport

pytestmark = pytest.mark.slow

INF, NAN = math.inf, math.nan
#: Put at every place of every input. Numbers below 1.2e-38 have fewer digits than others.
SPECIAL = (INF, -INF, NAN, 0.0, -0.0, 1e-40, -1e-40, 1.2e-38)
HUGE = (1e38, -1e38, 3.2e38, 1e20, 100.0, -100.0)

#: Kinds of numbers, as digits.
FINITE, PLUS, MINUS, NOT_A_NUMBER = range(4)
INFINITE = (PLUS, MINUS)

Places = Callable[..., Tensor]


class Differs(NamedTuple):
    """A difference from eager mode.

    Attributes:
        places: of a function's inputs, where its result may differ.
        was: kinds of numbers that eager mode returns there.
        becomes: kinds that they may be instead.
    """

    places: Places
    was: Sequence[int]
    becomes: Sequence[int]


class Row(NamedTuple):
    """A function in which a pass finds something.

    Attributes:
        name: of the pass.
        function: of tensors, with a tensor as its result.
        inputs: ordinary ones.
        differs: what is not as in eager mode.
        huge: whether that is so for huge numbers too.
        bits: whether all other results are the same bit by bit, but for those that are NaN.
    """

    name: str
    function: Callable[..., Tensor]
    inputs: Sequence[Tensor]
    differs: Sequence[Differs] = ()
    huge: bool = False
    bits: bool = False


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed))


# ---------------------------------------------------------------- functions


def _softmax(x: Tensor) -> Tensor:
    power = torch.exp(x - x.amax(-1, keepdim=True))
    return power / power.sum(-1, keepdim=True)


def _unshifted(x: Tensor) -> Tensor:
    power = torch.exp(x)
    return power / power.sum(-1, keepdim=True)


def _scores(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) * 0.5


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) * 0.5).softmax(-1) @ v


def _causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.tril(torch.ones(5, 5))
    return (q @ k.transpose(-2, -1) * 0.5).masked_fill(mask == 0, -INF).softmax(-1) @ v


def _called_with_causal_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(5, 5).tril() == 1)


def _masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) * 0.5).masked_fill(mask, -INF).softmax(-1) @ v


def _added_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) * 0.5 + mask).softmax(-1) @ v


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def _layer_norm_of_var(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.view_as_complex(turns)).flatten(3)


def _normed_convolution(x: Tensor, w: Tensor, b: Tensor, *norm: Tensor) -> Tensor:
    mean, variance, scale, shift = norm
    return F.batch_norm(F.conv2d(x, w, b), mean, variance, scale, shift)


def _normed_layer(x: Tensor, w: Tensor, b: Tensor, *norm: Tensor) -> Tensor:
    mean, variance, scale, shift = norm
    return F.batch_norm(F.linear(x, w, b), mean, variance, scale, shift)


def _shared(x: Tensor) -> Tensor:
    return torch.atan2(x * 2, x.abs()) + torch.atan2(x * 2, x.abs())


def _views(x: Tensor) -> Tensor:
    return x.view(24).view(6, 4).view(2, 12).permute(1, 0).permute(1, 0).neg()


# ---------------------------------------------------------------- where results differ


def _row_has(kind: Callable[[Tensor], Tensor]) -> Places:
    """Rows of the first input."""
    return lambda x, *_: kind(x).any(-1, keepdim=True)


def _no_score(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
    """Queries all of whose scores are NaN or minus infinity."""
    scores = _scores(q, k)
    return (scores.isnan() | (scores == -INF)).all(-1, keepdim=True)


def _no_causal_score(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
    scores = _scores(q, k).masked_fill(torch.ones(5, 5).triu(1).bool(), -INF)
    return (scores.isnan() | (scores == -INF)).all(-1, keepdim=True)


def _later_score(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
    """Queries with a later key whose score is infinite or no number."""
    scores = _scores(q, k)
    return (~scores.isfinite() & torch.ones(5, 5).triu(1).bool()).any(-1, keepdim=True)


def _no_open_score(q: Tensor, k: Tensor, _: Tensor, mask: Tensor) -> Tensor:
    """Queries all of whose scores are minus infinity before the mask; the mask's own rows are NaN again."""
    scores = _scores(q, k)
    added = scores.masked_fill(mask, -INF) if mask.dtype == torch.bool else scores + mask
    return (added.isnan() | (added == -INF)).all(-1, keepdim=True)


def _hidden_score(q: Tensor, k: Tensor, _: Tensor, mask: Tensor) -> Tensor:
    """Queries with a masked score that is NaN or infinite."""
    scores = _scores(q, k)
    return ((scores.isnan() | (scores == INF)) & mask).any(-1, keepdim=True)


def _everywhere(*_: Tensor) -> Tensor:
    return torch.tensor(data=True)


def _infinite_scale(*inputs: Tensor) -> Tensor:
    scale = inputs[5].isinf()
    return scale.view(1, -1, *(1,) * (inputs[0].dim() - 2))


def _other_rows(d: Tensor, x: Tensor) -> Tensor:
    """Of ``diag(d) @ x``: where another row of x is not finite in that column."""
    odd = (~x.isfinite()).int()
    return odd.sum(0, keepdim=True) - odd > 0


def _other_columns(x: Tensor, d: Tensor) -> Tensor:
    odd = (~x.isfinite()).int()
    return odd.sum(1, keepdim=True) - odd > 0


def _meets_a_zero(masked: int, mask: Callable[[Tensor], Tensor]) -> Places:
    """Of ``mask(a) @ b`` (0) or ``a @ mask(b)`` (1): where a number that is not finite meets a zero of the mask."""

    def places(a: Tensor, b: Tensor) -> Tensor:
        zeros = mask(torch.ones(8, 8)) == 0
        odd = (~(b if masked == 0 else a).isfinite()).float()
        met = zeros.float() @ odd if masked == 0 else odd @ zeros.float()
        return met > 0

    return places


_LESS_NAN = Differs(_everywhere, (NOT_A_NUMBER,), INFINITE)
_FREE_NAN = (*INFINITE, FINITE)
_HEADS = [_numbers(2, 3, 5, 4, seed=seed) for seed in range(3)]
_MASK = torch.zeros(5, 5).masked_fill(torch.tensor([[0, 1, 1, 1, 1], [0] * 5, [0] * 5, [1] * 5, [0] * 5]).bool(), -INF)
_NORM = [_numbers(4), _numbers(4, seed=1), _numbers(4, seed=2).abs() + 0.5, _numbers(4, seed=3), _numbers(4, seed=4)]
_TARGETS = torch.tensor([0, 5, -100, 0])
_X = [_numbers(4, 6)]
_SQUARES = [_numbers(8, 8), _numbers(8, 8, seed=1)]

ROWS: dict[str, Row] = {
    "softmax": Row("softmax", _softmax, _X, huge=True),
    # exp(inf) is infinite: the formula has NaN there and zeros beside it; softmax NaN in the whole row.
    "softmax without a shift": Row(
        "softmax", _unshifted, _X, [Differs(_row_has(torch.isposinf), (FINITE,), (NOT_A_NUMBER,))]
    ),
    "logarithm of a softmax": Row("softmax", lambda x: torch.log(F.softmax(x, -1)), _X),
    # ATen's attention on CPUs takes a row without any score that is a number for one that is masked.
    "attention": Row("attention", _attention, _HEADS, [Differs(_no_score, (NOT_A_NUMBER,), (FINITE,))]),
    "causal attention": Row(
        "attention", _causal_attention, _HEADS, [Differs(_no_causal_score, (NOT_A_NUMBER,), (FINITE,))]
    ),
    # Hidden scores that are infinite or no numbers; what libraries make of them with a mask is their own.
    "call with a causal mask": Row(
        "attention_mask",
        _called_with_causal_mask,
        _HEADS,
        [Differs(_no_causal_score, (NOT_A_NUMBER,), (FINITE,)), Differs(_later_score, (NOT_A_NUMBER,), (FINITE,))],
    ),
    # A boolean mask becomes a sum with minus infinity, of which the formula's masked_fill is independent.
    "masked attention": Row(
        "attention",
        _masked_attention,
        [*_HEADS, _MASK.isinf()],
        [
            Differs(_no_open_score, (NOT_A_NUMBER,), (FINITE,)),
            Differs(_hidden_score, (FINITE, *INFINITE), (NOT_A_NUMBER,)),
        ],
    ),
    "attention with an added mask": Row(
        "attention", _added_attention, [*_HEADS, _MASK], [Differs(_no_open_score, (NOT_A_NUMBER,), (FINITE,))]
    ),
    "layer norm": Row("layer_norm", _layer_norm, [_numbers(4, 6), _numbers(6), _numbers(6, seed=1)]),
    "layer norm of a variance": Row("layer_norm", _layer_norm_of_var, _X),
    "rms norm": Row("rms_norm", _rms_norm, [_numbers(4, 6), _numbers(6)], huge=True),
    "gelu": Row("gelu", lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), _X, huge=True),
    "gelu with tanh": Row("gelu", _gelu_tanh, _X, huge=True),
    "cross entropy": Row(
        "cross_entropy", lambda x: F.nll_loss(F.log_softmax(x, -1), _TARGETS, reduction="none"), _X, huge=True
    ),
    "mean cross entropy": Row("cross_entropy", lambda x: F.nll_loss(F.log_softmax(x, -1), _TARGETS), _X, huge=True),
    "rotary": Row("rotary", _turned, [_numbers(2, 3, 5, 4), _numbers(5, 2, 2)]),
    # An infinite scale makes weights infinite, of both signs.
    "batch norm after a convolution": Row(
        "batch_norm",
        _normed_convolution,
        [_numbers(2, 3, 9, 9), _numbers(4, 3, 2, 2), *_NORM],
        [Differs(_infinite_scale, INFINITE, (NOT_A_NUMBER,))],
    ),
    "batch norm after a layer": Row(
        "batch_norm",
        _normed_layer,
        [_numbers(9, 3), _numbers(4, 3), *_NORM],
        [
            Differs(_infinite_scale, INFINITE, (NOT_A_NUMBER,)),
            Differs(_infinite_scale, (NOT_A_NUMBER,), INFINITE),
        ],
    ),
    "rows scaled": Row(
        "diagonal_product",
        lambda d, x: torch.diag(d) @ x,
        [_numbers(5), _numbers(5, 4)],
        [Differs(_other_rows, (NOT_A_NUMBER,), _FREE_NAN)],
    ),
    "columns scaled": Row(
        "diagonal_product",
        lambda x, d: x @ torch.diag(d),
        [_numbers(4, 5), _numbers(5)],
        [Differs(_other_columns, (NOT_A_NUMBER,), _FREE_NAN)],
    ),
    # What is not finite stays so; infinities of both signs meet in another sum than before.
    "a low-rank update": Row(
        "product_order",
        lambda x, a, b: x @ (a @ b),
        [_numbers(4, 32), _numbers(32, 2), _numbers(2, 32)],
        [_LESS_NAN, Differs(_everywhere, INFINITE, (NOT_A_NUMBER,))],
    ),
    "a chain that ends in a vector": Row(
        "product_order",
        lambda a, b, x: (a @ b) @ x,
        [*_SQUARES, _numbers(8)],
        [_LESS_NAN, Differs(_everywhere, INFINITE, (NOT_A_NUMBER,))],
    ),
    "a factored weight": Row(
        "product_order",
        lambda x, up, down: F.linear(x, up @ down),
        [_numbers(4, 32), _numbers(32, 2), _numbers(2, 32)],
        [_LESS_NAN, Differs(_everywhere, INFINITE, (NOT_A_NUMBER,))],
    ),
    # Infinities of both signs at positions of a window: one infinity, times a sum.
    "a convolution of one tap, pooled": Row(
        "pooled_convolution",
        lambda x, w, b: F.avg_pool2d(F.conv2d(x, w, b), 2),
        [_numbers(2, 3, 8, 8), _numbers(6, 3, 1, 1), _numbers(6)],
        [_LESS_NAN],
    ),
    "a pooled convolution": Row(
        "pooled_convolution",
        lambda x, w, b: F.avg_pool2d(F.conv2d(x, w, b), 4),
        [_numbers(2, 4, 16, 16), _numbers(8, 4, 3, 3), _numbers(8)],
        [_LESS_NAN],
    ),
    "a pooled transposed convolution": Row(
        "pooled_convolution",
        lambda x, w, b: F.avg_pool2d(F.conv_transpose2d(x, w, b, stride=2), 4),
        [_numbers(2, 4, 8, 8), _numbers(4, 8, 4, 4), _numbers(8)],
        [_LESS_NAN],
    ),
    "a sum of features": Row(
        "reduced_product",
        lambda x, w, b: F.linear(x, w, b).sum(-1),
        [_numbers(5, 6), _numbers(4, 6), _numbers(4)],
        [_LESS_NAN],
    ),
    "a mean of rows": Row(
        "reduced_product",
        lambda x, w, b: F.linear(x, w, b).mean(0),
        [_numbers(8, 6), _numbers(4, 6), _numbers(4)],
        [_LESS_NAN],
    ),
    "a sum of scaled features": Row(
        "reduced_product",
        lambda x, w, s: ((x @ w) * s).sum(-1),
        [_numbers(5, 6), _numbers(6, 4), _numbers(5, 1)],
        [_LESS_NAN],
    ),
    "global average pooling": Row(
        "reduced_product",
        lambda x, w, b: F.adaptive_avg_pool2d(F.conv2d(x, w, b, padding=1), 1),
        [_numbers(2, 3, 12, 12), _numbers(8, 3, 3, 3), _numbers(8)],
        [_LESS_NAN],
    ),
    "a sum of channels": Row(
        "reduced_product",
        lambda x, w, b: F.conv2d(x, w, b).sum(1),
        [_numbers(2, 3, 9, 9), _numbers(4, 3, 2, 2), _numbers(4)],
        [_LESS_NAN],
    ),
    "tril of a product": Row("triangle", lambda a, b: torch.tril(a @ b), _SQUARES),
    "triu of a product": Row("triangle", lambda a, b: torch.triu(a @ b), _SQUARES),
    "tril first": Row(
        "triangle",
        lambda a, b: torch.tril(a) @ b,
        _SQUARES,
        [Differs(_meets_a_zero(0, torch.tril), (NOT_A_NUMBER,), _FREE_NAN)],
    ),
    "triu first": Row(
        "triangle",
        lambda a, b: torch.triu(a) @ b,
        _SQUARES,
        [Differs(_meets_a_zero(0, torch.triu), (NOT_A_NUMBER,), _FREE_NAN)],
    ),
    "tril second": Row(
        "triangle",
        lambda a, b: a @ torch.tril(b),
        _SQUARES,
        [Differs(_meets_a_zero(1, torch.tril), (NOT_A_NUMBER,), _FREE_NAN)],
    ),
    "triu second": Row(
        "triangle",
        lambda a, b: a @ torch.triu(b),
        _SQUARES,
        [Differs(_meets_a_zero(1, torch.triu), (NOT_A_NUMBER,), _FREE_NAN)],
    ),
    "a symmetric product": Row("triangle", lambda a, b: a @ a.transpose(-1, -2) + b, _SQUARES),
    "a bilinear form": Row(
        "bilinear_form", lambda x, w, z: F.bilinear(x, z, w), [_numbers(5, 6), _numbers(7, 6, 4), _numbers(5, 4)]
    ),
    "casts": Row("canonicalise", lambda x: x.double().float().neg(), _X, huge=True, bits=True),
    "squares": Row("canonicalise", lambda x: x**2, _X, huge=True, bits=True),
    "negations": Row("canonicalise", lambda x: torch.atan2(x.neg().neg(), x), _X, huge=True, bits=True),
    "neutral operands": Row("constant_folding", lambda x: ((x * 1 - 0) / 1).neg(), _X, huge=True, bits=True),
    "uniform tensors": Row(
        "constant_folding", lambda x: x + torch.full((4, 6), INF) * torch.zeros(4, 6), _X, huge=True, bits=True
    ),
    "a zero with a sign": Row(
        "constant_folding", lambda x: torch.copysign(x, torch.zeros(4, 6).neg()), _X, huge=True, bits=True
    ),
    "views": Row("view_cleanup", _views, _X, huge=True, bits=True),
    "shared calls": Row("common_subexpressions", _shared, _X, huge=True, bits=True),
}


# ---------------------------------------------------------------- values at places


def _with_special_numbers(row: Row) -> Iterator[tuple[str, list[Tensor]]]:
    """Inputs with a number, or it and its negative, in one of them, or with two in two; and what they are."""
    for place, given in enumerate(row.inputs):
        if not given.is_floating_point():
            continue
        for number in (*SPECIAL, *(HUGE if row.huge else ())):
            for where, changed in _placed(given, number):
                yield f"{number} in input {place}: {where}", [*row.inputs[:place], changed, *row.inputs[place + 1 :]]
    for (place, one), (other_place, other) in itertools.combinations(enumerate(row.inputs), 2):
        if not one.is_floating_point() or not other.is_floating_point():
            continue
        for numbers in itertools.product((INF, 0.0), (INF, -INF, 0.0)):
            for (where, changed), (_, other_changed) in zip(*map(_placed, (one, other), numbers), strict=False):
                inputs = [*row.inputs]
                inputs[place], inputs[other_place] = changed, other_changed
                yield f"{numbers} in inputs {place} and {other_place}: {where}", inputs


def _placed(given: Tensor, number: float) -> Iterator[tuple[str, Tensor]]:
    flat, rows = given.reshape(-1), given.reshape(-1, given.shape[-1])
    middle = len(rows) // 2

    def changed(*changes: tuple[Any, float]) -> Tensor:
        copied = rows.clone()
        for index, value in changes:
            copied[index] = value
        return copied.reshape(given.shape)

    yield "first", changed(((0, 0), number))
    yield "last", changed(((-1, -1), number))
    yield "a row", changed((middle, number))
    yield "a column", changed(((slice(None), -1), number))
    yield "everywhere", changed((slice(None), number))
    if rows.shape[1] > 1:
        yield "two in a row", changed(((middle, slice(2)), number))
        yield "both signs in a row", changed(((middle, 0), number), ((middle, 1), -number))
    if len(flat) > rows.shape[1]:
        yield "both signs in a column", changed(((0, 0), number), ((1, 0), -number))


def _kinds(tensor: Tensor) -> Tensor:
    kinds = torch.where(tensor == INF, PLUS, torch.where(tensor == -INF, MINUS, FINITE))
    return torch.where(tensor.isnan(), NOT_A_NUMBER, kinds)


def _allowed(row: Row, inputs: Sequence[Tensor], before: Tensor, after: Tensor) -> list[Tensor]:
    """For each difference of a row, where a result is of another kind than eager mode's and that difference says so."""
    return [
        (before != after)
        & torch.isin(before, torch.tensor(differs.was))
        & torch.isin(after, torch.tensor(differs.becomes))
        & differs.places(*inputs)
        for differs in row.differs
    ]


def _assert_numbers(row: Row, expected: Tensor, actual: Tensor, *, what: str) -> None:
    """Finite results are the same too: bit by bit, or but for rounding."""
    both = expected.isfinite() & actual.isfinite()
    one, other = expected[both], actual[both]
    if row.bits:
        assert torch.equal(one.view(torch.int32), other.view(torch.int32)), what
    elif one.numel():
        largest = float(one.abs().max())
        assert float((one - other).abs().max()) <= 1e-5 * largest + 1e-6, what


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_FEWEST_ENTRIES", 4), ("_FEWEST_PRODUCTS", 1)):
        monkeypatch.setattr(f"opsmith.compile.traced.triangles.{name}", value)


def _assert_row(row: Row, compiled: Callable[..., Tensor]) -> set[int]:
    """Compare for all inputs; returns which of the differences are there."""
    seen: set[int] = set()
    for what, inputs in _with_special_numbers(row):
        expected, actual = row.function(*inputs), compiled(*inputs)
        before, after = _kinds(expected), _kinds(actual)
        wrong = before != after
        for place, allowed in enumerate(_allowed(row, inputs, before, after)):
            seen |= {place} if allowed.any() else set()
            wrong &= ~allowed
        assert [] == wrong.nonzero().tolist(), what
        _assert_numbers(row, expected, actual, what=what)
    return seen


def test_every_pass_has_a_row() -> None:
    """Whoever adds a pass says what it does to infinities and NaN.

    Dead code has no values, and CUDA's libraries do not run here.
    """
    assert {one.name for one in BUILT_IN} - {"dead_code", ATTENTION_CALLS} == {row.name for row in ROWS.values()}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_not_finite_comes_out_as_in_eager_mode(name: str) -> None:
    """Or as the row says, at no other places and as nothing else; what a row says and is not so goes from the row."""
    row, reports = ROWS[name], list[PassReport]()
    torch._dynamo.reset()
    compiled = torch.compile(row.function, backend=in_aten(choose_passes(row.name), reports), dynamic=False)
    with torch.no_grad():
        seen = _assert_row(row, compiled)
    assert [*range(len(row.differs))] == sorted(seen)
    assert [row.name] == [one.name for one in reports if one.fired]
    assert [] == [one.undone for one in reports if one.undone]


def _halved_last(x: Tensor) -> Tensor:
    return 0.5 * (x * (1 + torch.erf(x / math.sqrt(2))))


_LARGE_ROW = torch.full((2, 4), 2e38)
#: A function in which a pass finds something, numbers that overflow on the way, and kinds in eager mode and after it.
OVERFLOWS: dict[str, tuple[Row, int, int]] = {
    "a large exponential": (Row("softmax", _unshifted, [torch.full((2, 4), 100.0)]), NOT_A_NUMBER, FINITE),
    "a row of small exponentials": (Row("softmax", _unshifted, [torch.full((2, 4), -200.0)]), NOT_A_NUMBER, FINITE),
    "a small probability": (
        Row("softmax", lambda x: torch.log(F.softmax(x, -1))[:, :1], [torch.tensor([[0.0, 200.0]])]),
        MINUS,
        FINITE,
    ),
    # Fused attention divides by the sum of exponentials in the end.
    "huge values": (
        Row("attention", _attention, [torch.full((2, 3, 5, 4), one) for one in (0.0, 0.0, 2e38)]),
        FINITE,
        PLUS,
    ),
    "a row whose sum is infinite": (Row("layer_norm", _layer_norm_of_var, [_LARGE_ROW]), MINUS, FINITE),
    "a product that is halved last": (Row("gelu", _halved_last, [_LARGE_ROW]), PLUS, FINITE),
    "an inner product": (
        Row(
            "product_order",
            lambda x, a, b: x @ (a @ b),
            [torch.full((8, 8), 1e-20), torch.full((8, 1), 1e20), torch.full((1, 8), 1e20)],
        ),
        PLUS,
        FINITE,
    ),
    "an inner product of the cheaper order": (
        Row(
            "product_order",
            lambda x, a, b: x @ (a @ b),
            [torch.full((8, 8), 1e20), torch.full((8, 1), 1e20), torch.full((1, 8), 1e-20)],
        ),
        FINITE,
        PLUS,
    ),
    "a window's sum": (
        Row(
            "pooled_convolution",
            lambda x, w: F.avg_pool2d(F.conv2d(x, w), 2),
            [torch.ones(1, 1, 8, 8), torch.full((4, 1, 1, 1), 1e38)],
        ),
        PLUS,
        FINITE,
    ),
    "a sum of columns": (
        Row(
            "reduced_product",
            lambda x, w: (x @ w).sum(-1),
            [torch.full((4, 4), 1e-10), torch.full((4, 4), 1e38)],
        ),
        FINITE,
        PLUS,
    ),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_overflows_is_what_the_documentation_names(name: str) -> None:
    """Finite numbers whose sums or products are infinite in one order and not in another."""
    row, before, after = OVERFLOWS[name]
    torch._dynamo.reset()
    reports: list[PassReport] = []
    compiled = torch.compile(row.function, backend=in_aten(choose_passes(row.name), reports), dynamic=False)
    with torch.no_grad():
        results = [_kinds(function(*row.inputs)) for function in (row.function, compiled)]
    assert [{before}, {after}] == [set(one.flatten().tolist()) for one in results]
    assert [row.name] == [one.name for one in reports if one.fired]


def test_where_a_pass_differs_is_what_it_says_and_the_documentation_repeats() -> None:
    """``opsmith explain`` prints it; exact passes say nothing."""
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "compile.md").read_text()
    rows = (*ROWS.values(), *(row for row, *_ in OVERFLOWS.values()))
    exact = {row.name for row in rows} - {row.name for row in rows if row.differs or not row.huge}
    assert exact | {"dead_code"} == {one.name for one in BUILT_IN if one.differs is None}
    assert [] == [one.name for one in BUILT_IN if one.differs and f"| `{one.name}` | {one.differs} |" not in page]
