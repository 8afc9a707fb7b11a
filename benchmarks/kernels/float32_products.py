"""Products, convolutions and attention of strict float32 on a GPU: torch's, the shipped ones, and with factors split.

    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.float32_products OUT.json [--seconds 60] [--of convolutions]

A row is a size: microseconds of torch's own (cuBLAS, cuDNN, memory-efficient attention) and of each way in a CUDA
graph of ten, and the largest error of each against float64, relative to the largest value. Numbers of products and
convolutions have one sign, whose errors of one sign add up; so have the weights of attention. It tells from which size
on splitting beforehand pays, and with which tile.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from benchmarks.kernels.library_class import error, time_us
from benchmarks.models.records import command_of, environment_of, write

from opsmith.core.environment import Environment
from opsmith.kernels.attention import attention_backward, attention_forward
from opsmith.kernels.attention.attention import (
    scaled_dot_product_efficient_attention,
    scaled_dot_product_efficient_attention_backward,
)
from opsmith.kernels.convolution import implicit_gemm
from opsmith.kernels.convolution.convolution import convolution
from opsmith.kernels.matmul import matmul

#: Matrices, rows, terms, columns, and which factors lie along the terms of the other: as in models, and squares.
SIZES = (
    (1, 4096, 4096, 4096, "nn"),
    (1, 4096, 4096, 4096, "nt"),
    (1, 4096, 4096, 4096, "tn"),
    (1, 8192, 1024, 4096, "nt"),
    (1, 8192, 4096, 1024, "nt"),
    (1, 2048, 2048, 2048, "nt"),
    (1, 1024, 1024, 1024, "nt"),
    (1, 16384, 768, 768, "nt"),
    (1, 16384, 768, 3072, "nt"),
    (1, 512, 512, 512, "nt"),
    (64, 512, 512, 512, "nn"),
    (1, 2048, 30522, 768, "nn"),
    (1, 8205, 2949, 5921, "nn"),
    (1, 1001, 1003, 1007, "nn"),
    (1, 1536, 1536, 1536, "nt"),
    (16, 1024, 1024, 1024, "nn"),
    (1, 65536, 256, 256, "nt"),
    (1, 4096, 4096, 512, "nt"),
    (1, 4096, 512, 4096, "nt"),
)


#: Images, channels, height and width, channels of the result, kernel, stride: of problems of level 3.
CONVOLUTIONS = (
    (8, 256, 80, 80, 256, 3, 1),
    (8, 128, 64, 64, 128, 3, 1),
    (8, 64, 128, 128, 64, 3, 1),
    (64, 64, 56, 56, 64, 3, 1),
    (64, 128, 28, 28, 128, 3, 1),
    (32, 512, 14, 14, 512, 3, 1),
    (64, 64, 56, 56, 128, 3, 2),
    (64, 512, 28, 28, 128, 1, 1),
    (64, 128, 80, 80, 256, 1, 1),
    (128, 3, 224, 224, 64, 7, 2),
)

#: Batches, heads, queries, keys, columns of a head, and whether it is causal.
ATTENTION = (
    (8, 12, 1024, 1024, 64, True),
    (8, 12, 1024, 1024, 64, False),
    (16, 12, 512, 512, 64, False),
    (64, 12, 197, 197, 64, False),
    (4, 16, 2048, 2048, 128, False),
    (4, 16, 2048, 2048, 128, True),
    (8, 8, 512, 512, 32, False),
    (2, 8, 4096, 4096, 40, False),
    (32, 12, 256, 256, 64, False),
    (32, 12, 128, 128, 64, False),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One size.

    Attributes:
        size: matrices, rows, terms, columns and layout; or what a convolution or attention is told by.
        us: way -> microseconds; None where it does not run.
        error: way -> the largest, relative to the largest value.
    """

    size: tuple[int | str, ...]
    us: dict[str, float | None] = {}
    error: dict[str, float] = {}

    def line(self) -> str:
        """Of the table: cuBLAS in microseconds, the others as how many times as fast."""
        library = self.us["library"] or float("nan")
        ways = [f"{way} {library / us:5.2f}x {self.error[way]:.1e}" for way, us in self.us.items() if us is not None]
        return f"{'x'.join(map(str, self.size)):<24} {library:9.1f} us  {'  '.join(ways)}"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is written."""

    command: tuple[str, ...]
    environment: Environment
    rows: list[Row]


def products() -> Iterator[Row]:
    """Of matrices."""
    for size in SIZES:
        batch, rows, terms, columns, layout = size
        a, b = torch.rand(batch, rows, terms, device="cuda"), torch.rand(batch, terms, columns, device="cuda")
        a = a.mT.contiguous().mT if layout[0] == "t" else a
        b = b.mT.contiguous().mT if layout[1] == "t" else b
        exact = [torch.bmm(a.double(), b.double())]
        split = {f"{plan.m}x{plan.n}x{plan.k}": matmul.PRODUCTS.force(plan) for plan in matmul.BEFOREHAND}
        yield _row(size, (a, b), exact, torch.bmm, matmul.bmm, split)


def convolutions() -> Iterator[Row]:
    """Of images, row-major."""
    for size in CONVOLUTIONS:
        images, channels, height, width, results, kernel, stride = size
        x = torch.rand(images, channels, height, width, device="cuda")
        weight = torch.rand(results, channels, kernel, kernel, device="cuda")
        settings = ([stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1)

        def library(x: torch.Tensor, weight: torch.Tensor, settings: Any = settings) -> torch.Tensor:
            result: torch.Tensor = torch.ops.aten.convolution(x, weight, None, *settings)
            return result

        def ours(x: torch.Tensor, weight: torch.Tensor, settings: Any = settings) -> torch.Tensor:
            return convolution(x, weight, None, *settings)

        exact = [library(x.double(), weight.double())]
        split = {
            f"{plan.o}x{plan.p}x{plan.k}": implicit_gemm.IMPLICIT_GEMM.force(plan) for plan in implicit_gemm.BEFOREHAND
        }
        yield _row(size, (x, weight), exact, library, ours, split)


def attention() -> Iterator[Row]:
    """Of heads that lie next to each other in a row, as projections leave them."""
    for size in ATTENTION:
        batches, heads, queries, keys, columns, causal = size
        shapes = ((batches, rows, heads, columns) for rows in (queries, keys, keys))
        q, k, v = (torch.randn(shape, device="cuda").transpose(1, 2) for shape in shapes)
        v = v.abs()
        scores = q.double() @ k.double().mT / columns**0.5
        if causal:
            unseen = ~torch.ones(queries, keys, dtype=torch.bool, device="cuda").tril()
            scores = scores.masked_fill(unseen, float("-inf"))
        exact = [scores.softmax(-1) @ v.double()]
        del scores
        library, ours = (
            partial(_attended, function, causal=causal)
            for function in (
                torch.ops.aten._scaled_dot_product_efficient_attention,
                scaled_dot_product_efficient_attention,
            )
        )
        split = {
            _name(tile): attention_forward.HEADS.force(tile)
            for tile in attention_forward.BEFOREHAND[attention_forward.block_of(columns)]
        }
        yield _row(size, (q, k, v), exact, library, ours, split)


def attention_gradients() -> Iterator[Row]:
    """Of the same heads, by queries and by keys and values; the largest error of the three."""
    aten = torch.ops.aten
    for size in ATTENTION:
        batches, heads, queries, keys, columns, causal = size
        if columns > attention_backward.WIDEST_IN_PARTS:
            continue
        shapes = ((batches, rows, heads, columns) for rows in (queries, keys, keys, queries))
        q, k, v, grad = (torch.randn(shape, device="cuda").transpose(1, 2) for shape in shapes)
        out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        exact = torch.autograd.grad(
            torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal), wide, grad.double()
        )
        backward = partial(_differentiated, rest=(seed, offset, 0.0, [True, True, True, False], causal))
        library, ours = (
            partial(backward, function)
            for function in (
                aten._scaled_dot_product_efficient_attention_backward,
                scaled_dot_product_efficient_attention_backward,
            )
        )
        split = {
            f"{_name(by_query)}, {_name(by_key)}": _forced(by_query, by_key)
            for by_query, by_key in itertools.product(
                attention_backward.QUERIES_BEFOREHAND, attention_backward.KEYS_BEFOREHAND
            )
        }
        yield _row(size, (grad, q, k, v, out, lse), list(exact), library, ours, split)


def _name(tile: attention_forward.AttentionTile) -> str:
    return f"{tile.m}x{tile.n} {tile.warps}w {tile.stages}s"


@contextmanager
def _forced(by_query: attention_forward.AttentionTile, by_key: attention_forward.AttentionTile) -> Iterator[None]:
    with attention_backward.QUERY_TILES.force(by_query), attention_backward.KEY_TILES.force(by_key):
        yield


def _differentiated(
    function: Callable[..., tuple[Any, ...]],
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    rest: tuple[Any, ...],
) -> list[torch.Tensor]:
    return list(function(grad, q, k, v, None, out, lse, *rest)[:3])


def _attended(
    function: Callable[..., tuple[Any, ...]], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> torch.Tensor:
    result: torch.Tensor = function(q, k, v, None, False, 0.0, causal)[0]
    return result


def _row(
    size: tuple[int | str, ...],
    operands: tuple[torch.Tensor, ...],
    exact: list[torch.Tensor],
    library: Callable[..., torch.Tensor | list[torch.Tensor]],
    ours: Callable[..., torch.Tensor | list[torch.Tensor]],
    split: Mapping[str, AbstractContextManager[None]],
) -> Row:
    """The library's, ours by its rule, and ours within each context of ``split``."""
    row = Row(size=size)
    _add(row, "library", library, operands, exact)
    _add(row, "rule", ours, operands, exact)
    for name, forced in split.items():
        with forced:
            _add(row, f"split {name}", ours, operands, exact)
    return row


