from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import MANIFEST, assert_as_eager, eager, kernel, values

from opsmith.kernels.attention import attention_backward, attention_forward
from opsmith.kernels.common import launch
from opsmith.kernels.matmul import matmul

CPU = "_scaled_dot_product_flash_attention_for_cpu.default"
FLASH = "_scaled_dot_product_flash_attention.default"
EFFICIENT = "_scaled_dot_product_efficient_attention.default"
CUDNN = "_scaled_dot_product_cudnn_attention.default"
FLASH_ROWS = "_flash_attention_forward.default"
EFFICIENT_ROWS = "_efficient_attention_forward.default"

_TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


#: B, H, heads of keys, M, N, D.
Sizes = tuple[int, int, int, int, int, int]


class Heads(NamedTuple):
    """The operands of a call and the gradient of its result."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad: torch.Tensor


class Expected(NamedTuple):
    """What float64 says."""

    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor
    dbias: torch.Tensor | None


def heads(sizes: Sizes, dtype: torch.dtype = torch.float32, columns: int | None = None) -> Heads:
    """Operands whose heads lie next to each other in a row, as projections leave them."""
    batch, count, key_count, queries, keys, size = sizes
    width = columns or size
    forms = (count, queries, size), (key_count, keys, size), (key_count, keys, width), (count, queries, width)
    return Heads(*(values(batch, rows, h, d, dtype=dtype, scale=1).transpose(1, 2) for h, rows, d in forms))


def textbook(
    given: Heads,
    bias: torch.Tensor | None = None,
    shift: int | None = None,
    scale: float | None = None,
    left: torch.Tensor | float = 1.0,
) -> Expected:
    """Attention and its gradients by the formula, in float64; a query that sees no key has 0 and ``-inf``.

    ``left`` is what a dropout left of the weights.
    """
    q, k, v = (x.double().requires_grad_() for x in given[:3])
    b = None if bias is None else bias.double().requires_grad_()
    group = q.shape[1] // k.shape[1]
    s = q @ k.repeat_interleave(group, 1).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s if b is None else s + b
    if shift is not None:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(shift), -math.inf)
    unseen = (s == -math.inf).all(-1, keepdim=True)
    p = s.masked_fill(unseen, 0).softmax(-1).masked_fill(unseen, 0)
    out = p * left @ v.repeat_interleave(group, 1)
    gradients = torch.autograd.grad(out, [q, k, v] if b is None else [q, k, v, b], given.grad.double())
    dq, dk, dv, *dbias = gradients
    return Expected(out.detach(), s.logsumexp(-1).detach(), dq, dk, dv, dbias[0] if dbias else None)


def assert_close(actual: torch.Tensor, expected: torch.Tensor | None, dtype: torch.dtype) -> None:
    """Compare what was computed in ``dtype`` with float64."""
    assert expected is not None
    tolerance = _TOLERANCE[dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def assert_flash(given: Heads, *, causal: bool, scale: float | None = None) -> None:
    """Compare flash attention and its gradients with the textbook, in values and in layout."""
    q, k, v, grad = given
    sizes = [q.shape[2], k.shape[2]]
    expected = textbook(given, shift=sizes[1] - sizes[0] if causal else None, scale=scale)
    out, lse, *rest = kernel(FLASH)(q, k, v, 0.0, causal, scale=scale)
    assert out.stride() == rows_like(q).stride()
    assert (lse.dtype, lse.shape) == (torch.float32, q.shape[:3])
    assert rest[:4] == [None, None, *sizes]
    assert [(x.dtype, tuple(x.shape)) for x in rest[4:]] == [(torch.uint64, (2,)), (torch.uint64, ()), (q.dtype, (0,))]
    assert_close(out, expected.out, q.dtype)
    assert_close(lse, expected.lse.masked_fill(expected.lse == -math.inf, math.inf), torch.float16)
    state = 0.0, causal, rest[4], rest[5]
    gradients = kernel(backward_of(FLASH))(grad, q, k, v, out, lse, None, None, *sizes, *state, scale=scale)
    for x, actual, due in zip((q, k, v), gradients, expected[2:5], strict=True):
        assert actual.stride() == rows_like(x).stride()
        assert_close(actual, due, q.dtype)


def rows_like(x: torch.Tensor) -> torch.Tensor:
    """What flash attention, which has rows before heads, makes of ``empty_like``."""
    return torch.empty_like(x.transpose(1, 2)).transpose(1, 2)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


def backward_of(op: str) -> str:
    """The overload that computes an overload's gradients."""
    return op.replace("_forward", "").replace(".default", "_backward.default")


# ---------------------------------------------------------------- against eager on a CPU


