"""Calls of traced models that were slow once: the shipped backend against eager, on a GPU.

    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.traced_rows [--calls 'gelu*,mm *']

A row is one call: microseconds in a CUDA graph of ten, eager's and the kernels', and the largest difference of the
first result from eager's; of products both sides' from float64, too. It is a look: `opsmith run` judges.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch
from benchmarks.kernels.library_class import Call, Results, time_us

import opsmith

#: Rows, elements, stride of rows, k.
SELECTIONS = (
    (1, 6905250, 6905250, 5000),
    (4, 269952, 359613, 1000),
    (4, 16872, 359613, 1000),
    (4, 4218, 359613, 1000),
    (4, 1083, 359613, 1000),
)
#: Rows, columns, type.
LONG_ROWS = (
    (512, 50265, torch.float16),
    (1024, 30000, torch.float16),
    (127, 50257, torch.float32),
    (512, 65536, torch.float16),
    (8192, 30522, torch.float16),
    (50184, 1569, torch.float16),
)
#: Shapes of what is activated.
ACTIVATIONS = ((128, 3137, 512), (64, 257, 2048), (128, 768, 12, 12), (32, 49, 2048))
#: Rows, classes, type.
LOSSES = (
    (8192, 50265, torch.float16),
    (1024, 50358, torch.float16),
    (512, 30522, torch.float16),
    (2048, 128167, torch.float32),
    (32, 1000, torch.float16),
)
#: As above, of gradients.
GRADIENTS = (
    (2048, 30522, torch.float16),
    (512, 50265, torch.float16),
    (127, 50257, torch.float32),
    (50184, 1569, torch.float16),
)


@torch.no_grad()
def main() -> None:
    """Print a row for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", default="*", help="wildcards for their names, comma-separated")
    patterns = parser.parse_args().calls.split(",")
    torch.manual_seed(0)
    for name, call, tensors in calls():
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        expected = call(*tensors)[0]
        eager_us = time_us(call, tensors)
        with opsmith.enabled("opsmith", choose="all"):
            found = call(*tensors)[0]
            kernels_us = time_us(call, tensors)
        difference = (found.double() - expected.double()).abs().max().item()
        speedup = f"eager {eager_us:7.1f} us  kernels {kernels_us:7.1f} us  {eager_us / kernels_us:5.2f}x"
        print(
            f"{name:<55} {speedup}  difference {difference:.1e}{_errors(name, call, tensors, expected, found)}",
            flush=True,
        )


def _errors(name: str, call: Call, tensors: Results, *results: torch.Tensor) -> str:
    if "mm " not in name:
        return ""
    exact = call(*[tensor.double() for tensor in tensors])[0]
    return "  errors" + "".join([f" {(result.double() - exact).abs().max().item():.1e}" for result in results])


def calls() -> Iterator[tuple[str, Call, Results]]:
    """Names, functions of tensors, and the tensors."""
    aten = torch.ops.aten
    for rows, length, stride, k in SELECTIONS:
        x = torch.randn(rows, stride, device="cuda", dtype=torch.float16)[:, :length]
        yield f"topk {rows}x{length} {k}", lambda x, k=k: aten.topk(x, k, 1), (x,)
    table = torch.randn(965, 192, device="cuda", dtype=torch.float16)
    indices = torch.randint(965, (54730,), device="cuda")
    offsets = torch.randint(54730, (1024,), device="cuda").sort().values
    offsets[0] = 0
    factors = torch.randn(54730, device="cuda", dtype=torch.float16)
    yield (
        "_embedding_bag 965x192, 54730 indices in 1024 bags",
        lambda table, indices, offsets, factors: aten._embedding_bag(
            table, indices, offsets, False, 0, True, factors, False, -1
        ),
        (table, indices, offsets, factors),
    )
    for rows, columns, dtype in LONG_ROWS:
        x = torch.randn(rows, columns, device="cuda", dtype=dtype)
        yield f"_log_softmax {rows}x{columns} {dtype}", lambda x: (aten._log_softmax(x, 1, False),), (x,)
        yield f"_softmax {rows}x{columns} {dtype}", lambda x: (aten._softmax(x, 1, False),), (x,)
    for rows, columns, dtype in GRADIENTS:
        y = torch.randn(rows, columns, device="cuda", dtype=dtype).log_softmax(1)
        yield (
            f"_log_softmax_backward_data {rows}x{columns} {dtype}",
            lambda dy, y, dtype=dtype: (aten._log_softmax_backward_data(dy, y, 1, dtype),),
            (torch.randn_like(y), y),
        )
    yield from odd_sizes()
    yield from activations_and_losses()
    yield from lists_and_short_rows()
    yield from products()
    yield from images()