def _add(
    row: Row,
    way: str,
    compute: Callable[..., torch.Tensor | list[torch.Tensor]],
    operands: tuple[torch.Tensor, ...],
    exact: list[torch.Tensor],
) -> None:
    try:

        def results(*operands: torch.Tensor) -> list[torch.Tensor]:
            found = compute(*operands)
            return [found] if isinstance(found, torch.Tensor) else found

        row.error[way] = error(results(*operands), exact)
        row.us[way] = round(time_us(results, operands), 2)
    except RuntimeError as exc:  # Too much shared memory, or a compiler's.
        print(f"{row.size} {way}: {exc}", flush=True)
        row.us[way] = None


FAMILIES = {
    "products": products,
    "convolutions": convolutions,
    "attention": attention,
    "attention-gradients": attention_gradients,
}


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60, help="no size is begun later")
    parser.add_argument("--of", choices=tuple(FAMILIES), default="products")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows: list[Row] = []
    until = time.monotonic() + options.seconds
    for row in FAMILIES[options.of]():
        rows.append(row)
        record = Record(
            command=command_of("benchmarks.kernels.float32_products"), environment=environment_of("cuda"), rows=rows
        )
        write(options.out, record)
        print(row.line(), flush=True)
        if time.monotonic() > until:
            break


if __name__ == "__main__":
    main()
