"""Solutions of systems that are nearly singular: what the last digits of a matrix explain, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of, leaves
from tests.unit.evaluation.test_oracle import _tf32

from opsmith.evaluation.comparisons.compare import compare

aten = torch.ops.aten


def _solved_backwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``x`` of ``a x = b`` with an upper triangle, a row at a time from the last one on."""
    x = torch.zeros_like(b)
    for i in reversed(range(a.shape[-1])):
        left = b[..., i, :].clone()
        for k in reversed(range(i + 1, a.shape[-1])):
            left -= a[..., i, k, None] * x[..., k, :]
        x[..., i, :] = left / a[..., i, i, None]
    return x


def _inverse(a: torch.Tensor) -> torch.Tensor:
    """By the method of Gauss and Jordan."""
    rows = torch.cat([a, torch.eye(len(a))], 1)
    for k in range(len(a)):
        pivot = k + int(rows[k:, k].abs().argmax())
        rows[[k, pivot]] = rows[[pivot, k]]
        rows[k] = rows[k] / rows[k, k]
        for i in range(len(a)):
            if i != k:
                rows[i] -= rows[i, k] * rows[k]
    return rows[:, len(a) :]


def _cholesky(a: torch.Tensor) -> torch.Tensor:
    """An element at a time."""
    lower = torch.zeros_like(a)
    for j in range(len(a)):
        lower[j, j] = (a[j, j] - lower[j, :j].square().sum()).sqrt()
        for i in range(j + 1, len(a)):
            lower[i, j] = (a[i, j] - (lower[i, :j] * lower[j, :j]).sum()) / lower[j, j]
    return lower


def _uniform(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """From -9 to 9."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator) * 18 - 9 for shape in shapes]


def _definite() -> torch.Tensor:
    """Of condition 1e5 and more."""
    (a,) = _uniform(7, (8, 8))
    return a @ torch.diag(torch.logspace(0, -5, 8)) @ a.mT


(B,) = _uniform(1, (8, 3))
#: One of 1,600 such triangles on which two orders of a solution go apart by more than the tolerance.
TRIANGLES, RIGHT = _uniform(295, (2, 2, 5, 5), (2, 2, 5, 3))

CASES: dict[str, tuple[Any, Callable[[], torch.Tensor], tuple[Any, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "inverse": (aten.linalg_inv_ex.default, _definite, (), _inverse),
    "cholesky": (aten.linalg_cholesky_ex.default, _definite, (), _cholesky),
    "solution": (aten._linalg_solve_ex.default, _definite, (B,), lambda a: _inverse(a) @ B),
    "determinant": (aten._linalg_det.default, _definite, (), lambda a: _cholesky(a).diagonal().square().prod()),
    "triangle": (aten.triangular_solve.default, TRIANGLES.clone, (RIGHT,), lambda a: _solved_backwards(a, RIGHT)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_a_solution_may_be_that_of_a_matrix_with_other_last_digits(case: str) -> None:
    """By another method than eager's: right; one of operands rounded to TF32 is not."""
    overload, matrix, rest, solve = CASES[case]
    a = matrix()
    args = (*rest, a) if case == "triangle" else (a, *rest)
    call = call_of(overload, *args)
    eager = leaves(overload(*args))
    for changed, passes in ((a, True), (_tf32(a), False)):
        finding = compare(call, [eager], [[solve(changed), *eager[1:]]], tolerance="strict")
        assert passes == finding.passed, finding.detail
