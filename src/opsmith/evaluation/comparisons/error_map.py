"""Where a result is off: errors over the index space, put together into few cells."""

from __future__ import annotations

import math

import torch

from opsmith.core.evidence import ErrorMap
from opsmith.evaluation.criteria.results import in_double
from opsmith.evaluation.criteria.tolerance import Tolerance

#: Of a map.
MOST_ROWS, MOST_COLUMNS = 48, 64


def error_map(number: int, expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> ErrorMap | None:
    """A map of one result; None where no element is off.

    Args:
        number: of the result.
        expected: eager's, strided.
        got: the kernel's, of the same shape.
        tolerance: what is granted around eager's.
    """
    if expected.shape != got.shape or not expected.numel():
        return None
    if expected.is_floating_point() or expected.is_complex():
        excess = _excess(in_double(expected), in_double(got), tolerance)
    else:
        excess = torch.where(expected == got, 0.0, math.inf).double()
    if not bool((excess > 1.0).any()):
        return None
    matrix = excess.reshape(-1, expected.shape[-1] if expected.dim() else 1)
    (row_step, rows), (column_step, columns) = _cells(matrix.shape[0], MOST_ROWS), _cells(matrix.shape[1], MOST_COLUMNS)
    row = torch.arange(matrix.shape[0], device=matrix.device) // row_step
    column = torch.arange(matrix.shape[1], device=matrix.device) // column_step
    cell = (row[:, None] * columns + column).flatten()
    empty = torch.zeros(rows * columns, dtype=torch.float64, device=matrix.device)
    off = (matrix.flatten() > 1.0).double()
    wrong = empty.scatter_add(0, cell, off) / empty.scatter_add(0, cell, torch.ones_like(off))
    worst = excess.max().item()
    return ErrorMap(
        result=number,
        shape=tuple(expected.shape),
        rows=rows,
        columns=columns,
        row_step=row_step,
        column_step=column_step,
        wrong=tuple([round(share, 6) for share in wrong.tolist()]),
        worst=float(f"{worst:.4g}") if math.isfinite(worst) else None,
    )


def _excess(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """The error of each element as a multiple of what is allowed; infinite where one side alone is no finite number."""
    allowed = (expected.abs() * tolerance.rtol + tolerance.atol).clamp(min=torch.finfo(torch.float64).tiny)
    excess = ((got - expected).abs() / allowed).double()
    same = (got == expected) | (expected.isnan() & got.isnan())
    return torch.where(same, 0.0, excess.nan_to_num(math.inf, math.inf))


def _cells(extent: int, most: int) -> tuple[int, int]:
    """How many indices a cell holds, and how many cells there are."""
    step = 1
    while -(-extent // step) > most:
        step *= 2
    return step, -(-extent // step)
