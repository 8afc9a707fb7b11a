from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, tiles_of_a_device, values

from opsmith.kernels.common import lanes
from opsmith.kernels.common.launch import launch
from opsmith.kernels.common.windows import NO_WINDOW, Window
from opsmith.kernels.convolution import (
    convolution_operands,
    depthwise_gradients,
    depthwise_patches,
    filter_gradients,
    implicit_gemm,
    packed_elements,
)
from opsmith.kernels.convolution.convolution_operands import Sides
from opsmith.kernels.convolution.depthwise_gradients import Block
from opsmith.kernels.convolution.depthwise_patches import cut_of, has_channels_inside, laid_out_as, part_of
from opsmith.kernels.convolution.kernel_rows import reads_kernel_rows
from opsmith.kernels.convolution.packed_elements import longest_word
from opsmith.kernels.convolution.sliding import Sliding, walk_of
from opsmith.kernels.matmul import matmul
from opsmith.kernels.reductions import reductions

FORWARD, BACKWARD = "convolution.default", "convolution_backward.default"

#: Name: shapes of input and weight, stride, padding, dilation, transposed, output_padding, groups.
CALLS: dict[str, tuple[Any, ...]] = {
    "planes": ((2, 17, 5, 4), (6, 17, 2, 2), [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
    "lines": ((2, 5, 9), (4, 5, 3), [1], [1], [1], False, [0], 1),
    "planes with strides that leave a rest": ((2, 17, 8, 7), (6, 17, 3, 2), [3, 2], [1, 0], [1, 1], False, [0, 0], 1),
    "volumes": ((2, 3, 4, 5, 4), (2, 3, 2, 3, 1), [1, 2, 1], [0, 1, 0], [2, 1, 1], False, [0, 0, 0], 1),
    "one position": ((3, 20, 4, 4), (18, 20, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "images of one position": ((17, 20, 1, 1), (18, 20, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "transposed, images of one position": ((3, 20, 1), (20, 7, 1), [1], [0], [1], True, [0], 1),
    "every other position": ((2, 4, 5, 5), (3, 4, 1, 1), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    "groups": ((2, 12, 5, 5), (6, 4, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 3),
    "groups that are joined": ((2, 16, 4, 4), (32, 4, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    "depthwise": ((2, 6, 7, 6), (6, 1, 3, 5), [1, 2], [1, 2], [2, 1], False, [0, 0], 6),
    "depthwise, eight places a lane": ((2, 5, 21, 20), (5, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 5),
    "depthwise, strides": ((2, 3, 11, 13), (3, 1, 3, 3), [3, 2], [1, 0], [1, 2], False, [0, 0], 3),
    "depthwise, a large window": ((1, 3, 11, 9), (3, 1, 9, 9), [2, 1], [4, 4], [1, 1], False, [0, 0], 3),
    "depthwise lines": ((2, 4, 30), (4, 1, 5), [1], [2], [1], False, [0], 4),
    "depthwise volumes": ((1, 2, 4, 6, 5), (2, 1, 3, 2, 3), [1, 2, 1], [1, 0, 1], [1, 1, 1], False, [0, 0, 0], 2),
    "depthwise, words of four": ((2, 3, 9, 8), (3, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 3),
    "depthwise, words of four and two": ((2, 3, 9, 12), (3, 1, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 3),
    "depthwise, dilated words": ((1, 2, 8, 12), (2, 1, 3, 3), [1, 1], [2, 3], [2, 3], False, [0, 0], 2),
    "depthwise, sixteen places a lane": ((1, 8, 32, 40), (8, 1, 2, 2), [1, 1], [0, 1], [1, 1], False, [0, 0], 8),
    "depthwise lines of words": ((1, 2, 520), (2, 1, 4), [1], [3], [2], False, [0], 2),
    "depthwise, one in parts": ((1, 3, 10, 8), (3, 1, 5, 5), [1, 1], [2, 2], [1, 1], False, [0, 0], 3),
    "depthwise, a long row of taps": ((1, 2, 2, 52), (2, 1, 1, 51), [1, 1], [0, 25], [1, 1], False, [0, 0], 2),
    "depthwise volumes in parts": ((1, 2, 4, 5, 8), (2, 1, 3, 3, 3), [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 2),
    "two sites a channel": ((2, 4, 5, 5), (8, 1, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 4),
    "transposed": ((2, 5, 4, 3), (5, 4, 3, 4), [2, 1], [1, 0], [1, 1], True, [1, 0], 1),
    "transposed with many channels": ((1, 18, 3, 3), (18, 17, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    "transposed, gaps between windows": ((1, 3, 3, 3), (3, 2, 1, 2), [3, 2], [0, 0], [1, 1], True, [2, 1], 1),
    "transposed, stride and dilation share a factor": ((1, 2, 5), (2, 3, 3), [4], [3], [6], True, [3], 1),
    "transposed, stride and dilation do not": ((1, 4, 4, 4), (4, 2, 3, 3), [3, 2], [2, 1], [2, 3], True, [1, 1], 2),
    "transposed depthwise": ((2, 4, 4, 4), (4, 1, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 4),
    "transposed depthwise, parts": ((2, 4, 5, 4), (4, 1, 4, 4), [2, 2], [1, 1], [1, 1], True, [0, 0], 4),
    "windows that see no input": ((1, 2, 2), (3, 2, 1), [1], [3], [1], False, [0], 1),
}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def operands(name: str, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """Input, weight, bias and the rest of a call."""
    shape, weight_shape, *rest = CALLS[name]
    bias = weight_shape[1] * rest[5] if rest[3] else weight_shape[0]
    return (
        values(*shape, dtype=dtype, scale=1),
        values(*weight_shape, dtype=dtype, scale=0.5),
        values(bias, dtype=dtype),
        *rest,
    )


def gradients(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *rest: Any) -> tuple[Any, ...]:
    """The arguments of the backward op."""
    out = eager(FORWARD)(x, weight, bias, *rest)
    return values(*out.shape, dtype=x.dtype, scale=1), x, weight, list(bias.shape), *rest


def assert_close(ours: torch.Tensor, exact: torch.Tensor) -> None:
    """Close to what float64 says, of the sums of these tests."""
    close = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float64: 1e-12}.get(ours.dtype, 1e-4)
    torch.testing.assert_close(ours.double(), exact, rtol=close, atol=close)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_convolutions_agree_with_float64(name: str, dtype: torch.dtype) -> None:
    """Every way of sliding; half types are copied for tensor cores."""
    x, weight, bias, *rest = operands(name, dtype)
    exact = eager(FORWARD)(x.double(), weight.double(), bias.double(), *rest)
    ours = kernel(FORWARD)(x, weight, bias, *rest)
    assert ours.dtype == dtype
    assert_close(ours, exact)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_agree_with_float64(name: str, dtype: torch.dtype) -> None:
    """By input, weight and bias."""
    grad, x, weight, *rest = gradients(*operands(name, dtype))
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *rest, [True] * 3)
    for ours, expected in zip(kernel(BACKWARD)(grad, x, weight, *rest, [True] * 3), exact, strict=True):
        assert ours.dtype == dtype
        assert_close(ours, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_other_types_are_served(dtype: torch.dtype) -> None:
    """As the two of the other tests."""
    for name in ("one position", "depthwise"):
        x, weight, bias, *rest = operands(name, dtype)
        exact = eager(FORWARD)(x.double(), weight.double(), bias.double(), *rest)
        assert_close(kernel(FORWARD)(x, weight, bias, *rest), exact)


def test_images_of_one_position_take_a_launch_for_each_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products and a sum, of matrices that need no copies; and float32 stays that, whatever products may do."""
    launched = []
    for module in (matmul, convolution_operands, reductions):
        monkeypatch.setattr(module, "launch", lambda *args, **meta: launched.append((args[0], meta)))
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        kernel(BACKWARD)(*gradients(*operands("images of one position")), [True] * 3)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert 3 == len(launched)
    assert "tf32" not in {meta.get("PRECISION") for _kernel, meta in launched}


@pytest.mark.parametrize("name", ["one position", "planes with strides that leave a rest", "transposed", "depthwise"])
def test_tiles_turned_for_their_lanes_hold_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which releases of Triton have turned, and which not, decides about speed alone.

    Of whole numbers, whose sums are exact: how numpy multiplies a matrix depends on how it lies.
    """
    arguments = [one.mul(4).round() if isinstance(one, torch.Tensor) else one for one in operands(name)]
    expected = kernel(FORWARD)(*arguments)
    monkeypatch.setattr(lanes, "_FIRST_WINS", tl.constexpr(value=True))
    assert torch.equal(kernel(FORWARD)(*arguments), expected)


@pytest.mark.parametrize("name", ["planes", "volumes", "depthwise", "transposed"])
@pytest.mark.parametrize("which", ["input", "weight"])
def test_results_are_channels_last_where_an_argument_is(name: str, which: str) -> None:
    """As eager's, forward and backward."""
    x, weight, bias, *rest = operands(name)
    memory_format = CHANNELS_LAST[x.ndim]
    if which == "input":
        x = x.to(memory_format=memory_format)
    else:
        weight = weight.to(memory_format=memory_format)
    assert_as_eager(FORWARD, x, weight, bias, *rest)
    arguments = gradients(x, weight, bias, *rest)
    for ours, eagers in zip(
        kernel(BACKWARD)(*arguments, [True] * 3), eager(BACKWARD)(*arguments, [True] * 3), strict=True
    ):
        assert ours.stride() == eagers.stride()


def test_gaps_between_elements_are_stepped_over() -> None:
    """Strides that no memory format has, of every operand."""
    x, weight, bias, *rest = operands("planes with strides that leave a rest")
    gapped = [values(*t.shape[:-1], 2 * t.shape[-1])[..., ::2] for t in (x, weight, bias)]
    assert_close(kernel(FORWARD)(*gapped, *rest), eager(FORWARD)(*(t.double() for t in gapped), *rest))
    x, weight, bias, *rest = operands("depthwise")
    bias = bias.repeat_interleave(2)[::2]
    assert_close(
        kernel(FORWARD)(x, weight, bias, *rest), eager(FORWARD)(*(t.double() for t in (x, weight, bias)), *rest)
    )


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [False, False, True]])
def test_only_the_gradients_asked_for_are_computed(mask: list[bool]) -> None:
    """The others are None."""
    assert [result is not None for result in kernel(BACKWARD)(*gradients(*operands("lines")), mask)] == mask


@pytest.mark.parametrize(
    "name", ["groups that are joined", "planes with strides that leave a rest", "transposed with many channels"]
)
def test_a_device_has_the_sum_split_and_adds_it_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both kinds of product, with a bias that is added once."""
    arguments = operands(name)
    expected = eager(FORWARD)(*(t.double() for t in arguments[:3]), *arguments[3:])
    grad, x, weight, *rest = gradients(*arguments)
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *rest, [True] * 3)
    tiles_of_a_device(monkeypatch, multiprocessors=64)
    for module in (implicit_gemm, filter_gradients):
        monkeypatch.setattr(module, "INTERPRETED", False)
        monkeypatch.setattr(module, "_splits", lambda _programs, steps, _device: min(steps, 3))
    assert_close(kernel(FORWARD)(*arguments), expected)
    for ours, each in zip(kernel(BACKWARD)(grad, x, weight, *rest, [True] * 3), exact, strict=True):
        assert_close(ours, each)


#: Shapes of input and weight, stride, padding, dilation of calls of few channels.
ROWS = [
    ((2, 3, 15, 17), (5, 3, 7, 7), [2, 2], [3, 3], [1, 1]),
    ((1, 4, 9, 10), (3, 4, 3, 3), [1, 2], [0, 1], [2, 1]),
    ((2, 2, 13, 21), (4, 2, 5, 11), [3, 4], [1, 2], [1, 1]),
    ((3, 1, 8, 8), (6, 1, 2, 2), [2, 2], [0, 0], [1, 1]),
    ((2, 3, 33, 37), (20, 3, 16, 16), [16, 16], [0, 0], [1, 1]),
    ((1, 3, 4, 4), (17, 3, 4, 4), [4, 4], [0, 0], [1, 1]),
    ((1, 3, 5, 3), (2, 3, 1, 6), [1, 4], [0, 2], [1, 1]),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("call", ROWS)
def test_few_channels_are_read_by_rows_of_the_kernel(
    call: tuple[Any, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every layout, with a bias and without, in steps over several rows and in steps within one."""
    shape, weight_shape, *rest = call
    rest += [False, [0, 0], 1]
    x, weight = values(*shape, dtype=dtype, scale=1), values(*weight_shape, dtype=dtype, scale=0.5)
    bias = values(weight_shape[0], dtype=dtype)
    exact = eager(FORWARD)(x.double(), weight.double(), bias.double(), *rest)
    without = eager(FORWARD)(x.double(), weight.double(), None, *rest)
    taken = []

    def launched(*args: Any, **meta: Any) -> None:
        taken.append((args[10], meta["WALK_S"][2].kernel))
        launch(*args, **meta)

    monkeypatch.setattr(implicit_gemm, "launch", launched)
    for last in (False, True):
        own = [t.contiguous(memory_format=torch.channels_last) if last else t for t in (x, weight)]
        assert_close(kernel(FORWARD)(*own, bias, *rest), exact)
        assert_close(kernel(FORWARD)(*own, None, *rest), without)
    assert_close(kernel(FORWARD)(x.mT.contiguous().mT, weight.mT.contiguous().mT, bias, *rest), exact)
    monkeypatch.setattr(implicit_gemm, "INTERPRETED", False)
    with implicit_gemm.IMPLICIT_GEMM.force((32, 64, 16, 4, 1, 1)):
        assert_close(kernel(FORWARD)(x, weight, bias, *rest), exact)
    assert {(4 * weight_shape[3], 1)} == set(taken)


def test_a_transposed_convolution_to_few_channels_has_its_gradient_by_rows() -> None:
    """By its input, which is a convolution of the gradient."""
    x, weight = values(2, 18, 5, 6, dtype=torch.float16, scale=1), values(18, 3, 4, 4, dtype=torch.float16, scale=0.5)
    rest = ([2, 2], [1, 1], [1, 1], True, [1, 1], 1)
    grad = values(*eager(FORWARD)(x, weight, None, *rest).shape, dtype=torch.float16, scale=1)
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), [3], *rest, [True, False, False])[0]
    assert_close(kernel(BACKWARD)(grad, x, weight, [3], *rest, [True, False, False])[0], exact)


def test_which_convolutions_read_rows_of_the_kernel() -> None:
    """Those of images in a half type with four channels at most, and with windows that move by an even stride."""

    def reads(*, dtype: torch.dtype = torch.float16, channels: int = 3, groups: int = 1, **width: int) -> bool:
        window = Window(7, 2, 3, 1)._replace(**width)
        rule = Sliding((NO_WINDOW, Window(7, 1, 3, 1), window), (1, 8, 4), False, groups)
        return reads_kernel_rows(torch.empty(1, channels, 8, 8, dtype=dtype), rule)

    assert reads()
    assert reads(stride=4, channels=4, dtype=torch.bfloat16)
    assert not any((reads(stride=1), reads(dilation=2), reads(kernel=1, padding=0)))
    assert not any((reads(channels=5), reads(groups=3), reads(dtype=torch.float32)))
    lines = Sliding((NO_WINDOW, NO_WINDOW, Window(7, 2, 3, 1)), (1, 1, 4), False, 1)
    assert not reads_kernel_rows(torch.empty(1, 3, 8, dtype=torch.float16), lines)


@pytest.mark.parametrize("name", ["planes", "groups that are joined", "transposed with many channels", "volumes"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_that_tensor_cores_would_cut_off_are_shared(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By programs of at most so many terms each, whose sums are added up in float32."""
    monkeypatch.setattr(matmul, "MOST_TERMS", 32)
    asked = []
    fewest = matmul.fewest_splits

    def counted(terms: int, *rest: Any) -> int:
        asked.append((terms, fewest(terms, *rest)))
        return asked[-1][1]

    for module in (implicit_gemm, filter_gradients):
        monkeypatch.setattr(module, "fewest_splits", counted)
    x, weight, bias, *rest = operands(name, dtype)
    assert_close(
        kernel(FORWARD)(x, weight, bias, *rest), eager(FORWARD)(*(t.double() for t in (x, weight, bias)), *rest)
    )
    grad, x, weight, *rest = gradients(x, weight, bias, *rest)
    mask = [True, True, False]
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *rest, mask)
    for ours, expected in zip(kernel(BACKWARD)(grad, x, weight, *rest, mask)[:2], exact[:2], strict=True):
        assert_close(ours, expected)
    assert max(splits for _, splits in asked) > 1
    assert all(terms <= 32 * splits for terms, splits in asked)


def test_what_is_not_finite_stays_within_its_windows() -> None:
    """A row of three columns has no fourth tap: zero times infinity would not be zero."""
    x, weight = torch.ones(1, 3, 9, 9, dtype=torch.float16), torch.ones(2, 3, 3, 3, dtype=torch.float16)
    x[0, 1, 4, 3], x[0, 2, 0, 8] = float("inf"), float("nan")
    rest = ([2, 2], [0, 0], [1, 1], False, [0, 0], 1)
    expected = eager(FORWARD)(x.float(), weight.float(), None, *rest).half()
    with np.errstate(all="ignore"):
        assert torch.equal(expected.nan_to_num(-1), kernel(FORWARD)(x, weight, None, *rest).nan_to_num(-1))


@pytest.mark.parametrize(
    ("channels", "taps", "size", "tile"),
    [
        (64, 1, 56, (64, 128, 64, 4, 2)),
        (128, 1, 56, (64, 128, 64, 4, 2)),
        (256, 1, 56, (128, 256, 64, 8, 3)),
        (64, 3, 56, (128, 256, 64, 8, 3)),
        (64, 1, 7, (64, 64, 64, 4, 4)),
    ],
)
def test_programs_of_few_steps_share_a_multiprocessor(
    channels: int, taps: int, size: int, tile: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first layers of a network of 1 x 1 convolutions have them; small tiles stay."""
    monkeypatch.setattr(implicit_gemm, "INTERPRETED", False)
    monkeypatch.setattr(implicit_gemm, "multiprocessors", lambda _device: 132)
    out = torch.empty(32, 256, size, size, dtype=torch.float16, device="meta")
    rule = Sliding((NO_WINDOW, Window(taps, 1, taps // 2, 1), NO_WINDOW), (1, size, size), False, 1)
    slid = implicit_gemm._slid(out, 1, rule, to_field=False)
    assert tile == implicit_gemm._plan(slid, channels, "channels", "ieee")[:5]


@pytest.mark.parametrize("layout", ["row-major", "channels-last"])
@pytest.mark.parametrize("name", ["planes", "lines", "volumes", "groups that are joined", "transposed"])
def test_partial_gradients_by_weight_are_turned_as_they_are_added_up(
    name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the channels under each tap side by side, however the gradient lies; and there may be many."""
    grad, x, weight, *rest = gradients(*operands(name, torch.bfloat16))
    if layout == "channels-last" and name != "lines":
        x = x.contiguous(memory_format=CHANNELS_LAST[x.ndim])
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *rest, [False, True, False])[1]
    tile = implicit_gemm.GemmTile(32, 32, 16, 4, 1)
    monkeypatch.setattr(filter_gradients, "_tile", lambda *_: tile)
    for most in (2, 12):
        monkeypatch.setattr(filter_gradients, "_splits", lambda _programs, steps, _device, most=most: min(steps, most))
        assert_close(kernel(BACKWARD)(grad, x, weight, *rest, [False, True, False])[1], exact)


GATHERED_CALLS = [name for name in CALLS if "depthwise" not in name and "images of one" not in name]


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("name", GATHERED_CALLS)
def test_factors_may_be_split_beforehand(name: str, splits: int) -> None:
    """Copies of both hold two parts of every number, whatever layout, stride, groups and number of channels."""
    x, weight, bias, *rest = operands(name)
    exact = eager(FORWARD)(x.double(), weight.double(), bias.double(), *rest)
    grad, *others = gradients(x, weight, bias, *rest)
    by_input = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *others[2:], [True, False, False])[0]
    with implicit_gemm.IMPLICIT_GEMM.force((32, 64, 16, 4, 1, splits, 1)):
        assert_close(kernel(FORWARD)(x, weight, bias, *rest), exact)
        assert_close(kernel(BACKWARD)(grad, *others, [True, False, False])[0], by_input)


def test_which_convolutions_may_have_their_factors_split() -> None:
    """Those in strict float32 with enough rows and channels, and with parts that are no burden; a stage has room."""

    def asked(precision: str, *sizes: int) -> bool:
        plans = implicit_gemm.IMPLICIT_GEMM.candidates(("float32", precision, "channels", 0, 9, 1, *sizes))
        return any(plan.beforehand for plan in plans)

    assert asked("tf32x3", 256, 51200, 256)
    assert not asked("tf32x3", 32, 51200, 256)
    assert not asked("tf32x3", 256, 51200, 8)
    assert not asked("tf32x3", 256, 1 << 21, 256)
    assert not asked("ieee", 256, 51200, 256)
    for plan in implicit_gemm.BEFOREHAND:
        assert 2 * (plan.o + plan.p) * plan.k * 4 * plan.stages <= matmul.SHARED_BYTES


def test_splitting_pays_where_several_taps_read_each_number() -> None:
    """With enough rows and channels, a tile for each multiprocessor, and memory for the parts."""

    def pays(rows: int, columns: int, channels: int, *, taps: int = 9, others: int = 1) -> bool:
        return implicit_gemm.splitting_pays(rows, columns, channels, taps, others)

    assert pays(256, 51200, 256)
    assert pays(64, 131072, 64)
    assert not pays(256, 51200, 256, taps=1)
    assert not pays(32, 51200, 256)
    assert not pays(256, 51200, 16)
    assert not pays(256, 8192, 256)
    assert pays(256, 8192, 256, others=2)
    assert not pays(256, 1 << 21, 256)
    assert [64, 64, 128, 128] == [implicit_gemm.split_plan(rows).o for rows in (33, 64, 65, 512)]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # Of numpy, which multiplies here.
def test_parts_of_what_is_not_finite_stay_where_they_belong() -> None:
    """An infinity meets numbers of one sign, also those of which nothing is left behind their first part."""
    x, weight, bias, *rest = operands("one position")
    x, weight = x[:, :17], weight[:, :17]
    x[0, 3, 2, 1], x[1, 5, 0, 2], weight[2, 1, 0, 0] = float("inf"), float("nan"), float("-inf")
    weight[0], weight[1, 3] = 1.0, -2.0
    with implicit_gemm.IMPLICIT_GEMM.force((32, 64, 16, 4, 1, 1, 1)):
        found = kernel(FORWARD)(x, weight, bias, *rest)
    torch.testing.assert_close(found, eager(FORWARD)(x, weight, bias, *rest), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_parts_are_tf32_numbers_of_one_sign() -> None:
    """With 22 bits of every number."""
    x = torch.cat([values(512, scale=1) * torch.logspace(-20, 37, 512), torch.tensor([1.0, -2.0, 3.5] * 16)])
    x = x.view(1, 16, -1)
    both = convolution_operands.channels_last(convolution_operands.operand_of(x, 1), 1, in_parts=True).tensor
    high, low = both.reshape(2, -1, 16).mT
    assert 0 == sum(int((part.contiguous().view(torch.int32) & 0x1FFF).count_nonzero()) for part in (high, low))
    assert torch.equal(high.sign(), x[0].sign())
    assert torch.equal(low.sign(), x[0].sign())
    assert ((x[0].double() - high.double() - low.double()) / x[0]).abs().max() <= 2.0**-21


@triton.jit  # type: ignore[untyped-decorator]
def quotients_kernel(out_ptr: tl.tensor, p_ptr: tl.tensor, factor: tl.tensor, shift: tl.tensor) -> None:
    """Of 16 numbers."""
    i = tl.arange(0, 16)
    tl.store(out_ptr + i, filter_gradients.quotient(tl.load(p_ptr + i), factor, shift))


@pytest.mark.parametrize("divisor", [2, 3, 4, 7, 49, 64, 3136, 65535, 65537, 2**30 + 1, 2**31 - 2, 2**31 - 1])
def test_quotients_by_multiplication_are_exact(divisor: int) -> None:
    """Around the multiples of the divisor, up to the largest number."""
    most = 2**31 - 1
    near = [k * divisor + step for k in (0, 1, 2, most // divisor // 2, most // divisor) for step in (-1, 0, 1)]
    p = torch.tensor([min(max(x, 0), most) for x in (*near, most)], dtype=torch.int32)
    out = torch.empty_like(p)
    factor, shift = filter_gradients.reciprocal(divisor)
    assert factor < 2**32
    launch(quotients_kernel, (1,), p.device, out, p, factor, shift)
    assert torch.equal(p // divisor, out)


@pytest.mark.parametrize(
    ("shape", "kernel_size", "divisors"),
    [
        ((2, 17, 9), (3,), 1),
        ((2, 17, 5, 4), (2, 2), 2),
        ((2, 17, 3, 4, 3), (2, 2, 1), 3),
        ((2, 17, 5, 1), (2, 1), 0),
        ((2, 3, 5, 4), (2, 2), 0),
    ],
)
def test_places_of_channels_side_by_side_are_found_without_divisions(
    shape: tuple[int, ...], kernel_size: tuple[int, ...], divisors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of lines, planes and volumes; not of planes a place wide, where nothing is divided, or of few channels."""
    taken = []

    def launched(function: Any, grid: Any, device: Any, *args: Any, **meta: Any) -> None:
        taken.append(len(args[-3] or ()))
        launch(function, grid, device, *args, **meta)

    monkeypatch.setattr(filter_gradients, "launch", launched)
    x, weight = values(*shape, dtype=torch.float16, scale=1), values(18, shape[1], *kernel_size, dtype=torch.float16)
    none = [0] * len(kernel_size)
    rest = ([1] * len(none), none, [1] * len(none), False, none, 1)
    grad = values(*eager(FORWARD)(x, weight, None, *rest).shape, dtype=torch.float16, scale=1)
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), [18], *rest, [False, True, False])[1]
    assert_close(kernel(BACKWARD)(grad, x, weight, [18], *rest, [False, True, False])[1], exact)
    assert [divisors] == taken


def test_an_empty_batch_gives_an_empty_result_and_no_gradient() -> None:
    """Zeros by the weight."""
    weight = values(3, 2, 3)
    rest = ([1], [0], [1], False, [0], 1)
    assert kernel(FORWARD)(torch.empty(0, 2, 5), weight, None, *rest).shape == (0, 3, 3)
    arguments = torch.empty(0, 3, 3), torch.empty(0, 2, 5), weight, [3], *rest, [True] * 3
    by_input, by_weight, by_bias = kernel(BACKWARD)(*arguments)
    assert by_input.shape == (0, 2, 5)
    assert not by_weight.any()
    assert not by_bias.any()
    arguments = torch.empty(0, 2, 3), torch.empty(0, 2, 5), values(2, 1, 3), [2], *rest[:-1], 2, [True] * 3
    assert not kernel(BACKWARD)(*arguments)[1].any()


def test_a_gradient_of_no_images_has_a_step_of_which_masks_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel tells the compiler."""
    taken = []

    def launched(function: Any, grid: Any, device: Any, *args: Any, **meta: Any) -> None:
        taken.append(args[-1].value)
        launch(function, grid, device, *args, **meta)

    monkeypatch.setattr(filter_gradients, "launch", launched)
    arguments = torch.empty(0, 3, 3), torch.empty(0, 2, 5), values(3, 2, 3), [3], [1], [0], [1], False, [0], 1
    assert not kernel(BACKWARD)(*arguments, [False, True, False])[1].any()
    assert [1] == taken


def test_no_number_is_lost_beside_infinity() -> None:
    """Zeros that fill up channels meet zeros only, and padding is not multiplied."""
    x = torch.full((1, 17, 4, 4), float("inf"))
    weight = torch.ones(2, 17, 3, 3)
    with np.errstate(all="ignore"):
        out = kernel(FORWARD)(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert torch.equal(out, torch.full_like(out, float("inf")))


def test_a_patch_of_places_that_do_not_all_exist_reads_nothing_for_them() -> None:
    """The last row of 13 is read under the last tap alone: 11 places are those of patches of four or six."""
    x = values(1, 2, 13, 5)
    x[:, :, -1] = float("inf")
    arguments = torch.ones(2, 1, 3, 3), [0], [1, 1], [0, 0], [1, 1], False, [0, 0], 2
    with np.errstate(all="ignore"):
        by_weight = kernel(BACKWARD)(torch.ones(1, 2, 11, 3), x, *arguments, [False, True, False])[1]
    assert by_weight[:, :, :2].isfinite().all()
    assert by_weight[:, :, 2].isinf().all()


def in_layout(x: torch.Tensor, *, inside: bool) -> torch.Tensor:
    """The same numbers with channels side by side, or row-major."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if inside else x.contiguous()


@pytest.mark.parametrize("name", ["depthwise", "depthwise lines", "depthwise, one in parts", "transposed depthwise"])
@pytest.mark.parametrize("inside", [(True, True), (True, False), (False, True)])
def test_depthwise_gradients_are_the_same_in_every_layout(
    name: str, inside: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels side by side in the input, in the gradient or in both, with weights laid out likewise."""
    monkeypatch.setattr(depthwise_patches, "WORTH_A_COPY", 1)
    summed = []
    by_weight = depthwise_gradients.depthwise_weight_gradient

    def watched(grad_weight: torch.Tensor, field: torch.Tensor, sites: torch.Tensor, rule: Sliding) -> None:
        summed.append((field, sites))
        by_weight(grad_weight, field, sites, rule)

    monkeypatch.setattr("opsmith.kernels.convolution.convolution.depthwise_weight_gradient", watched)
    arguments = operands(name, torch.bfloat16)
    arguments = in_layout(arguments[0], inside=inside[0]), *arguments[1:]
    grad, x, weight, *rest = gradients(*arguments)
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *rest, [True] * 3)
    found = kernel(BACKWARD)(in_layout(grad, inside=inside[1]), x, weight, *rest, [True] * 3)
    for ours, expected in zip(found, exact, strict=True):
        assert_close(ours, expected)
    [(field, sites)] = summed
    assert has_channels_inside(field) == has_channels_inside(sites) == inside[0]
    expected = eager(FORWARD)(*(t.double() for t in arguments[:3]), *arguments[3:])
    assert_close(kernel(FORWARD)(*arguments), expected)


def test_a_gradient_is_copied_only_from_another_layout() -> None:
    """Lanes that are neighbours in one tensor would read the other at a stride; one place has no layout."""
    x, other = values(2, 3, 4, 5), in_layout(values(2, 3, 4, 5), inside=True)
    assert laid_out_as(x, x) is x
    assert laid_out_as(other, other) is other
    assert laid_out_as(other, x).stride() == other.stride()
    assert laid_out_as(x, other).stride() == x.stride()
    assert torch.equal(laid_out_as(x, other), other)
    place = values(2, 3, 1, 1)
    assert laid_out_as(other, place) is place


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_words_begin_where_their_size_divides_the_address(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 8 bytes; less in views whose rows do not consist of those, which are convolved all the same."""
    sizes = set()

    def load(ptr: Any, mask: Any) -> Any:
        size = ptr.dtype.element_ty.primitive_bitwidth // 8
        sizes.add(size)
        assert not (ptr.handle.data[mask.handle.data] % size).any()
        return lanes.load_along_columns(ptr, mask)

    monkeypatch.setattr(packed_elements, "load_along_columns", load)
    most = 8 // dtype.itemsize
    whole = values(2, 3, 9, 8, dtype=dtype, scale=1)
    views = [
        (most, whole),
        (most // 2, whole.flatten()[most // 2 :][:216].view(1, 3, 9, 8)),
        (1, values(2, 3, 9, 9, dtype=dtype, scale=1)[..., :8]),
    ]
    rest = torch.ones(3, 1, 3, 3, dtype=dtype), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 3
    for word, x in views:
        assert longest_word(x) == word
        assert_close(kernel(FORWARD)(x, *rest), eager(FORWARD)(x.double(), rest[0].double(), *rest[1:]))
        grad = kernel(BACKWARD)(x, x, rest[0], [3], *rest[2:], [True] * 3)
        exact = eager(BACKWARD)(x.double(), x.double(), rest[0].double(), [3], *rest[2:], [True] * 3)
        for ours, expected in zip(grad, exact, strict=True):
            assert_close(ours, expected)
    assert sizes == {each for each in (8, 4, 2) if each >= dtype.itemsize}
    assert longest_word(whole.double()) == 1
    assert longest_word(whole.movedim(1, -1)) == 1


def test_patches_grow_along_what_windows_share() -> None:
    """Rows of words below each other; places of a row where channels lie side by side under a row of taps."""
    planes, wide = torch.empty(8, 16, 56, 56, dtype=torch.float16), Window(7, 1, 3, 1)
    small = [walk_of(window, to_field=False) for window in (NO_WINDOW, Window(3, 1, 1, 1), Window(3, 1, 1, 1))]
    row = [walk_of(window, to_field=False) for window in (NO_WINDOW, NO_WINDOW, wide)]
    cut = cut_of(planes, planes, small)
    assert (4, 4, [1, 4, 4]) == (cut.word, cut.read_word, [patch.places for patch in cut.patch_S])
    cut = cut_of(in_layout(planes, inside=True), in_layout(planes, inside=True), row)
    assert (1, 1, [1, 1, 8]) == (cut.word, cut.read_word, [patch.places for patch in cut.patch_S])


@pytest.mark.parametrize(
    ("sizes", "stride", "expected"),
    [
        ((1, 3, 3), 1, (1, 3, 3)),
        ((1, 7, 7), 1, (1, 1, 7)),
        ((1, 65, 1), 1, (1, 5, 1)),
        ((3, 3, 3), 1, (1, 3, 3)),
        ((1, 4, 4), 2, (1, 2, 4)),
        ((1, 7, 7), 2, (1, 7, 7)),
        ((1, 1, 51), 1, None),
    ],
)
def test_parts_divide_a_window_into_whole_phases(
    sizes: tuple[int, ...], stride: int, expected: tuple[int, ...] | None
) -> None:
    """Of up to twelve taps where they can; a row of taps is not cut."""
    windows = tuple(Window(size, stride if size > 1 else 1, 0, 1) for size in sizes)
    assert part_of(Sliding(windows, (1, 1, 1), False, 1), to_field=True) == expected


@pytest.mark.parametrize("name", ["depthwise, words of four", "depthwise, dilated words", "depthwise, one in parts"])
@pytest.mark.parametrize("layout", ["row-major", "channels inside"])
def test_a_device_has_the_sum_over_depthwise_sites_split(
    name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of few patches, whose partial sums a second launch adds up."""
    grad, x, weight, *rest = gradients(*operands(name))
    exact = eager(BACKWARD)(grad.double(), x.double(), weight.double(), *rest, [True] * 3)
    for module in (depthwise_patches, depthwise_gradients):
        monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(depthwise_gradients, "multiprocessors", lambda _device: 4)
    monkeypatch.setattr(depthwise_gradients, "_block", lambda *_, **__: Block(4, 2, 4))
    splits, add_splits = [], depthwise_gradients._add_splits

    def watched(grad_weight: torch.Tensor, partial: torch.Tensor) -> None:
        splits.append(partial.shape[0])
        add_splits(grad_weight, partial)

    monkeypatch.setattr(depthwise_gradients, "_add_splits", watched)
    grad, x = (in_layout(each, inside=layout != "row-major") for each in (grad, x))
    for ours, each in zip(kernel(BACKWARD)(grad, x, weight, *rest, [True] * 3), exact, strict=True):
        assert_close(ours, each)
    [found] = splits
    assert found > 1


def test_infinities_stay_in_their_group() -> None:
    """Of half types, too, whose groups of few channels are summed side by side for the weight's gradient."""
    x = values(1, 16, 3, 3, dtype=torch.bfloat16)
    x[:, 0] = float("inf")
    arguments = torch.ones(16, 4, 1, 1, dtype=torch.bfloat16), [1, 1], [0, 0], [1, 1], False, [0, 0], 4
    weight, *rest = arguments
    with np.errstate(all="ignore"):
        out = kernel(FORWARD)(x, weight, None, *rest)
        by_weight = kernel(BACKWARD)(torch.ones_like(out), x, weight, [0], *rest, [False, True, False])[1]
    assert out[:, 4:].isfinite().all()
    assert by_weight[4:].isfinite().all()


def test_taps_of_a_phase_are_those_that_hit_a_site() -> None:
    """For every stride, dilation and padding of small windows."""
    for stride in range(1, 7):
        for dilation in range(1, 7):
            walk = walk_of(Window(5, stride, 2, dilation), to_field=True)
            for phase in range(stride):
                hits = [k for k in range(5) if (phase + 2 - k * dilation) % stride == 0]
                ahead = phase + walk.ahead
                first = ahead // walk.common * walk.inverse % walk.period
                assert hits == (list(range(first, 5, walk.period)) if ahead % walk.common == 0 else [])
                assert len(hits) <= walk.most_taps


def test_groups_are_joined_while_they_have_few_channels() -> None:
    """Up to 32 channels, by powers of two that divide the number of groups, and only if that makes 16."""
    assert Sides(32, 4, 4).joined() == Sides(8, 16, 16)
    assert Sides(6, 8, 8).joined() == Sides(3, 16, 16)
    assert Sides(2, 4, 4).joined() == Sides(2, 4, 4)
    assert Sides(2, 64, 64).joined() == Sides(2, 64, 64)


@pytest.mark.parametrize(
    ("shape", "weight", "rest"),
    [
        ((1, 3, 5), (2, 4, 3), ([1], [0], [1], False, [0], 1)),
        ((1, 4, 2), (2, 4, 3), ([1], [0], [1], False, [0], 1)),
        ((1, 4, 5), (2, 4, 3), ([0], [0], [1], False, [0], 1)),
        ((1, 4, 5), (2, 4, 3), ([1], [-1], [1], False, [0], 1)),
        ((1, 4, 5), (3, 2, 3), ([1], [0], [1], False, [0], 2)),
        ((1, 4, 5), (4, 2, 3), ([2], [0], [1], True, [2], 1)),
    ],
)
def test_what_eager_refuses_is_refused(shape: tuple[int, ...], weight: tuple[int, ...], rest: tuple[Any, ...]) -> None:
    """Channels, sizes, strides and paddings that do not fit."""
    for convolution in (eager(FORWARD), kernel(FORWARD)):
        with pytest.raises((RuntimeError, ValueError)):
            convolution(torch.ones(shape), torch.ones(weight), None, *rest)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_one_tap_sum_over_many_channels(stride: int, groups: int) -> None:
    """Step by step over the channels; transposed and apart, most phases have no tap at all."""
    x = values(2, groups * 80, 6, 7, scale=0.2)
    weight, turned = values(groups * 20, 80, 1, 1, scale=0.2), values(groups * 80, 20, 1, 1, scale=0.2)
    for padding in (0, 1):
        rule = [stride, stride], [padding, padding], [1, 1]
        assert_as_eager("convolution.default", x, weight, None, *rule, False, [0, 0], groups)
        assert_as_eager("convolution.default", x, turned, None, *rule, True, [0, 0], groups)
