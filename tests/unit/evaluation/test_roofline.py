"""No kernel is faster than physics, and no honest one is called so.

The calls are real ones, made with tensors on torch's meta device: they have sizes, strides and shared storages,
and no memory. Times are held against the data sheet of an H200: 4.8 TB/s, 989 TFLOPS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from tests.described_calls import described, recorded, t, work, work_with_results

from opsmith.aten.schemas import aten_schemas
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.timing import Ceilings, Work
from opsmith.evaluation.criteria.rules import stem_of
from opsmith.evaluation.roofline.datasheets import datasheet_of
from opsmith.evaluation.roofline.limits import Plausibility, bound_us, impossible_us, judge_time
from opsmith.evaluation.roofline.reading import TABLE
from opsmith.evaluation.roofline.work import work_of

H200 = datasheet_of("NVIDIA H200")
assert H200 is not None

CEILINGS = Ceilings(
    device="NVIDIA H200",
    copy_gbps=4350,
    matmul_tflops={"bf16": 750.0, "f16": 720.0, "f32": 51.0, "f64": 60.0},
    l2_bytes=60 << 20,
    measured_utc="2026-11-01T00:00:00+00:00",
    torch="2.13.0",
)

#: Calls of a block, each on inputs of its own.
SETS = 8

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
N = 16384
#: Bytes of a bf16 matrix of N x N.
X_BYTES = 2 * N * N


def x() -> torch.Tensor:
    """A bf16 matrix of 537 MB, which an H200 moves once in 112 us."""
    return t(N, N)


def mask() -> torch.Tensor:
    """Truth values for each element of ``x()``."""
    return t(N, N, dtype=torch.bool)


def index(*shape: int) -> torch.Tensor:
    """Whole numbers, for indices."""
    return t(*shape, dtype=torch.int64)


def of_halves(op: str, *, shift: int = N) -> Work:
    """The op on the first N columns of a matrix and the N columns that start at ``shift``."""
    matrix = t(N, N + shift)
    return work(op, matrix[:, :N], matrix[:, shift:])


Call = Callable[[], Work]


def overlapping(op: str, *args: Any) -> Work:
    """The op on windows of 16 elements, each shifted by one, over 2 MB."""
    return work(op, torch.as_strided(t(1 << 20), (1 << 20, 16), (1, 1)), *args)


def with_itself(op: str, view: Callable[[torch.Tensor], torch.Tensor], size: int = N) -> Work:
    """The op on a matrix and a view of it."""
    matrix = t(size, size)
    return work(op, matrix, view(matrix))


def single(op: str, *args: Any, **kwargs: Any) -> Work:
    """The op on rows of one element."""
    return work(op, t(N * N, 1), *args, **kwargs)


def convolution(image: torch.Tensor, weight: torch.Tensor, *, stride: int, padding: int) -> Work:
    """A plain convolution in two dimensions."""
    twice = [stride] * 2, [padding] * 2, [1, 1]
    return work("convolution.default", image, weight, None, *twice, False, [0, 0], 1)


def into_itself(op: str, *others: Any) -> Work:
    """The op with its first argument as ``out=``."""
    matrix = x()
    return work(op, matrix, *others, out=matrix)


#: Calls with a time in microseconds that no kernel can reach.
IMPOSSIBLE: dict[str, tuple[float, Call]] = {
    "clone": (150, lambda: work("clone.default", x())),
    "clone of a transposed matrix": (
        150,
        lambda: work("clone.default", x().t(), memory_format=torch.contiguous_format),
    ),
    "relu": (150, lambda: work("relu.default", x())),
    "gelu out=": (150, lambda: work("gelu.out", x(), out=x())),
    "add": (250, lambda: work("add.Tensor", x(), x())),
    "add of integers": (450, lambda: work("add.Tensor", t(N, N, dtype=torch.int32), t(N, N, dtype=torch.int32))),
    "add out=": (250, lambda: work("add.out", x(), x(), out=x())),
    "add with a broadcast row": (150, lambda: work("add.Tensor", x(), t(N))),
    "mul": (250, lambda: work("mul.Tensor", x(), x())),
    "mul of neighbours in one storage": (250, lambda: of_halves("mul.Tensor")),
    "div": (250, lambda: work("div.Tensor", x(), x())),
    "sub of a number": (150, lambda: work("sub.Scalar", x(), 2.0)),
    "lt": (200, lambda: work("lt.Tensor", x(), x())),
    "gt zero": (120, lambda: work("gt.Scalar", x(), 0)),
    "addcmul": (350, lambda: work("addcmul.default", x(), x(), x())),
    "gelu backward": (250, lambda: work("gelu_backward.default", x(), x())),
    "in place add of another": (70, lambda: work("add_.Tensor", x(), x())),
    "relu in place": (70, lambda: work("relu_.default", x())),
    "fill in place": (70, lambda: work("fill_.Scalar", x(), 1.0)),
    "copy in place": (150, lambda: work("copy_.default", x(), x())),
    "normal in place": (70, lambda: work("normal_.default", x())),
    "cast": (250, lambda: work("_to_copy.default", x(), dtype=F32)),
    "zeros": (70, lambda: work("zeros_like.default", x())),
    "sum of all": (70, lambda: work("sum.default", x())),
    "sum of bool": (35, lambda: work("sum.default", mask())),
    "sum of rows": (70, lambda: work("sum.dim_IntList", x(), [1])),
    "mean": (70, lambda: work("mean.dim", x(), [0])),
    "amax": (70, lambda: work("amax.default", x(), [1])),
    "argmax": (70, lambda: work("argmax.default", x(), 1)),
    "norm": (70, lambda: work("linalg_vector_norm.default", x(), 2)),
    "var": (70, lambda: work("var.correction", x(), [1], correction=1)),
    "cumsum": (150, lambda: work("cumsum.default", x(), 1)),
    "sort": (300, lambda: work("sort.default", x(), 1)),
    "softmax": (150, lambda: work("_softmax.default", x(), -1, False)),
    "log_softmax backward": (250, lambda: work("_log_softmax_backward_data.default", x(), x(), 1, BF16)),
    "layer_norm": (150, lambda: work("native_layer_norm.default", x(), [N], t(N), t(N), 1e-5)),
    "group_norm": (150, lambda: work("native_group_norm.default", t(64, 256, N), None, None, 64, 256, N, 32, 1e-5)),
    "batch_norm": (
        150,
        lambda: work("native_batch_norm.default", t(64, 256, N), None, None, None, None, True, 0.1, 1e-5),
    ),
    "batch_norm that updates its statistics": (
        150,
        lambda: work("_native_batch_norm_legit.default", t(64, 256, N), None, None, t(256), t(256), True, 0.1, 1e-5),
    ),
    "cat": (300, lambda: work("cat.default", [x(), x()])),
    "stack of split parts": (150, lambda: work("stack.default", list(x().chunk(8)))),
    "flip": (150, lambda: work("flip.default", x(), [0])),
    "pad": (150, lambda: work("constant_pad_nd.default", x(), [1, 1])),
    "foreach add": (250, lambda: work("_foreach_add.List", [x()], [x()])),
    "results of where": (70, lambda: work("where.self", mask(), x(), x())),
    "results of masked_fill": (70, lambda: work("masked_fill.Scalar", x(), mask(), 0)),
    "results of index_select": (70, lambda: work("index_select.default", x(), 0, index(N))),
    "results of embedding": (70, lambda: work("embedding.default", t(1000, N), index(N))),
    "results of scatter": (70, lambda: work("scatter.src", x(), 0, index(1, N), t(1, N))),
    "results of threshold backward": (70, lambda: work("threshold_backward.default", x(), x(), 0)),
    "results of a convolution": (
        70,
        lambda: convolution(t(64, 3, 362, 362), t(64, 3, 3, 3), stride=1, padding=1),
    ),
    "results of max_pool2d": (
        100,
        lambda: work("max_pool2d_with_indices.default", t(64, 64, 256, 256), [2, 2], [2, 2]),
    ),
    "tril": (70, lambda: work("tril.default", x())),
    "bf16 product": (950, lambda: work("mm.default", t(8192, 8192), t(8192, 8192))),
    "bf16 product out=": (950, lambda: work("mm.out", t(8192, 8192), t(8192, 8192), out=t(8192, 8192))),
    "bf16 batched product": (950, lambda: work("bmm.default", t(64, 2048, 2048), t(64, 2048, 2048))),
    "addmm": (950, lambda: work("addmm.default", t(8192), t(8192, 8192), t(8192, 8192).t())),
    "baddbmm": (950, lambda: work("baddbmm.default", t(64, 1, 2048), t(64, 2048, 2048), t(64, 2048, 2048))),
    "f32 product through single TF32 products": (
        2750,
        lambda: work("mm.default", t(8192, 8192, dtype=F32), t(8192, 8192, dtype=F32)),
    ),
    "f64 product in f32": (700, lambda: work("mm.default", t(4096, 4096, dtype=F64), t(4096, 4096, dtype=F64))),
    "matrix times vector": (70, lambda: work("mv.default", x(), t(N))),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_less_work_than_physics_allows_is_impossible(name: str) -> None:
    """The evidence names what was done, in which time, and the device that cannot do it."""
    time_us, call = IMPOSSIBLE[name]
    judgement = judge_time(time_us, call(), datasheet=H200, ceilings=None, sets=SETS)
    assert Plausibility.IMPOSSIBLE == judgement.plausibility
    assert judgement.evidence.endswith("of an NVIDIA H200 (data sheet)")


#: Calls with a time in microseconds that a kernel reaches honestly, on some values at least.
HONEST: dict[str, tuple[float, Call]] = {
    # The cache.
    "what fits into the cache": (0.8, lambda: work("relu.default", t(1024, 1024))),
    "inputs and results of all calls in the cache": (1.0, lambda: work("add.Tensor", t(1024, 1024), t(1024, 1024))),
    # Elements that are there once.
    "expanded rows": (125, lambda: work("relu.default", t(1, N).expand(N, N))),
    "sum of an expanded element": (3, lambda: work("sum.default", t(1, 1).expand(N, N))),
    "clone that keeps an expanded layout": (3, lambda: work("sum.dim_IntList", t(1, N).expand(N, N), [0])),
    "columns of a large matrix": (5, lambda: work("sum.default", x()[:, :64])),
    "every sixteenth column": (9, lambda: work("sum.default", x()[:, ::16])),
    "transposed input": (240, lambda: work("relu.default", x().t())),
    "the same tensor twice": (240, lambda: with_itself("add.Tensor", lambda m: m)),
    "a tensor and its transpose": (240, lambda: with_itself("mul.Tensor", torch.t)),
    "overlapping windows": (3, lambda: overlapping("sum.default")),
    "overlapping halves": (240, lambda: of_halves("add.Tensor", shift=1)),
    "a copy of overlapping windows": (9, lambda: overlapping("clone.default")),
    # What the values choose.
    "index_select": (1, lambda: work("index_select.default", x(), 0, index(32))),
    "embedding": (1, lambda: work("embedding.default", x(), index(32))),
    "gather": (2, lambda: work("gather.default", x(), 0, index(1, N))),
    "index": (1, lambda: work("index.Tensor", x(), [index(32)])),
    "take": (1, lambda: work("take.default", x(), index(4096))),
    "embedding bag": (2, lambda: work("_embedding_bag.default", x(), index(64), index(2))),
    "grid sampler": (
        9,
        lambda: work("grid_sampler_2d.default", t(4, 64, 1024, 1024), t(4, 16, 16, 2), 0, 0, False),
    ),
    "upsampling to few": (9, lambda: work("upsample_nearest2d.default", t(4, 64, 1024, 1024), [16, 16])),
    "where all of one side": (240, lambda: work("where.self", mask(), x(), x())),
    "where with a number": (125, lambda: work("where.self", mask(), x(), t())),
    "masked_fill with a full mask": (180, lambda: work("masked_fill.Scalar", x(), mask(), 0)),
    "masked_fill in place, nothing masked": (65, lambda: work("masked_fill_.Scalar", x(), mask(), 0)),
    "dropout of nearly everything": (180, lambda: work("native_dropout.default", x(), 0.99, True)),
    "dropout backward, all dropped": (180, lambda: work("native_dropout_backward.default", x(), mask(), 2.0)),
    "threshold backward, all below": (240, lambda: work("threshold_backward.default", x(), x(), 0)),
    "hardtanh backward, all outside": (240, lambda: work("hardtanh_backward.default", x(), x(), -1, 1)),
    "product with a mask": (180, lambda: work("mul.Tensor", x(), mask())),
    "product with one number that may be zero": (125, lambda: work("mul.Tensor", x(), t())),
    "integers times zeros": (240, lambda: work("mul.Tensor", t(N, N, dtype=torch.int16), t(N, N, dtype=torch.int16))),
    "power of zeros": (240, lambda: work("pow.Tensor_Tensor", x(), x())),
    "loss of few classes": (9, lambda: work("nll_loss_forward.default", x(), index(N), None, 1, -100)),
    "bucketize": (9, lambda: work("searchsorted.Tensor", x(), t(N, 1))),
    "attention that a mask skips": (
        150,
        lambda: work("_scaled_dot_product_flash_attention.default", t(4, 64, 8192, 64), *2 * [t(4, 64, 8192, 64)]),
    ),
    # Answers that are known early, or before.
    "any": (2, lambda: work("any.default", mask())),
    "all": (2, lambda: work("all.default", mask())),
    "any by another name": (2, lambda: work("sum.dim_IntList", mask(), [0, 1], dtype=torch.bool)),
    "largest of bools": (2, lambda: work("amax.default", mask(), [0, 1])),
    "comparison with what bf16 cannot hold": (60, lambda: work("eq.Scalar", x(), 0.1)),
    "comparison with what f16 cannot reach": (60, lambda: work("gt.Scalar", t(N, N, dtype=torch.float16), 1e6)),
    "comparison with infinity": (60, lambda: work("lt.Scalar", x(), float("inf"))),
    "shrinking all of bf16": (125, lambda: work("softshrink.default", x(), 3e38)),
    "power of zero": (125, lambda: work("pow.Tensor_Scalar", x(), 0)),
    "times zero": (125, lambda: work("mul.Scalar", x(), 0)),
    "clamp to one value": (125, lambda: work("clamp.default", x(), 1, 1)),
    "rounding to tens of billions": (125, lambda: work("round.decimals", x(), decimals=-10)),
    "softmax of single elements": (125, lambda: single("_softmax.default", 1, False)),
    "index of the largest of one": (480, lambda: single("argmax.default", 1)),
    "variance of one": (125, lambda: single("var.correction", [1], correction=1)),
    "layer_norm of single elements": (700, lambda: single("native_layer_norm.default", [1], None, None, 1e-5)),
    # In place.
    "adding zeros": (120, lambda: work("add_.Tensor", x(), x())),
    "times one": (0.1, lambda: work("mul_.Scalar", x(), 1)),
    "plus zero": (0.1, lambda: work("add_.Scalar", x(), 0)),
    "leaky_relu with slope one": (0.1, lambda: work("leaky_relu_.default", x(), 1.0)),
    "relu of what is positive": (120, lambda: work("relu_.default", x())),
    "filled already": (120, lambda: work("zero_.default", x())),
    "a copy of itself": (0.1, lambda: with_itself("copy_.default", lambda m: m)),
    "scatter in place": (2, lambda: work("scatter_.src", x(), 0, index(1, N), t(1, N))),
    "index_put in place": (2, lambda: work("index_put_.default", x(), [index(16)], t(16, N))),
    "index_add in place": (2, lambda: work("index_add_.default", x(), 0, index(16), t(16, N))),
    "index_copy in place": (2, lambda: work("index_copy_.default", x(), 0, index(16), t(16, N))),
    "zeros added with out= on the input": (120, lambda: into_itself("add.out", x())),
    "relu with out= on the input": (120, lambda: into_itself("relu.out")),
    "foreach times one": (0.1, lambda: work("_foreach_mul_.Scalar", [x()], 1)),
    "an optimizer that is told to skip": (
        1,
        lambda: work_with_results(recorded("_fused_sgd_.default", [x()], [x()], [], found_inf=t(dtype=F32)), []),
    ),
    # A part is all that is asked for.
    "max_pool that skips": (9, lambda: work("max_pool2d_with_indices.default", t(64, 64, 256, 256), [1, 1], [16, 16])),
    "avg_pool that skips": (9, lambda: work("avg_pool2d.default", t(64, 64, 256, 256), [1, 1], [16, 16])),
    "convolution that skips": (
        9,
        lambda: convolution(t(64, 64, 256, 256), t(64, 64, 1, 1), stride=16, padding=0),
    ),
    "tril reads half": (180, lambda: work("tril.default", x())),
    "trace": (2, lambda: work("trace.default", t(N, N, dtype=F32))),
    "slice_scatter reads nothing of self": (240, lambda: work("slice_scatter.default", x(), x())),
    "a copied slice": (1, lambda: work("slice_copy.Tensor", x(), 0, 0, 16)),
    "cropping": (1, lambda: work("constant_pad_nd.default", x(), [0, 64 - N, 0, 64 - N])),
    "a gradient that nobody asks for": (
        120,
        lambda: work(
            "native_layer_norm_backward.default", x(), x(), [N], t(N, 1, dtype=F32), t(N, 1, dtype=F32), t(N), t(N),
            [False, False, True],
        ),
    ),
    # Nothing to do.
    "view": (0.1, lambda: work("view.default", x(), [N * N])),
    "transpose": (0.1, lambda: work("transpose.int", x(), 0, 1)),
    "expand": (0.1, lambda: work("expand.default", t(1, N), [N, N])),
    "slice": (0.1, lambda: work("slice.Tensor", x(), 0, 0, 8)),
    "detach": (0.1, lambda: work("detach.default", x())),
    "transpose in place": (0.1, lambda: work("t_.default", x())),
    "empty_like": (0.1, lambda: work("empty_like.default", x())),
    "new_empty": (0.1, lambda: work("new_empty.default", x(), [N, N])),
    "no elements": (0.1, lambda: work("add.Tensor", t(0, N), t(0, N))),
    "no repetition": (0.1, lambda: work("repeat.default", x(), [0, 1])),
    "a product over nothing": (125, lambda: work("mm.default", t(N, 0), t(0, N))),
    # Products.
    "bf16 product at 800 TFLOPS": (1375, lambda: work("mm.default", t(8192, 8192), t(8192, 8192))),
    "f32 product of three TF32 products at 130 TFLOPS": (
        8460,
        lambda: work("mm.default", t(8192, 8192, dtype=F32), t(8192, 8192, dtype=F32)),
    ),
    "f32 product of three f16 products at 250 TFLOPS": (
        4400,
        lambda: work("mm.default", t(8192, 8192, dtype=F32), t(8192, 8192, dtype=F32)),
    ),
    "f64 product of 8-bit products at 100 TFLOPS": (
        1375,
        lambda: work("mm.default", t(4096, 4096, dtype=F64), t(4096, 4096, dtype=F64)),
    ),
    "split-k": (12, lambda: work("mm.default", t(64, N * 8), t(N * 8, 64))),
    "half of a symmetric product": (700, lambda: with_itself("mm.default", torch.t, 8192)),
    "repeated factors": (60, lambda: work("bmm.default", t(1, 1024, 1024).expand(64, -1, -1), t(64, 1024, 1024))),
    "integer product": (9, lambda: work("mm.default", index(512, 512), index(512, 512))),
    "addmm without what is added": (
        130,
        lambda: work("addmm.default", x(), t(N, 8), t(8, N), beta=0),
    ),
    "addmm without its product": (240, lambda: work("addmm.default", x(), t(N, 8192), t(8192, N), alpha=0)),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_what_an_honest_kernel_reaches_is_never_impossible(name: str) -> None:
    """Some kernel gets this time on some values, so nobody may be accused for it."""
    time_us, call = HONEST[name]
    judgement = judge_time(time_us, call(), datasheet=H200, ceilings=CEILINGS, sets=SETS)
    assert (name, Plausibility.IMPOSSIBLE) != (name, judgement.plausibility), judgement.evidence


def test_there_are_enough_of_both() -> None:
    """The list says how much was thought of."""
    assert 40 <= len(IMPOSSIBLE)
    assert 80 <= len(HONEST)


MM = Work(least_bytes=0, traffic_bytes=400_000_000, matmul_flops=2 * 8192**3, matmul_dtype="bf16")
COPY = Work(least_bytes=2 * X_BYTES, traffic_bytes=2 * X_BYTES)


def test_the_evidence_can_be_checked_with_a_pencil() -> None:
    """Bytes, time, the rate that follows, and the rate that the vendor gives."""
    judgement = judge_time(20.0, COPY, datasheet=H200, ceilings=None, sets=1)
    expected = (
        "moves at least 1,011 MB past the cache in 20.0 us: 50.5 TB/s, "
        "more than the 4.80 TB/s of an NVIDIA H200 (data sheet)"
    )
    assert expected == judgement.evidence
    expected = (
        "computes 1,100 Gflop of bf16 products in 100.0 us: 10,995.1 TFLOPS, "
        "more than the 989 TFLOPS of an NVIDIA H200 (data sheet)"
    )
    assert expected == judge_time(100.0, MM, datasheet=H200, ceilings=None, sets=1).evidence


def test_a_device_without_a_data_sheet_makes_nothing_impossible() -> None:
    """What is not known is no reason to accuse anybody; what was measured still makes it doubtful."""
    assert datasheet_of("NVIDIA Imaginary") is None
    assert Plausibility.PLAUSIBLE == judge_time(0.0, COPY, datasheet=None, ceilings=None, sets=1).plausibility
    assert Plausibility.SUSPECT == judge_time(0.0, COPY, datasheet=None, ceilings=CEILINGS, sets=1).plausibility


def test_between_what_was_measured_and_what_is_possible_lies_doubt() -> None:
    """Five per cent beyond the measured ceiling is noise, and five beyond the data sheet no proof."""
    sets = 1000  # So many that the cache does not count.
    for gbps, expected in [(4400, "PLAUSIBLE"), (4700, "SUSPECT"), (4900, "SUSPECT"), (5100, "IMPOSSIBLE")]:
        time_us = COPY.least_bytes / gbps / 1e3
        assert expected == judge_time(time_us, COPY, datasheet=H200, ceilings=CEILINGS, sets=sets).plausibility
    for tflops, expected in [(770, "PLAUSIBLE"), (900, "SUSPECT"), (1030, "SUSPECT"), (1050, "IMPOSSIBLE")]:
        time_us = MM.matmul_flops / tflops / 1e6
        assert expected == judge_time(time_us, MM, datasheet=H200, ceilings=CEILINGS, sets=sets).plausibility


def test_a_device_that_was_measured_to_be_faster_than_its_data_sheet_is_believed() -> None:
    """The table may be wrong about a device of the same name, and then nobody is rejected by it."""
    fast = Ceilings(
        device="NVIDIA H200",
        copy_gbps=9000,
        matmul_tflops={"bf16": 2000.0},
        l2_bytes=2 * X_BYTES,
        measured_utc="",
        torch="",
    )
    assert Plausibility.PLAUSIBLE == judge_time(130.0, COPY, datasheet=H200, ceilings=fast, sets=1000).plausibility
    assert Plausibility.PLAUSIBLE == judge_time(600.0, MM, datasheet=H200, ceilings=fast, sets=1).plausibility
    assert Plausibility.PLAUSIBLE == judge_time(0.0, COPY, datasheet=H200, ceilings=fast, sets=1).plausibility


def test_one_round_can_find_one_cache_full_of_the_last_one() -> None:
    """Over more calls the cache helps each of them less."""
    assert H200 is not None
    small = Work(least_bytes=40 << 20, traffic_bytes=40 << 20)
    assert 0 == impossible_us(small, H200, 1)
    assert 0 < impossible_us(small, H200, 2) < impossible_us(small, H200, 200) < (40 << 20) / 4800 / 1e3


def test_the_bound_is_the_slower_of_moving_and_multiplying() -> None:
    """An empty node of a graph comes on top."""
    assert COPY.traffic_bytes / 4350 / 1e3 == bound_us(COPY, CEILINGS)
    assert 2.0 + COPY.traffic_bytes / 4350 / 1e3 == bound_us(COPY, CEILINGS, 2.0)
    assert MM.matmul_flops / 750.0 / 1e6 == bound_us(MM, CEILINGS)


def test_nothing_has_no_bound() -> None:
    """A view has none, and a product of a dtype that was not measured has none that is known."""
    assert bound_us(work("view.default", x(), [N * N]), CEILINGS, 1.0) is None
    assert bound_us(work("mm.default", t(64, 64, dtype=torch.complex64), t(64, 64, dtype=torch.complex64)), CEILINGS)
    unmeasured = Work(least_bytes=8, traffic_bytes=8, matmul_flops=8, matmul_dtype="c64")
    assert bound_us(unmeasured, CEILINGS) is None


TRAFFIC: dict[str, tuple[int, Call]] = {
    "both operands and the result": (3 * X_BYTES, lambda: work("add.Tensor", x(), x())),
    "read and written in place": (2 * X_BYTES, lambda: work("relu_.default", x())),
    "filled in place without a look": (X_BYTES, lambda: work("fill_.Scalar", x(), 1.0)),
    "out= is not read": (2 * X_BYTES, lambda: work("relu.out", x(), out=x())),
    "only the form of what is like it": (X_BYTES, lambda: work("zeros_like.default", x())),
    "chosen rows and their numbers": (2 * 2 * 32 * N + 32 * 8, lambda: work("index_select.default", x(), 0, index(32))),
    "chosen rows, replaced": (3 * 2 * 16 * N + 16 * 8, lambda: work("index_put_.default", x(), [index(16)], t(16, N))),
    "columns, replaced": (
        3 * 2 * 16 * N + 16 * 8,
        lambda: work("index_put_.default", x(), [None, index(16)], t(N, 16)),
    ),
    "filled rows": (2 * 2 * 16 * N + 16 * 8, lambda: work("index_fill_.int_Scalar", x(), 0, index(16), 1.0)),
    "looked-up rows": (2 * 2 * 64 * N + 64 * 8, lambda: work("embedding.default", x(), index(64))),
    "one class of each row": (
        2 * N + 8 * N + 4,
        lambda: work("nll_loss_forward.default", x(), index(N), None, 1, -100),
    ),
    "a gradient that needs only the shape of its input": (
        2 * 16 * 128 * 128 + 2 * 16 * 64 * 64,
        lambda: work(
            "avg_pool2d_backward.default",
            t(1, 16, 64, 64),
            t(1, 16, 128, 128),
            [2, 2],
            [2, 2],
            [0, 0],
            False,
            True,
            None,
        ),
    ),
    "split halves of a row": (3 * X_BYTES, lambda: of_halves("mul.Tensor")),
    "nothing for a view": (0, lambda: work("view.default", x(), [N * N])),
    "nothing for what stays unwritten": (0, lambda: work("empty_like.default", x())),
}


@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_is_what_a_good_implementation_moves(name: str) -> None:
    """Each byte once."""
    expected, call = TRAFFIC[name]
    assert expected == call().traffic_bytes


FLOPS: dict[str, tuple[int, Call]] = {
    "mm": (2 * 64 * 32 * 16, lambda: work("mm.default", t(64, 32), t(32, 16))),
    "addmm": (2 * 64 * 32 * 16, lambda: work("addmm.default", t(16), t(64, 32), t(16, 32).t())),
    "bmm": (5 * 2 * 64 * 32 * 16, lambda: work("bmm.default", t(5, 64, 32), t(5, 32, 16))),
    "baddbmm": (5 * 2 * 64 * 32 * 16, lambda: work("baddbmm.default", t(5, 64, 16), t(5, 64, 32), t(5, 32, 16))),
    "linear": (2 * 7 * 64 * 32 * 16, lambda: work("linear.default", t(7, 64, 32), t(16, 32))),
    "mv": (2 * 64 * 32, lambda: work("mv.default", t(64, 32), t(32))),
    "addmv": (2 * 64 * 32, lambda: work("addmv.default", t(64), t(64, 32), t(32))),
    "dot": (2 * 32, lambda: work("dot.default", t(32), t(32))),
}


@pytest.mark.parametrize("name", FLOPS)
def test_products_count_two_operations_for_each_pair(name: str) -> None:
    """Rows times columns times what they have in common."""
    expected, call = FLOPS[name]
    assert (expected, "bf16") == (call().matmul_flops, call().matmul_dtype)


def test_of_a_module_only_its_results_are_sure() -> None:
    """Which inputs it needs is its own affair, and its weights are not in the record."""
    schema = OpSchema(name="L1/1_M", schema="1_M.py", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
    record = recorded("relu.default", x())
    found = work_of(record, schema, described([torch.relu(x()), t(N)], ()))
    assert Work(least_bytes=X_BYTES + 2 * N, traffic_bytes=2 * X_BYTES + 2 * N) == found


def test_a_workspace_need_not_be_written() -> None:
    """Nobody may read what ``_thnn_fused_gru_cell`` returns beside its result, so a kernel can leave it as it is."""
    gates, state = t(64, 3 * N), t(64, N)
    record = recorded("_thnn_fused_gru_cell.default", gates, gates, state)
    found = work_with_results(record, described([t(64, N), t(64, 5 * N)], ()))
    assert 2 * 64 * N == found.least_bytes


def test_results_that_share_memory_are_written_once() -> None:
    """A second result that is a view of the first is no more work."""
    first, second = described([x(), x()], ())
    found = work_with_results(recorded("relu.default", x()), [first, msgspec.structs.replace(second, output=0)])
    assert 2 * X_BYTES == found.least_bytes == found.traffic_bytes


def test_what_crosses_to_the_host_or_is_sparse_is_not_known() -> None:
    """Such a call is limited by more than the device's memory."""
    record = recorded("_to_copy.default", x())
    (result,) = described(x(), ())
    schema = aten_schemas()[record.op]
    assert work_of(record, schema, [msgspec.structs.replace(result, device="cpu")]) is None
    assert work_of(record, schema, [msgspec.structs.replace(result, layout="sparse_coo")]) is None


def test_every_name_in_the_table_of_reads_is_an_argument_of_its_op() -> None:
    """A misspelt name would silently ask nothing."""
    arguments: dict[str, set[str]] = {}
    for name, schema in aten_schemas().items():
        found = re.findall(r"Tensor(?:\([^)]*\))?\??(?:\[\])?\??\s(\w+)[,)=]", schema.schema)
        arguments.setdefault(stem_of(schema), set()).update(found)
        assert name
    unknown = {
        (stem, name) for stem, reads in TABLE.items() for name in reads.names if name not in arguments.get(stem, set())
    }
    assert set() == unknown