def odd_sizes() -> Iterator[tuple[str, Call, Results]]:
    """Calls whose sizes 16 does not divide, sums by index, and an argument with gaps."""
    aten = torch.ops.aten
    for size in (1438452, 1438464):
        x = torch.randn(size, 1, device="cuda", dtype=torch.float16)
        yield f"exp {size} float16", lambda x: (aten.exp(x),), (x,)
        yield f"clone {size} float16", lambda x: (aten.clone(x),), (x,)
        yield f"sum {size} float16", lambda x: (aten.sum(x),), (x,)
    x = torch.randn(64, 192, 112, 112, device="cuda", dtype=torch.float16)[:, :64]
    yield "constant_pad_nd 64x64x112x112 of 192 channels", lambda x: (aten.constant_pad_nd(x, [1, 2, 1, 2]),), (x,)
    x = torch.zeros(1, 76725, 90, device="cuda", dtype=torch.float16)
    index = torch.randint(76725, (1, 5000, 90), device="cuda")
    source = torch.randn(1, 5000, 90, device="cuda", dtype=torch.float16)
    yield (
        "scatter_add_ 1x5000x90 into 76725",
        lambda x, i, s: (aten.scatter_add_(x.zero_(), 1, i, s),),
        (x, index, source),
    )
    rows = torch.randint(76725, (1, 5000, 1), device="cuda").expand(1, 5000, 90)
    yield (
        "scatter_add_ 1x5000x90 into 76725, rows as recorded",
        lambda x, i, s: (aten.scatter_add_(x.zero_(), 1, i, s),),
        (x, rows, source),
    )
    x = torch.zeros(169343, 256, device="cuda", dtype=torch.float32)
    index, source = torch.randint(169343, (1166243,), device="cuda"), torch.randn(1166243, 256, device="cuda")
    yield "index_add 169343x256, 1166243 rows", lambda x, i, s: (aten.index_add(x, 0, i, s),), (x, index, source)
    x = torch.randn(2, 256, 96, 257, device="cuda", dtype=torch.float16)[:, :, :12]
    mask = torch.rand(2, 1, 12, 257, device="cuda") < 0.3
    yield "masked_fill_ 2x256x12x257 with gaps", lambda x, m: (aten.masked_fill_(x, m, -1.0),), (x, mask)


def activations_and_losses() -> Iterator[tuple[str, Call, Results]]:
    """Gelu, and losses whose gradient is zero almost everywhere."""
    aten = torch.ops.aten
    for shape in ACTIVATIONS:
        x = torch.randn(*shape, device="cuda", dtype=torch.float16)
        yield f"gelu {shape} float16", lambda x: (aten.gelu(x),), (x,)
        yield f"gelu_backward {shape} float16", lambda dy, x: (aten.gelu_backward(dy, x),), (torch.randn_like(x), x)
    for rows, classes, dtype in LOSSES:
        x = torch.randn(rows, classes, device="cuda", dtype=dtype)
        labels = torch.randint(classes, (rows,), device="cuda")
        loss, weight = aten.nll_loss_forward(x, labels, None, 1, -100)
        yield (
            f"nll_loss_backward {rows}x{classes} {dtype}",
            lambda d, x, labels, weight: (aten.nll_loss_backward(d, x, labels, None, 1, -100, weight),),
            (torch.ones_like(loss), x, labels, weight),
        )


def lists_and_short_rows() -> Iterator[tuple[str, Call, Results]]:
    """The parameters of a transformer, rows of 49, an argument that is expanded, and a sum of everything."""
    aten = torch.ops.aten
    layer = ((3072, 768), (3072,), (768, 3072), *[(768, 768)] * 4, *[(768,)] * 9)
    parameters = [
        torch.randn(*shape, device="cuda", dtype=torch.float16) for shape in ((30522, 768), (512, 768), *layer * 12)
    ]

    def add(*tensors: torch.Tensor) -> Results:
        aten._foreach_add_(tensors, 1e-4)
        return tensors

    def divide(*tensors: torch.Tensor) -> Results:
        aten._foreach_div_(tensors, [1.001] * len(tensors))
        return tensors

    yield "_foreach_add_.Scalar of a transformer, float16", add, parameters
    yield "_foreach_div_.ScalarList of a transformer, float16", divide, parameters
    x = torch.randn(64, 32, 49, 49, device="cuda", dtype=torch.float16)
    yield "_softmax 64x32x49x49 float16", lambda x: (aten._softmax(x, -1, False),), (x,)
    x = torch.randn(169343, 1, 40, device="cuda").expand(169343, 4, 40)
    yield "div.Scalar 169343x4x40 expanded, float32", lambda x: (aten.div(x, 4),), (x,)
    x = torch.randn(8, 512, 30522, device="cuda", dtype=torch.float16)
    yield "sum 8x512x30522 float16", lambda x: (aten.sum(x),), (x,)
    table = torch.randn(29056, 1024, device="cuda", dtype=torch.float16)
    places = torch.randint(29056, (2, 128), device="cuda")
    yield "embedding 2x128 of 29056x1024 float16", lambda t, i: (aten.embedding(t, i, 0),), (table, places)