@pytest.mark.parametrize(
    ("dtype", "causal", "mask"),
    [
        (torch.float32, False, ()),
        (torch.float32, True, ()),
        (torch.float32, True, (1, 130)),
        (torch.float32, False, (1, 2, 70, 1)),
        (torch.float16, True, (70, 130)),
        (torch.bfloat16, False, ()),
    ],
)
def test_the_cpu_overload_agrees_with_eager(dtype: torch.dtype, *, causal: bool, mask: tuple[int, ...]) -> None:
    """Queries and keys of more than one block, shared keys, masks of every shape, heads of no power of two."""
    q, k, v, grad = heads((1, 2, 1, 70, 130, 40), dtype)
    bias = values(*mask, dtype=dtype) if mask else None
    whole = None if bias is None else bias.expand(1, 2, 70, 130)
    expected = textbook(Heads(q, k, v, grad), whole, 0 if causal else None)
    out, lse = kernel(CPU)(q, k, v, 0.0, causal, attn_mask=bias)
    gradients = kernel(backward_of(CPU))(grad, q, k, v, out, lse, 0.0, causal, attn_mask=bias)
    eagers = (
        *eager(CPU)(q, k, v, 0.0, causal, attn_mask=bias),
        *eager(backward_of(CPU))(grad, q, k, v, out, lse, 0.0, causal, attn_mask=bias),
    )
    for like, actual, due in zip(eagers, (out, lse, *gradients), expected[:5], strict=True):
        assert (like.dtype, like.stride()) == (actual.dtype, actual.stride())
        assert_close(actual, due, dtype)


def test_queries_that_see_no_key_have_zeros_on_the_cpu() -> None:
    """A row of -inf is no reason for NaN, neither in the result nor in gradients."""
    q, k, v, grad = heads((1, 2, 2, 5, 7, 8))
    mask = torch.zeros(5, 7)
    mask[2] = -math.inf
    assert_as_eager(CPU, q, k, v, attn_mask=mask)
    out, lse = kernel(CPU)(q, k, v, attn_mask=mask)
    assert not out[:, :, 2].any()
    assert not lse[:, :, 2].any()
    assert_as_eager(backward_of(CPU), grad, q, k, v, out, lse, 0.0, False, attn_mask=mask)


# ---------------------------------------------------------------- the overloads of a GPU


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 2, 2, 3, 5, 8),
        (1, 1, 1, 64, 128, 64),
        (1, 1, 1, 130, 70, 72),  # The first queries see no key.
        (1, 2, 1, 65, 65, 32),
        (2, 4, 2, 1, 70, 40),  # Queries that share keys make up a tile.
        (1, 1, 1, 3, 5, 256),
    ],
)
def test_flash_attention(shape: Sizes, *, causal: bool) -> None:
    """The last query sees all keys, each one before it one key less."""
    assert_flash(heads(shape, torch.float16), causal=causal)


def test_flash_attention_in_bfloat16() -> None:
    """Which the interpreter has no arithmetic for."""
    assert_flash(heads((1, 2, 1, 30, 40, 16), torch.bfloat16), causal=True)


def test_flash_attention_scales_as_asked() -> None:
    """Also by a factor that turns the order of the scores around."""
    assert_flash(heads((1, 2, 2, 20, 30, 16), torch.float16), causal=False, scale=-0.3)


def test_flash_attention_scales_up_as_asked() -> None:
    """By more than 1, which gradients are multiplied by as they are written."""
    given = heads((1, 2, 2, 20, 30, 16), torch.float16)
    assert_flash(given._replace(q=given.q / 8, k=given.k / 2), causal=False, scale=1.5)


@pytest.mark.parametrize("op", [FLASH, EFFICIENT, CUDNN])
def test_gradients_of_float16_are_finite_where_those_of_scores_are_not(op: str) -> None:
    """Those exceed 65504 until they are scaled, and keys and queries are small."""
    sizes, scale = (1, 1, 1, 16, 20, 64), 0.125
    q, k = (values(1, 1, rows, 64, dtype=torch.float16, scale=0.05) for rows in (16, 20))
    v, grad = (values(1, 1, rows, 64, dtype=torch.float16, scale=350) for rows in (20, 16))
    given = Heads(q, k, v, grad)
    expected = textbook(given)
    p = (q.double() @ k.double().mT * scale).softmax(-1)
    ds = p * (grad.double() @ v.double().mT - (grad.double() * expected.out).sum(-1, keepdim=True))
    assert ds.abs().max() > 65504 > 2 * scale * ds.abs().max()
    more = () if op == FLASH else (None, True)
    out, lse, *rest = kernel(op)(q, k, v, *more)
    state = rest[4:6] if op == FLASH else rest[:2] if op == EFFICIENT else rest[4:6]
    lengths = None, None, *sizes[3:5], 0.0, False
    calls = {
        FLASH: (*lengths, *state),
        EFFICIENT: (*state, 0.0, [True, True, True, False]),
        CUDNN: (*state, None, *lengths),
    }
    bias = (None,) if op == EFFICIENT else ()
    gradients = kernel(backward_of(op))(grad, q, k, v, *bias, out, lse, *calls[op])
    for actual, due in zip(gradients, expected[2:5], strict=False):
        assert actual is not None
        limit = 4e-3 * due.abs().max().item()
        torch.testing.assert_close(actual.double(), due, rtol=4e-3, atol=limit)


