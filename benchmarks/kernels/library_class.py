"""Convolutions and attention of the shipped backend against cuDNN and flash attention, on a GPU.

    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.library_class convolution
    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.library_class attention

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
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Images, channels, size, filters, taps, stride, padding, groups, transposed.
CONVOLUTIONS = (
    (32, 3, 224, 64, 7, 2, 3, 1, False),
    (32, 64, 56, 64, 3, 1, 1, 1, False),
    (32, 256, 56, 64, 1, 1, 0, 1, False),
    (32, 256, 14, 256, 3, 1, 1, 1, False),
    (32, 512, 7, 2048, 1, 1, 0, 1, False),
    (32, 144, 56, 144, 3, 1, 1, 144, False),
    (8, 128, 32, 64, 4, 2, 1, 1, True),
)
#: Images, heads, length, head size, causal.
ATTENTIONS = ((8, 12, 1024, 64, True), (4, 16, 2048, 128, False), (16, 12, 197, 64, False))


def main() -> None:
    """Print a row for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["convolution", "attention"])
    family = parser.parse_args().family
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for dtype in DTYPES:
        for name, call, tensors in convolutions(dtype) if family == "convolution" else attentions(dtype):
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
            found: Results = torch.ops.aten.convolution_backward(
                gradient, x, weight, None, *settings, [True, True, False]
            )
            return found[:2]

        yield name, forward, (x, weight)
        if (channels, taps) in {(64, 3), (256, 1), (144, 3)}:
            yield f"{name} backward", backward, (torch.randn_like(forward(x, weight)[0]), x, weight)


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
    with opsmith.enabled("opsmith"):
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