def products() -> Iterator[tuple[str, Call, Results]]:
    """Products of long sums, and of sizes that 16 bytes do not divide."""
    aten = torch.ops.aten
    for rows, terms, columns in ((8192, 30522, 768), (8192, 28672, 8192), (8192, 4096, 4096), (962, 962, 962)):
        a = torch.randn(rows, terms, device="cuda", dtype=torch.float16)
        b = torch.randn(terms, columns, device="cuda", dtype=torch.float16) / terms**0.5
        yield f"mm {rows}x{terms}x{columns} float16", lambda a, b: (aten.mm(a, b),), (a, b)
    a = torch.randn(256, 962, 64, device="cuda", dtype=torch.float16)
    b = torch.randn(256, 64, 962, device="cuda", dtype=torch.float16)
    yield "bmm 256x962x64x962 float16", lambda a, b: (aten.bmm(a, b),), (a, b)
    yield "bmm 256x64x962x64 float16", lambda a, b: (aten.bmm(b, a),), (a, b)
    bias = torch.randn(4000, device="cuda", dtype=torch.float16)
    a = torch.randn(1024, 31068, device="cuda", dtype=torch.float16)
    b = torch.randn(4000, 31068, device="cuda", dtype=torch.float16).t()
    yield "addmm 1024x31068x4000 float16", lambda c, a, b: (aten.addmm(c, a, b),), (bias, a, b)
    for rows, terms, columns in ((3136, 1024, 1024), (96, 1280, 1000), (12608, 768, 2304)):
        a = torch.randn(rows, terms, device="cuda", dtype=torch.float16)
        b = torch.randn(columns, terms, device="cuda", dtype=torch.float16).t()
        bias = torch.randn(columns, device="cuda", dtype=torch.float16)
        yield f"addmm {rows}x{terms}x{columns} float16", lambda c, a, b: (aten.addmm(c, a, b),), (bias, a, b)
    a = torch.randn(12544, 512, device="cuda", dtype=torch.float16).t()
    b = torch.randn(12544, 1024, device="cuda", dtype=torch.float16) / 112
    yield "mm 512x12544x1024 float16, first turned", lambda a, b: (aten.mm(a, b),), (a, b)


def images() -> Iterator[tuple[str, Call, Results]]:
    """Resampling and 1 x 1 convolutions."""
    aten = torch.ops.aten
    x = torch.randn(32, 32, 80, 80, device="cuda", dtype=torch.float16)
    grid = torch.rand(32, 300, 4, 2, device="cuda", dtype=torch.float16) * 2 - 1
    dy = torch.randn(32, 32, 300, 4, device="cuda", dtype=torch.float16)
    yield "grid_sampler_2d 32x32x80x80", lambda x, g: (aten.grid_sampler_2d(x, g, 0, 0, False),), (x, grid)
    yield (
        "grid_sampler_2d_backward 32x32x80x80",
        lambda d, x, g: (aten.grid_sampler_2d_backward(d, x, g, 0, 0, False, [True, True])[1],),
        (dy, x, grid),
    )
    for batch, channels, size in ((16, 256, 128), (128, 240, 28)):
        dy = torch.randn(batch, channels, size, size, device="cuda", dtype=torch.float16)
        yield (
            f"upsample_nearest2d_backward {batch}x{channels}x{size}x{size}",
            lambda d: (aten.upsample_nearest2d_backward(d, [d.shape[2]] * 2, [*d.shape[:2], *[d.shape[2] // 2] * 2]),),
            (dy,),
        )
    for batch, channels, results, size in ((128, 448, 448, 56), (64, 512, 512, 28), (32, 256, 64, 56)):
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=torch.float16)
        w = torch.randn(results, channels, 1, 1, device="cuda", dtype=torch.float16) / channels**0.5
        yield (
            f"convolution {batch}x{channels}x{size}x{size} -> {results}, 1x1",
            lambda x, w: (aten.convolution(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),),
            (x, w),
        )


if __name__ == "__main__":
    main()
