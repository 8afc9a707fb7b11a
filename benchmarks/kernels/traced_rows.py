"""Selections, bags and long rows of traced models: the shipped backend against eager, on a GPU.

    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.traced_rows

A row is one call: microseconds in a CUDA graph of ten, eager's and the kernels', and the largest difference of the
first result from eager's. It is a look, not a judgement: `opsmith run` judges.
"""

from __future__ import annotations

from collections.abc import Iterator

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
)
#: As above, of gradients.
GRADIENTS = ((2048, 30522, torch.float16), (512, 50265, torch.float16))


@torch.no_grad()
def main() -> None:
    """Print a row for each call."""
    torch.manual_seed(0)
    for name, call, tensors in calls():
        expected = call(*tensors)[0]
        eager_us = time_us(call, tensors)
        with opsmith.enabled("opsmith"):
            found = call(*tensors)[0]
            kernels_us = time_us(call, tensors)
        difference = (found.double() - expected.double()).abs().max().item()
        speedup = f"eager {eager_us:7.1f} us  kernels {kernels_us:7.1f} us  {eager_us / kernels_us:5.2f}x"
        print(f"{name:<55} {speedup}  difference {difference:.1e}", flush=True)


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


if __name__ == "__main__":
    main()
