"""Convolutions, attention and products of the shipped backend against cuDNN, flash attention and cuBLAS, on a GPU.

    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.library_class convolution
    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.library_class attention
    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.library_class product --dtypes float16,float32

A row is one call: microseconds in a CUDA graph of ten, eager's and the kernels', and the largest error of each against
float64, relative to the largest value. It is a look, not a judgement: `opsmith run` judges.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch.nn import functional

import opsmith

Results = Sequence[torch.Tensor]
Call = Callable[..., Results]

CALLS, REPLAYS = 10, 3
#: Images, channels, size, filters, taps, stride, padding, groups, transposed.
CONVOLUTIONS = (
    (32, 3, 224, 64, 7, 2, 3, 1, False),
    (32, 64, 56, 64, 3, 1, 1, 1, False),
    (32, 256, 56, 64, 1, 1, 0, 1, False),
    (32, 256, 14, 256, 3, 1, 1, 1, False),
    (32, 512, 7, 2048, 1, 1, 0, 1, False),
    (32, 144, 56, 144, 3, 1, 1, 144, False),
    (64, 384, 14, 384, 7, 1, 3, 384, False),
    (8, 128, 32, 64, 4, 2, 1, 1, True),
    (32, 256, 38, 256, 3, 1, 1, 256, False),
    (32, 1024, 10, 1536, 1, 1, 0, 1, False),
    (4, 448, 28, 128, 1, 1, 0, 1, False),
    (1, 28, 1, 672, 1, 1, 0, 1, False),
    (64, 52, 1, 624, 1, 1, 0, 1, False),
    (1, 8, 1, 32, 1, 1, 0, 1, False),
)
#: Channels and taps of those whose gradients are timed, too.
WITH_GRADIENTS = {(64, 3), (256, 1), (144, 3), (384, 7), (256, 3), (28, 1), (52, 1), (8, 1)}
#: Matrices, rows, terms, columns, whether the second factor is transposed, and whether a row is added.
PRODUCTS = (
    (1, 25088, 1024, 128, True, True),
    (1, 128, 2304, 1000, True, True),
    (1, 1, 768, 768, True, True),
    (256, 256, 256, 128, True, False),
    (1536, 16, 16, 32, False, False),
)
#: Images, heads, length, head size, causal.
ATTENTIONS = ((8, 12, 1024, 64, True), (4, 16, 2048, 128, False), (16, 12, 197, 64, False))


def main() -> None:
    """Print a row for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    families = {"convolution": convolutions, "attention": attentions, "product": products}
    parser.add_argument("family", choices=families)
    parser.add_argument("--dtypes", default="float16,bfloat16,float32", help="comma-separated; default: all three")
    arguments = parser.parse_args()
    calls_of = families[arguments.family]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for dtype in (getattr(torch, name) for name in arguments.dtypes.split(",")):
        for name, call, tensors in calls_of(dtype):
            print(f"{str(dtype).removeprefix('torch.')} {name:<50} {row(call, tensors)}", flush=True)


def convolutions(dtype: torch.dtype) -> Iterator[tuple[str, Call, Results]]:
    """Forward, and the gradients of some."""
    for images, channels, size, filters, taps, stride, padding, groups, transposed in CONVOLUTIONS:
        shape = (channels, filters) if transposed else (filters, channels // groups)
        x = torch.randn(images, channels, size, size, device="cuda", dtype=dtype)
        weight = torch.randn(*shape, taps, taps, device="cuda", dtype=dtype) / (channels // groups * taps**2) ** 0.5
        settings = ([stride] * 2, [padding] * 2, [1, 1], transposed, [0, 0], groups)
        name = f"{images}x{channels}x{size} -> {filters} k{taps} s{stride} g{groups}{' transposed' * transposed}"

        def forward(x: torch.Tensor, weight: torch.Tensor, *, settings: tuple[object, ...] = settings) -> Results:
            return (torch.ops.aten.convolution(x, weight, None, *settings),)

        def backward(
            gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, settings: tuple[object, ...] = settings
        ) -> Results:
            # By a bias where no norm follows: squeeze and excitation.
            mask = [True, True, gradient[0, 0].numel() == 1]
            found = torch.ops.aten.convolution_backward(gradient, x, weight, [gradient.shape[1]], *settings, mask)
            return [each for each in found if each is not None]

        yield name, forward, (x, weight)
        if (channels, taps) in WITH_GRADIENTS:
            yield f"{name} backward", backward, (torch.randn_like(forward(x, weight)[0]), x, weight)


def products(dtype: torch.dtype) -> Iterator[tuple[str, Call, Results]]:
    """Addmm of one pair of matrices, bmm of many."""

    def multiply(a: torch.Tensor, b: torch.Tensor, *added: torch.Tensor) -> Results:
        return (torch.addmm(added[0], a[0], b[0]) if added else torch.bmm(a, b),)

    for matrices, rows, terms, columns, transposed, is_added in PRODUCTS:
        shape = (columns, terms) if transposed else (terms, columns)
        a, b = (torch.randn(matrices, *size, device="cuda", dtype=dtype) for size in ((rows, terms), shape))
        added = (torch.randn(columns, device="cuda", dtype=dtype),) if is_added else ()
        name = f"{matrices}x{rows}x{terms} @ {terms}x{columns}{' transposed' * transposed}{' + row' * is_added}"
        yield name, multiply, (a, b.mT if transposed else b, *added)


def attentions(dtype: torch.dtype) -> Iterator[tuple[str, Call, Results]]:
    """Forward, and forward with gradients of all but the largest."""

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Results:
        return (functional.scaled_dot_product_attention(q, k, v, is_causal=causal),)

    def with_gradients(
        gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> Results:
        with torch.enable_grad():
            arguments = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
            [found] = forward(*arguments, causal=causal)
            return torch.autograd.grad(found, arguments, gradient)

    for images, heads, length, size, causal in ATTENTIONS:
        q, k, v = (torch.randn(images, heads, length, size, device="cuda", dtype=dtype) for _ in range(3))
        name = f"{images}x{heads}x{length}x{size}{' causal' * causal}"
        yield name, partial(forward, causal=causal), (q, k, v)
        if length < 2048:
            yield f"{name} and gradients", partial(with_gradients, causal=causal), (torch.randn_like(q), q, k, v)


@torch.no_grad()
def row(call: Call, tensors: Results) -> str:
    """What is printed of one call."""
    expected = call(*tensors)
    eager_us = time_us(call, tensors)
    with opsmith.enabled("opsmith", choose="all"):
        start = time.perf_counter()
        found = call(*tensors)
        torch.cuda.synchronize()
        first_s = time.perf_counter() - start
        kernels_us = time_us(call, tensors)
    exact = call(*[tensor.double() for tensor in tensors])
    return (
        f"eager {eager_us:9.1f} us  kernels {kernels_us:9.1f} us  {eager_us / kernels_us:5.2f}x  "
        f"error {error(expected, exact):.1e} {error(found, exact):.1e}  first call {first_s:.1f} s"
    )


def time_us(call: Call, tensors: Results) -> float:
    """Microseconds of one call in a CUDA graph: the fastest replay."""
    for _ in range(3):
        call(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call(*tensors)
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / CALLS)
    return min(times)


def error(found: Results, exact: Results) -> float:
    """The largest, relative to the largest value."""
    return max(
        ((ours.double() - theirs).abs().max() / theirs.abs().max()).item()
        for ours, theirs in zip(found, exact, strict=True)
    )


if __name__ == "__main__":
    main()