def test_flash_attention_of_every_layout() -> None:
    """Slices of one projection, expanded keys, strides that no vector access fits, an expanded gradient."""
    packed = values(2, 20, 3, 4, 24, dtype=torch.float16, scale=1)
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    shared = values(2, 20, 1, 24, dtype=torch.float16, scale=1).expand(2, 20, 4, 24).transpose(1, 2)
    odd = values(2, 4, 20, 25, dtype=torch.float16, scale=1)[..., :24]
    grad = torch.ones((), dtype=torch.float16).expand(2, 4, 20, 24)
    assert_flash(Heads(q, k, v, grad), causal=True)
    assert_flash(Heads(odd, shared, shared, grad), causal=False)


@pytest.mark.parametrize("empty", [(0, 2, 2, 5, 5, 8), (2, 2, 2, 0, 5, 8), (2, 2, 2, 5, 0, 8)])
def test_flash_attention_of_nothing(empty: Sizes) -> None:
    """No batches, no queries, no keys."""
    assert_flash(heads(empty, torch.float16), causal=False)


@pytest.mark.parametrize(
    ("dtype", "causal", "biased"),
    [
        (torch.float32, False, True),
        (torch.float32, True, False),
        (torch.float16, True, True),
        (torch.bfloat16, False, False),
    ],
)
def test_efficient_attention(dtype: torch.dtype, *, causal: bool, biased: bool) -> None:
    """A query sees the keys up to its own number; values are narrower than keys; logarithms are padded."""
    given = heads((1, 2, 2, 70, 130, 48), dtype, columns=24)
    q, k, v, grad = given
    bias = values(1, 1, 1, 144, dtype=dtype)[..., :130].expand(1, 2, 70, 130) if biased else None
    expected = textbook(given, bias, 0 if causal else None)
    out, lse, *state = kernel(EFFICIENT)(q, k, v, bias, True, 0.0, causal)
    assert out.stride() == grad.stride()
    assert [(x.dtype, tuple(x.shape)) for x in state] == [(torch.int64, ())] * 2
    assert lse.shape == (1, 2, 96)
    assert torch.isposinf(lse[..., 70:]).all()
    assert_close(out, expected.out, dtype)
    assert_close(lse[..., :70], expected.lse, dtype)
    mask = [True, True, True, biased]
    *gradients, dbias = kernel(backward_of(EFFICIENT))(grad, q, k, v, bias, out, lse, *state, 0.0, mask, causal)
    for x, actual, due in zip((q, k, v), gradients, expected[2:5], strict=True):
        assert actual.stride() == x.stride()
        assert_close(actual, due, dtype)
    if expected.dbias is None:
        assert dbias is None
    else:
        assert dbias.stride() == (2 * 70 * 144, 70 * 144, 144, 1)
        assert_close(dbias, expected.dbias, dtype)


def philox(seed: int, count: int) -> list[int]:
    """The four words of a counter, by Philox-4x32-10 as its authors have it."""
    low, high = seed % (1 << 32), seed >> 32
    words = [count % (1 << 32), count >> 32, 0, 0]
    for _ in range(10):
        first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [second >> 32 ^ words[1] ^ low, second, first >> 32 ^ words[3] ^ high, first]
        words = [word % (1 << 32) for word in words]
        low, high = (low + 0x9E3779B9) % (1 << 32), (high + 0xBB67AE85) % (1 << 32)
    return words


