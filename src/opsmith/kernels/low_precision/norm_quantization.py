"""RMS normalisation and quantisation in one pass: the entry of a layer in 8 bits.

::

    y = x / sqrt(mean(x^2) + eps) * weight,     scale = max(amax(y), 1e-12) / 448,     out = E4M3 of y / scale

for each row (a token). A program has a row, and holds it in registers from the sum of squares to the quotients:
``itemsize + 1`` bytes an element, where a norm and a quantisation move ``2 * itemsize`` more. A row longer than
:data:`~.quantization.MOST_COLUMNS` is read three times, the second and the third time out of the cache.

Suffix: ``_C`` elements of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import widened
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, loop_bound, pdl_prologue
from .formats import E4M3, E4M3_LARGEST, SOURCES, as_bytes, magnitude_bits, quotients, require_low, scale_of, to_float8
from .quantization import MOST_COLUMNS

#: Of problem 15.
EPS = 1e-6
_E4M3 = tl.constexpr(E4M3_LARGEST)


@triton.jit
def load_columns(
    x_ptr: tl.tensor, stride: tl.tensor, step: tl.tensor, width: tl.tensor, COLUMNS: tl.constexpr
) -> tl.tensor:
    """``x_C`` in float32: the elements of one step along a row; 0 beyond its end."""
    column = step * COLUMNS + tl.arange(0, COLUMNS)
    return widened(tl.load(x_ptr + column.to(tl.int64) * stride, mask=column < width, other=0.0)).to(tl.float32)


@triton.jit
def norm_quantize_kernel(
    out_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    width: tl.tensor,
    eps: tl.tensor,
    x_strides: tl.tuple,
    weight_stride: tl.tensor,
    steps: tl.tensor,
    WHOLE: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """One row; WHOLE: it is one step, which stays in registers."""
    pdl_prologue()
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_strides[0]
    out_ptr += row * width
    if WHOLE:
        column = tl.arange(0, COLUMNS)
        x_C = load_columns(x_ptr, x_strides[1], 0, width, COLUMNS)
        weight_C = load_columns(weight_ptr, weight_stride, 0, width, COLUMNS)
        y_C = x_C * tl.rsqrt(tl.sum(x_C * x_C, axis=0) / width + eps) * weight_C
        scale = scale_of(tl.max(magnitude_bits(y_C), axis=0, keep_dims=True), _E4M3)
        tl.store(out_ptr + column, to_float8(quotients(y_C, scale), "E4M3"), mask=column < width)
    else:
        squares_C = tl.zeros((COLUMNS,), tl.float32)
        for step in range(steps):
            x_C = load_columns(x_ptr, x_strides[1], step, width, COLUMNS)
            squares_C += x_C * x_C
        rstd = tl.rsqrt(tl.sum(squares_C, axis=0) / width + eps)
        bits_C = tl.zeros((COLUMNS,), tl.int32)
        for step in range(steps):
            x_C = load_columns(x_ptr, x_strides[1], step, width, COLUMNS)
            weight_C = load_columns(weight_ptr, weight_stride, step, width, COLUMNS)
            bits_C = tl.maximum(bits_C, magnitude_bits(x_C * rstd * weight_C))
        scale = scale_of(tl.max(bits_C, axis=0, keep_dims=True), _E4M3)
        for step in range(steps):
            column = step * COLUMNS + tl.arange(0, COLUMNS)
            x_C = load_columns(x_ptr, x_strides[1], step, width, COLUMNS)
            weight_C = load_columns(weight_ptr, weight_stride, step, width, COLUMNS)
            y_C = x_C * rstd * weight_C
            tl.store(out_ptr + column, to_float8(quotients(y_C, scale), "E4M3"), mask=column < width)
    tl.store(scale_ptr + row + tl.arange(0, 1), scale)


def norm_quantize(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 of the normalised rows of ``x[M, N]``, times ``weight[N]``, and their float32 scales, (M, 1).

    Raises:
        NotImplementedError: another type, number of dimensions or device.
        ValueError: a weight that does not fit, or rows without elements.
    """
    require_low(x, weight, dtypes=SOURCES)
    if x.ndim != 2:
        raise NotImplementedError(f"tensors of {x.ndim} dimensions are not served")
    rows, width = x.shape
    if not width or weight.shape != (width,):
        raise ValueError(f"rows of {width} elements have no weight of {list(weight.shape)}")
    out = torch.empty((rows, width), dtype=E4M3, device=x.device)
    scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    columns = min(triton.next_power_of_2(width), INTERPRETED_TILE if INTERPRETED else MOST_COLUMNS)
    if rows:
        launch(
            norm_quantize_kernel,
            (rows,),
            x.device,
            as_bytes(out),
            scale,
            x,
            weight,
            width,
            eps,
            x.stride(),
            weight.stride(0),
            loop_bound(triton.cdiv(width, columns)),
            WHOLE=columns >= width,
            COLUMNS=columns,
            # As in groups_of: 32 elements a thread, 64 of the longest rows.
            num_warps=max(1, min(8, columns // 1024)),
        )
    return out, scale


class NormQuantize(torch.nn.Module):
    """Problem 15."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(width))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Elements and scales of the normalised ``x[tokens, width]``."""
        return norm_quantize(x, self.weight)
