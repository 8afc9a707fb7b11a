"""Complex matrix products as real ones of twice as many terms and columns.

A row of complex numbers is in memory a row of twice as many real ones. For a product's rows to come out so, each number
of the right factor becomes the matrix that multiplies a pair by it::

    [re a, im a] @ [[re b, im b], [-im b, re b]] = [re ab, im ab]

One launch writes these matrices: ``3 K N itemsize`` bytes for K N complex numbers, which are read once and written
twice. A real product reads them, and the left factor as it lies, and writes the result: ``8 M N K`` operations, as many
as complex products take.

Suffixes: see :mod:`.matmul`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import map_into_several
from ..copies.rearrangements import copied
from ..pointwise.complex_parts import PART


@triton.jit
def matrix_of(
    real: tl.tensor, imaginary: tl.tensor, sign: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The entries of ``[[real, sign imaginary], [-sign imaginary, real]]``."""
    return real, sign * imaginary, -sign * imaginary, real


def pairs_of(rows: torch.Tensor) -> torch.Tensor:
    """Complex numbers of shape (B, M, K) as real ones, (B, M, 2 K): a copy if rows have gaps or are conjugated."""
    if rows.is_conj() or (rows.stride(2) != 1 and rows.shape[2] > 1):
        rows = copied(rows)
    return torch.view_as_real(rows).flatten(2)


def right_factor(b: torch.Tensor) -> torch.Tensor:
    """Real numbers of shape (B, 2 K, 2 N) by which pairs are multiplied as by the complex ones of ``b``, (B, K, N)."""
    part = PART[b.dtype]
    B, K, N = b.shape
    out = torch.empty((B, K, 2, N, 2), dtype=part, device=b.device)
    entries = tuple(out.select(4, column).select(2, row) for row in range(2) for column in range(2))
    sign, b = (-1, b.conj()) if b.is_conj() else (1, b)
    map_into_several(entries, matrix_of, torch.view_as_real(b).unbind(-1), [part] * 2, [sign])
    return out.view(B, 2 * K, 2 * N)