def left_by_eager(shape: tuple[int, ...], probability: float, seed: int, first: int) -> torch.Tensor:
    """What memory-efficient attention leaves of the weights: a word for each, in order, as cuRAND makes it uniform."""
    places = range(first, first + math.prod(shape))
    words = {count: philox(seed, count) for count in range(places[0] // 4, places[-1] // 4 + 1)}
    units = torch.tensor([words[place // 4][place % 4] for place in places]).float() * 2.0**-32 + 2.0**-33
    return (units > probability).double().view(shape) / (1 - probability)


def test_the_words_are_those_of_philox() -> None:
    """The authors' own answer for zeros."""
    assert [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8] == philox(0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("causal", "biased"), [(False, True), (True, False)])
def test_a_dropout_of_efficient_attention_is_eagers(dtype: torch.dtype, *, causal: bool, biased: bool) -> None:
    """By the state that is returned, from which eager's gradients would drop the same.

    Those of half types subtract what a rounded result says, which a textbook does not round.
    """
    given = heads((2, 2, 2, 20, 70, 16), dtype)
    q, k, v, grad = given
    bias = values(2, 2, 20, 70, dtype=dtype) if biased else None
    torch.manual_seed(4)
    before = torch.default_generator.get_state()
    out, lse, seed, first = kernel(EFFICIENT)(q, k, v, bias, True, 0.4, causal)
    assert not torch.equal(before, torch.default_generator.get_state())
    left = left_by_eager((2, 2, 20, 70), 0.4, seed.item() % (1 << 64), first.item())
    assert 0.3 < (left == 0).double().mean() < 0.5
    expected = textbook(given, bias, 0 if causal else None, left=left)
    assert_close(out, expected.out, dtype)
    assert_close(lse[..., :20], expected.lse, dtype)
    mask = [True, True, True, biased]
    gradients = kernel(backward_of(EFFICIENT))(grad, q, k, v, bias, out, lse, seed, first, 0.4, mask, causal)
    for actual, due in zip(gradients, expected[2:], strict=True):
        assert (actual is None and due is None) or actual is not None
        if actual is not None:
            assert_close(actual, due, dtype if dtype == torch.float32 else torch.bfloat16)


def test_a_dropout_goes_on_where_a_generator_was() -> None:
    """An offset beyond 32 bits that is no multiple of four, and a seed beyond 63."""
    given = heads((1, 2, 2, 5, 7, 8))
    seed, first = (1 << 63) + 5, (1 << 34) - 17
    expected = textbook(given, left=left_by_eager((1, 2, 5, 7), 0.5, seed, first))
    q, k, v, grad = (x.transpose(1, 2) for x in given)
    lse = torch.full((1, 2, 32), math.inf)
    lse[..., :5] = expected.lse
    state = torch.tensor(seed - (1 << 64)), torch.tensor(first)
    out = expected.out.float().transpose(1, 2)
    gradients = kernel(backward_of(EFFICIENT_ROWS))(
        grad, q, k, v, None, out, None, None, 5, 7, lse, 0.5, *state, 0, False
    )
    for actual, due in zip(gradients[:3], expected[2:5], strict=True):
        assert_close(actual.transpose(1, 2), due, torch.float32)


def test_efficient_attention_without_logarithms_or_gradients_of_the_bias() -> None:
    """Inference asks for neither; training of a model with a fixed mask for the first only."""
    q, k, v, grad = heads((1, 2, 2, 5, 7, 8))
    bias = torch.zeros(1, 2, 5, 7)
    bias[:, :, 2] = -math.inf
    out, lse, *state = kernel(EFFICIENT)(q, k, v, bias, False)
    assert lse.shape == (1, 2, 0)
    assert not out[:, :, 2].any()
    kept = kernel(EFFICIENT)(q, k, v, bias, True)[1]
    assert not kept[:, :, 2].any()
    *gradients, dbias = kernel(backward_of(EFFICIENT))(
        grad, q, k, v, bias, out, kept, *state, 0.0, [True, True, True, False]
    )
    assert dbias is None
    for actual, due in zip(gradients, textbook(Heads(q, k, v, grad), bias)[2:5], strict=True):
        assert_close(actual, due, torch.float32)


@pytest.mark.parametrize("shift", [None, 0, 7 - 5])
def test_inner_overloads_take_rows_before_heads(shift: int | None) -> None:
    """The kind of mask says which corner the diagonal starts from; sizes come back as numbers."""
    given = heads((2, 2, 2, 5, 7, 8))
    expected = textbook(given, shift=shift)
    q, k, v, grad = (x.transpose(1, 2) for x in given)
    kind = {None: 0, 0: 1, 2: 2}[shift]
    out, lse, *state, queries, keys = kernel(EFFICIENT_ROWS)(q, k, v, None, None, None, None, None, 0.0, kind, True)
    assert (queries, keys) == (5, 7)
    assert_close(out.transpose(1, 2), expected.out, torch.float32)
    gradients = kernel(backward_of(EFFICIENT_ROWS))(
        grad, q, k, v, None, out, None, None, 5, 7, lse, 0.0, *state, kind, False
    )
    for actual, due in zip(gradients[:3], expected[2:5], strict=True):
        assert_close(actual.transpose(1, 2), due, torch.float32)
    assert gradients[3] is None


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_a_ragged_batch_see_themselves(*, causal: bool) -> None:
    """Of several lengths, the longest ones elsewhere among queries than among keys; and logarithms by sequence."""
    q, k, v, grad = heads((1, 2, 2, 80, 170, 8))
    queries, keys = [0, 70, 71, 80], [0, 5, 140, 170]
    starts = (torch.tensor(each, dtype=torch.int32) for each in (queries, keys))
    rows = (x.transpose(1, 2) for x in (q, k, v))
    out, lse, *state = kernel(EFFICIENT_ROWS)(*rows, None, *starts, 70, 135, 0.0, int(causal), True)
    assert state[2:] == [70, 135]
    assert lse.shape == (3, 2, 96)
    for number in range(3):
        own, seen = (slice(each[number], each[number + 1]) for each in (queries, keys))
        count = own.stop - own.start
        given = Heads(q[:, :, own], k[:, :, seen], v[:, :, seen], grad[:, :, own])
        expected = textbook(given, shift=0 if causal else None)
        assert_close(out.transpose(1, 2)[:, :, own], expected.out, torch.float32)
        assert_close(lse[number : number + 1, :, :count], expected.lse, torch.float32)
        assert lse[number, :, count : -(-count // 32) * 32].isposinf().all()


def test_the_inner_overload_of_flash_attention() -> None:
    """As the outer one, of rows."""
    given = heads((2, 2, 2, 5, 7, 8), torch.float16)
    expected = textbook(given, shift=2)
    q, k, v, grad = (x.transpose(1, 2) for x in given)
    out, lse, *state, _ = kernel(FLASH_ROWS)(q, k, v, None, None, 5, 7, 0.0, True, False)
    assert out.stride() == q.stride()
    assert_close(out.transpose(1, 2), expected.out, torch.float16)
    none = torch.empty(0, dtype=torch.int32)
    gradients = kernel(backward_of(FLASH_ROWS))(grad, q, k, v, out, lse, none, none, 5, 7, 0.0, True, *state)
    for actual, due in zip(gradients, expected[2:5], strict=True):
        assert_close(actual.transpose(1, 2), due, torch.float16)


@pytest.mark.parametrize("logarithms", [False, True])
def test_cudnn_attention(*, logarithms: bool) -> None:
    """The result's dimensions lie in the order of the query's; logarithms have a column, or are absent."""
    given = heads((2, 4, 2, 20, 30, 16), torch.float16, columns=8)
    q, k, v, grad = given
    bias = values(4, 1, 30, dtype=torch.float16)
    expected = textbook(given, bias.expand(2, 4, 20, 30), 0)
    out, lse, *rest = kernel(CUDNN)(q, k, v, bias[None], logarithms, 0.0, True)
    assert out.stride() == grad.stride()
    assert (rest[:4], rest[6]) == ([None, None, 20, 30], None)
    assert_close(out, expected.out, torch.float16)
    if not logarithms:
        assert lse is None
        return
    assert_close(lse, expected.lse.unsqueeze(-1), torch.float16)
    state = *rest[4:6], bias[None], None, None, 20, 30, 0.0, True
    gradients = kernel(backward_of(CUDNN))(grad, q, k, v, out, lse, *state)
    for x, actual, due in zip((q, k, v), gradients, expected[2:5], strict=True):
        assert actual.stride() == x.stride()
        assert_close(actual, due, torch.float16)


# ---------------------------------------------------------------- as a device cuts the work


@pytest.fixture
def device_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a device with 64 multiprocessors."""
    for module in (attention_forward, attention_backward):
        monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(attention_forward, "multiprocessors", lambda _device: 64)


@pytest.mark.usefixtures("device_tiles")
@pytest.mark.parametrize(
    ("shape", "causal"),
    [((1, 2, 1, 1, 300, 16), False), ((1, 1, 1, 40, 300, 40), True)],
)
def test_keys_are_split_where_queries_are_few(shape: Sizes, *, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The averages of the splits are weighted with their sums; a split that a query does not see counts nothing."""
    grids = []

    def noted(kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
        grids.append(grid)
        launch.launch(kernel, grid, *args, **meta)

    monkeypatch.setattr(attention_forward, "launch", noted)
    assert_flash(heads(shape, torch.float16), causal=causal)
    assert grids[0][1] > 1


@pytest.mark.usefixtures("device_tiles")
@pytest.mark.parametrize(("dtype", "columns"), [(torch.float16, 64), (torch.float32, 24), (torch.float16, 200)])
def test_tiles_of_a_device(dtype: torch.dtype, columns: int) -> None:
    """Tiles of more queries than keys and of more keys than queries, along the diagonal and beside it."""
    given = heads((1, 1, 1, 150, 170, columns), dtype)
    q, k, v, grad = given
    bias = values(1, 1, 150, 170, dtype=dtype)
    expected = textbook(given, bias, 0)
    out, lse, *state = kernel(EFFICIENT)(q, k, v, bias, True, 0.0, True)
    assert_close(out, expected.out, dtype)
    gradients = kernel(backward_of(EFFICIENT))(grad, q, k, v, bias, out, lse, *state, 0.0, [True] * 4, True)
    for actual, due in zip(gradients, expected[2:6], strict=True):
        assert_close(actual, due, dtype)


@pytest.mark.parametrize("size", [200, 512])
def test_products_of_wide_heads_are_made_of_parts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on tensor cores, which the interpreter does not have: parts of 128 columns, and none is left out."""
    for module in (attention_forward, attention_backward):
        monkeypatch.setattr(module, "PRECISION", "tf32x3")
    given = heads((1, 2, 2, 37, 45, size))
    q, k, v, grad = given
    expected = textbook(given)
    out, lse, *state = kernel(EFFICIENT)(q, k, v, None, True)
    gradients = kernel(backward_of(EFFICIENT))(grad, q, k, v, None, out, lse, *state, 0.0, [True, True, True, False])
    for actual, due in zip([out, *gradients[:3]], [expected.out, *expected[2:5]], strict=True):
        assert_close(actual, due, q.dtype)


# ---------------------------------------------------------------- keys that are split beforehand


@pytest.mark.parametrize(("biased", "causal", "dropout"), [(False, False, 0.3), (True, True, 0.0), (True, False, 0.3)])
@pytest.mark.parametrize("sizes", [(2, 3, 3, 70, 90, 24), (1, 2, 2, 33, 130, 40)])
def test_keys_may_be_split_beforehand(sizes: Sizes, *, biased: bool, causal: bool, dropout: float) -> None:
    """Whatever the number of queries, keys and columns, and with all that attention may have besides."""
    q, k, v, _ = heads(sizes, columns=sizes[-1] + 9)
    bias = values(*sizes[:2], *sizes[3:5]) if biased else None
    torch.manual_seed(5)
    plain = kernel(EFFICIENT)(q, k, v, bias, True, dropout, causal)
    torch.manual_seed(5)
    with attention_forward.HEADS.force((32, 32, 4, 1, 1)):
        split = kernel(EFFICIENT)(q, k, v, bias, True, dropout, causal)
    for one, other in zip(split[:2], plain[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("biased", "causal", "dropout"), [(False, False, 0.3), (True, True, 0.0), (True, False, 0.3)])
@pytest.mark.parametrize("sizes", [(2, 1, 1, 70, 45, 24), (1, 2, 2, 130, 33, 40)])
def test_operands_of_gradients_may_be_split_beforehand(
    sizes: Sizes, *, biased: bool, causal: bool, dropout: float
) -> None:
    """Of queries, keys, values and the bias alike, the same as of whole ones."""
    q, k, v, grad = heads(sizes, columns=sizes[-1] + 9)
    bias = values(*sizes[:2], *sizes[3:5]) if biased else None
    out, lse, *state = kernel(EFFICIENT)(q, k, v, bias, True, dropout, causal)
    call = (grad, q, k, v, bias, out, lse, *state, dropout, [True] * 3 + [biased], causal)
    plain = kernel(backward_of(EFFICIENT))(*call)
    with (
        attention_backward.QUERY_TILES.force((32, 16, 4, 1, 1)),
        attention_backward.KEY_TILES.force((16, 32, 4, 1, 1)),
    ):
        split = kernel(backward_of(EFFICIENT))(*call)
    for one, other in zip(split[: 3 + biased], plain[: 3 + biased], strict=True):
        torch.testing.assert_close(one, other, rtol=5e-6, atol=5e-6)


def test_split_queries_are_added_up_for_the_heads_that_they_share() -> None:
    """As whole ones are."""
    given = heads((2, 6, 2, 40, 50, 16))
    q, k, v, grad = given
    expected = textbook(given, scale=0.25)
    rule = attention_forward.ScoreRule(0.25, None, None, 0.0)
    into = attention_backward.Gradients(*map(torch.empty_like, (q, k, v)))
    call = attention_backward.AttentionCall(grad, q, k, v, expected.out.float(), expected.lse.float())
    with (
        attention_backward.QUERY_TILES.force((32, 16, 4, 1, 1)),
        attention_backward.KEY_TILES.force((16, 32, 4, 1, 1)),
    ):
        attention_backward.attention_gradients(into, call, rule)
    for found, due in zip(into[:3], expected[2:5], strict=True):
        assert_close(found, due, torch.float32)


def test_split_keys_are_shared_by_heads_of_queries() -> None:
    """As whole ones are."""
    given = heads((2, 6, 2, 40, 50, 16))
    q, k, v, _ = given
    out = torch.empty_like(given.grad)
    with attention_forward.HEADS.force((32, 32, 4, 1, 1)):
        attention_forward.attend_heads(out, None, q, k, v, attention_forward.ScoreRule(0.25, None, None, 0.0))
    assert_close(out, textbook(given, scale=0.25).out, torch.float32)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # Of numpy, which multiplies here.
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_split_values_that_are_not_finite_stay_so(number: float) -> None:
    """An infinity in one column of a value makes that column of every query infinite, and no other."""
    q, k, v, _ = heads((1, 1, 1, 20, 40, 16))
    v = v.clone()
    v[0, 0, 7, 3] = number
    plain = kernel(EFFICIENT)(q, k, v, None, False)[0]
    with attention_forward.HEADS.force((32, 32, 4, 1, 1)):
        split = kernel(EFFICIENT)(q, k, v, None, False)[0]
    torch.testing.assert_close(split, plain, rtol=2e-6, atol=2e-6, equal_nan=True)
    assert torch.equal(torch.isfinite(split[0, 0, 0]), torch.arange(16) != 3)


def test_which_heads_may_have_their_keys_split() -> None:
    """Those of float32 with enough queries, of up to 128 columns, with parts that are no burden; a stage has room."""

    def asked(dtype: str, columns: int, heads: int, queries: int, keys: int) -> list[attention_forward.AttentionTile]:
        work = (dtype, 0, 0, columns, columns, heads, queries, keys)
        return [tile for tile in attention_forward.HEADS.candidates(work) if tile.beforehand]

    for columns in (16, 32, 64, 128):
        tiles = asked("float32", columns, 96, 1024, 1024)
        assert tiles
        for tile in tiles:
            assert 8 * columns * (tile.m + 2 * tile.n * tile.stages) <= matmul.SHARED_BYTES
    assert not asked("float32", 256, 96, 1024, 1024)
    assert not asked("float16", 64, 96, 1024, 1024)
    assert not asked("float32", 64, 96, 64, 1024)
    assert not asked("float32", 64, 96, 1024, 1 << 20)
    assert not asked("float32", 16, 1 << 16, 128, 16)
    assert attention_forward.HEADS.candidates(("float16", 1, 0, 64, 64, 96, 1024, 1024))


def test_which_gradients_may_have_their_operands_split() -> None:
    """The same, with enough queries and keys; a stage has room for all that a step reads."""
    queries, keys = attention_backward.QUERY_TILES.candidates, attention_backward.KEY_TILES.candidates
    for columns in (16, 32, 64):
        work = ("float32", 0, 0, columns, columns, 96, 1024, 1024)
        assert queries(work)
        assert keys(work)
        for tile in queries(work):
            assert 8 * columns * (2 * tile.m + 3 * tile.n * tile.stages) <= matmul.SHARED_BYTES
        for tile in keys(work):
            assert 8 * columns * (2 * tile.n + 4 * tile.m * tile.stages) <= matmul.SHARED_BYTES
    for work in (
        ("float32", 0, 0, 128, 64, 96, 1024, 1024),
        ("float32", 0, 0, 64, 64, 96, 64, 1024),
        ("float32", 0, 0, 64, 64, 96, 1024, 1 << 18),
    ):
        assert not queries(work)
        assert not keys(work)


def test_gradients_of_half_types_have_candidates() -> None:
    """A tile is no wider than twice the work, and a stage of what the loop reads fits beside what a program owns."""
    queries, keys = attention_backward.QUERY_TILES.candidates, attention_backward.KEY_TILES.candidates
    for columns in (16, 64, 128):
        work = ("float16", 1, 0, columns, columns, 96, 1024, 1024)
        assert not any(tile.beforehand for tile in (*queries(work), *keys(work)))
        for tile in queries(work):
            assert 2 * columns * 2 * (tile.m + tile.n * tile.stages) <= matmul.SHARED_BYTES
        for tile in keys(work):
            assert 2 * columns * 2 * (tile.n + tile.m * tile.stages) <= matmul.SHARED_BYTES
    assert {32} == {tile.m for tile in keys(("bfloat16", 0, 0, 64, 64, 96, 20, 64))}
    assert [] == queries(("float16", 0, 0, 256, 64, 96, 1024, 1024))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2, 2, 128, 128, 16), (1, 2, 1, 37, 45, 24), (1, 1, 1, 90, 20, 24)])
def test_gradients_of_half_types_with_any_tile(sizes: Sizes, *, causal: bool) -> None:
    """Whether queries and keys fill the last block or not, and where some queries see no key."""
    given = heads(sizes, torch.float16)
    for family, tiles in (
        (attention_backward.QUERY_TILES, attention_backward.HALF_QUERIES),
        (attention_backward.KEY_TILES, attention_backward.HALF_KEYS),
    ):
        for tile in tiles:
            with family.force(tile):
                assert_flash(given, causal=causal)


# ---------------------------------------------------------------- what is declined and refused


@pytest.mark.parametrize(
    ("op", "more"),
    [
        (FLASH, (0.1,)),
        (FLASH, (0.0, False, True)),
        (CUDNN, (None, False, 0.1)),
        (CPU, (0.1,)),
        (FLASH_ROWS, (torch.zeros(2), torch.zeros(2), 3, 5, 0.0, False, False)),
    ],
)
def test_dropout_and_ragged_batches_are_declined(op: str, more: tuple[Any, ...]) -> None:
    """Eager answers them."""
    q, k, v, _ = heads((1, 2, 2, 3, 5, 8), torch.float16)
    with pytest.raises(NotImplementedError):
        kernel(op)(q, k, v, *more)


@pytest.mark.parametrize("more", [(None, 0.1, 0), (None, 0.0, 2), (torch.zeros(1, 2, 5, 5), 0.0, 0)])
def test_ragged_batches_with_more_are_declined(more: tuple[torch.Tensor | None, float, int]) -> None:
    """What is numbered along all queries and keys, or from the end of a sequence."""
    bias, probability, kind = more
    q, k, v, _ = (x.transpose(1, 2) for x in heads((1, 2, 2, 5, 5, 8)))
    starts = [torch.tensor([0, 3, 5], dtype=torch.int32)] * 2
    with pytest.raises(NotImplementedError):
        kernel(EFFICIENT_ROWS)(q, k, v, bias, *starts, 3, 3, probability, kind)


def test_operands_that_do_not_fit_are_refused() -> None:
    """Several types, sizes that differ, heads that cannot be shared."""
    q, k, v, _ = heads((1, 2, 2, 3, 5, 8), torch.float16)
    for wrong in ((q, k, v.bfloat16()), (q, k[..., :4], v), (q, k, v[:, :, :4]), (q[:, :1], k, v), (q[0], k, v)):
        with pytest.raises((TypeError, ValueError)):
            kernel(FLASH)(*wrong)
    with pytest.raises(ValueError, match="as many heads"):
        kernel(EFFICIENT)(q, k[:, :1], v[:, :1], None, True)


# ---------------------------------------------------------------- behind the dispatcher


@pytest.fixture
def registered() -> Iterator[None]:
    """The overloads of a GPU, for tensors on the CPU."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        for op in MANIFEST:
            if "attention" in op and "for_cpu" not in op:
                library.impl(op.removesuffix(".default"), kernel(op), "CPU")
        yield


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("op", [FLASH, EFFICIENT, CUDNN])
def test_autograd_takes_results_to_gradients(op: str) -> None:
    """Absent tensors and numbers among the results pass through torch's own formulas."""
    given = heads((1, 2, 2, 5, 7, 8), torch.float16)
    q, k, v = (x.detach().requires_grad_() for x in given[:3])
    more = () if op == FLASH else (None, True)
    out = getattr(torch.ops.aten, op.removesuffix(".default"))(q, k, v, *more)[0]
    out.backward(given.grad)
    for x, due in zip((q, k, v), textbook(given)[2:5], strict=True):
        assert x.grad is not None
        assert_close(x.grad, due, torch.float16)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "columns", "dtype", "pays"),
    [
        (96, 1024, 1024, 64, torch.float32, True),
        (384, 128, 128, 64, torch.float32, True),
        (96, 1024, 1024, 32, torch.float32, True),
        (192, 128, 128, 64, torch.float32, False),
        (96, 1024, 1024, 64, torch.float16, False),
        (4096, 1, 65536, 64, torch.float32, False),
        (1024, 4096, 4096, 64, torch.float32, False),
    ],
)
def test_operands_are_split_beforehand_where_that_pays(
    monkeypatch: pytest.MonkeyPatch,
    heads: int,
    queries: int,
    keys: int,
    columns: int,
    dtype: torch.dtype,
    *,
    pays: bool,
) -> None:
    """With as much work as was measured, numbers that enough rows read, and room for their parts."""
    monkeypatch.setattr(attention_forward, "INTERPRETED", False)
    q, k, v = (torch.empty(1, heads, rows, columns, dtype=dtype, device="meta") for rows in (queries, keys, keys))
    assert pays == attention_forward.splitting_pays(q, v, heads * keys * 2 * columns)
    call = attention_backward.AttentionCall(q, q, k, v, q, q[..., 0])
    tile = attention_backward._beforehand(attention_backward.KEYS_BEFOREHAND, call)
    assert (tile and tile.stages) == ((2 if columns == 32 else 1) if pays else None)
