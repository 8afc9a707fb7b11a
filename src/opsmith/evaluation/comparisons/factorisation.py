"""Decompositions that are not unique: a sign, a phase, a basis or a pivot may differ from eager's.

What is not simply equal to eager's is judged by what a decomposition promises: the factors
multiply to the matrix, orthogonal factors are orthogonal, triangular ones triangular, and the
spectrum is eager's in eager's order. The unit of error is ``n * eps * norm`` with n the larger
side of the matrix; ``SLACK`` of them are granted (Golub and Van Loan, Matrix Computations, bound
the backward error of Householder QR, of the SVD and of the symmetric eigenproblem by a small
multiple of n eps norm(A); LAPACK's own test programs pass below 30 of the same unit). Factors L and U
may grow, without pivoting beyond any bound: where eager's ``|L| |U|`` is larger than the norm, it is the unit's
(N. Higham, Accuracy and Stability of Numerical Algorithms, theorem 9.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opsmith.evaluation.comparisons import value
from opsmith.evaluation.comparisons.solutions import FITS, SLACK, fits
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Results
from opsmith.evaluation.criteria.results import PASSED, in_double, wrong
from opsmith.evaluation.criteria.rules import ComparisonRule
from opsmith.evaluation.criteria.tolerance import tolerance_for
from opsmith.evaluation.oracle.float64 import Oracle

Leaves = list[torch.Tensor]


def compare(call: JudgedCall, rule: ComparisonRule, reference: Results, candidate: Results, plain: Finding) -> Finding:
    """Judge a decomposition that is not equal to eager's; ``plain`` says where it differs.

    Every broken promise has its own sentence; the figures stay those of the plain comparison.
    """
    arguments = call.bound()
    matrix = next(iter(arguments.values())).detach().cpu()
    expected = [result for result in reference if isinstance(result, torch.Tensor)]
    got = [result for result in candidate if isinstance(result, torch.Tensor)]
    broken = _JUDGES[rule.stem](_Problem(call, rule, matrix, arguments), expected, got)
    return PASSED if broken is None else wrong(broken, plain.figures)


class _Problem:
    """The matrix that was decomposed, and the error that its size and precision explain."""

    def __init__(self, call: JudgedCall, rule: ComparisonRule, matrix: torch.Tensor, arguments: dict[str, Any]) -> None:
        self.call, self.rule, self.arguments = call, rule, arguments
        self.matrix = in_double(matrix)
        self.unit = SLACK * max(1, *matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps
        size = self.matrix.abs().flatten(-2)
        #: Largest element of each matrix of the batch times its side: a bound on its norm.
        self.norm = size.amax(-1) * max(1, *matrix.shape[-2:]) if size.shape[-1] else size.sum(-1)

    def rebuilt(
        self, product: torch.Tensor, wanted: torch.Tensor, what: str, terms: torch.Tensor | None = None
    ) -> str | None:
        """Complain unless ``product`` is ``wanted`` up to the rounding error of the norm, or of its ``terms``."""
        error, size = (product - wanted).abs(), self.norm[..., None, None]
        if terms is not None:
            size = torch.maximum(size, terms)
        if error.numel() == 0 or bool((error <= self.unit * size).all()):
            return None
        return f"{what} does not give the matrix back: off by {error.max().item():.3g}"

    def orthonormal(self, factor: torch.Tensor, what: str) -> str | None:
        """Complain unless the columns of ``factor`` are orthonormal."""
        gram = factor.mH @ factor
        error = (gram - torch.eye(gram.shape[-1], dtype=gram.dtype)).abs()
        if error.numel() == 0 or bool((error <= self.unit).all()):
            return None
        return f"the columns of {what} are not orthonormal: off by {error.max().item():.3g}"

    def spectrum(self, expected: torch.Tensor, got: torch.Tensor, what: str) -> str | None:
        """Complain unless the values are eager's, in eager's order."""
        error = (in_double(got) - in_double(expected)).abs()
        if error.numel() == 0 or bool((error <= self.unit * self.norm[..., None]).all()):
            return None
        return f"{what} are not eager's in eager's order: off by {error.max().item():.3g}"

    def same_value(self, expected: Leaves, got: Leaves, index: int, count: int) -> str | None:
        """Compare result ``index`` of ``count`` as a value."""
        limits = tolerance_for("strict", expected[index].dtype, self.call.tolerance)
        oracle = Oracle(self.call, self.rule.stem, count)
        finding = value.compare(expected[index], got[index], limits, lambda: oracle.opinion(index))
        return None if finding.passed else f"result {index}: {finding.detail}"


def _first(*complaints: str | None) -> str | None:
    return next((complaint for complaint in complaints if complaint is not None), None)


def _svd(problem: _Problem, expected: Leaves, got: Leaves) -> str | None:
    values = problem.spectrum(expected[1], got[1], "the singular values")
    if values is not None or not problem.arguments.get("compute_uv", True):
        return values
    u, s, vh = (in_double(result) for result in got[:3])
    rank = s.shape[-1]
    product = (u[..., :rank] * s.unsqueeze(-2)) @ vh[..., :rank, :]
    return _first(
        problem.rebuilt(product, problem.matrix, "U diag(S) Vh"),
        problem.orthonormal(u, "U"),
        problem.orthonormal(vh.mH, "V"),
    )


def _eigh(problem: _Problem, expected: Leaves, got: Leaves) -> str | None:
    values = problem.spectrum(expected[0], got[0], "the eigenvalues")
    if values is not None or not problem.arguments.get("compute_v", True):
        return values
    lower = str(problem.arguments.get("UPLO", "L")).upper() == "L"
    half = problem.matrix.tril(-1) if lower else problem.matrix.triu(1)
    diagonal = torch.diag_embed(problem.matrix.diagonal(dim1=-2, dim2=-1).real).to(half.dtype)
    w, v = in_double(got[0]), in_double(got[1])
    return _first(
        problem.rebuilt((v * w.unsqueeze(-2)) @ v.mH, half + half.mH + diagonal, "V diag(w) Vh"),
        problem.orthonormal(v, "V"),
    )


def _eig(problem: _Problem, expected: Leaves, got: Leaves) -> str | None:
    """Eigenvalues in any order; an eigenvector up to a factor of modulus 1.

    The eigenvalues of a general matrix are conditioned by its eigenvectors, so they are compared
    with eager's at that condition number.
    """
    w, v = in_double(got[0]), None if len(got) == 1 else in_double(got[1])
    condition = torch.linalg.cond(in_double(expected[1])) if v is not None else torch.tensor(1.0)
    allowed = problem.unit * problem.norm * condition.clamp(max=1e6)
    if _matching_error(in_double(expected[0]), w, allowed):
        return "the eigenvalues are not eager's"
    if v is None:
        return None
    lengths = torch.linalg.vector_norm(v, dim=-2)
    if v.numel() and not bool(((lengths - 1).abs() <= problem.unit).all()):
        return "an eigenvector has not length 1"
    # Independent eigenvectors: each eigenvalue of a cluster has to bring its own.
    if v.numel() and bool((torch.linalg.cond(v) > 1e3 * torch.linalg.cond(in_double(expected[1]))).any()):
        return "the eigenvectors are not as independent as eager's"
    matrix = problem.matrix.to(torch.complex128)
    return problem.rebuilt(matrix @ v - v * w.unsqueeze(-2), torch.zeros_like(v), "A V = V diag(w)")


def _matching_error(expected: torch.Tensor, got: torch.Tensor, allowed: torch.Tensor) -> bool:
    """Whether the values cannot be paired one to one within ``allowed`` (greedily, nearest first)."""
    allowed = allowed.expand(expected.shape[:-1]).flatten()
    for one, other, limit in zip(
        expected.flatten(0, -2) if expected.dim() > 1 else expected[None],
        got.flatten(0, -2) if got.dim() > 1 else got[None],
        allowed,
        strict=True,
    ):
        distance = (one[:, None] - other[None, :]).abs()
        for row in range(len(one)):
            nearest = int(distance[row].argmin())
            if not bool(distance[row, nearest] <= limit):
                return True
            distance[:, nearest] = torch.inf
    return False


def _qr(problem: _Problem, _expected: Leaves, got: Leaves) -> str | None:
    q, r = in_double(got[0]), in_double(got[1])
    if bool((r.tril(-1) != 0).any()):
        return "R is not upper triangular"
    if problem.arguments.get("mode") == "r":  # Only R: its Gram matrix is that of the matrix.
        gram = _Problem(problem.call, problem.rule, _gram(problem.matrix), problem.arguments)
        gram.unit = problem.unit
        return gram.rebuilt(_gram(r), _gram(problem.matrix), "R'R")
    return _first(problem.rebuilt(q @ r, problem.matrix, "Q R"), problem.orthonormal(q, "Q"))


def _gram(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.mH @ matrix


def _lu(problem: _Problem, expected: Leaves, got: Leaves) -> str | None:
    """linalg_lu: P a permutation, L unit lower triangular, U upper triangular.

    Partial pivoting bounds the entries of L by 1; for complex numbers LAPACK compares
    ``|re| + |im|``, which bounds the modulus by the square root of 2.
    """
    pivot = problem.arguments.get("pivot", True)
    p, lower, upper = (in_double(result) for result in got[:3])
    if pivot and bool(((p != 0) & (p != 1)).any() | (p.sum(-1) != 1).any() | (p.sum(-2) != 1).any()):
        return "P is not a permutation"
    if bool((upper.tril(-1) != 0).any() | (lower.triu(1) != 0).any()):
        return "L or U is not triangular"
    if bool((lower.diagonal(dim1=-2, dim2=-1) != 1).any()) or (pivot and bool((lower.abs() > 1.4143).any())):
        return "L has no unit diagonal, or entries that pivoting rules out"
    factors = [in_double(result) for result in expected[:3]]
    return problem.rebuilt(
        _product(p, lower, upper, pivot=pivot), problem.matrix, "P L U", _terms(*factors, pivot=pivot)
    )


def _product(p: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor, *, pivot: bool = True) -> torch.Tensor:
    return p @ lower @ upper if pivot else lower @ upper


def _terms(p: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor, *, pivot: bool = True) -> torch.Tensor:
    """What the terms of each element of a product add up to in magnitude."""
    return _product(p.abs(), lower.abs(), upper.abs(), pivot=pivot).nan_to_num(0.0, 0.0, 0.0)


def _compact_lu(first: int) -> Callable[[_Problem, Leaves, Leaves], str | None]:
    """An op whose results ``first`` and ``first + 1`` are LU and pivots, all others values.

    Eager may factor the transpose; what its own factors multiply to says which.
    """

    def judge(problem: _Problem, expected: Leaves, got: Leaves) -> str | None:
        for index in range(len(expected)):
            complaint = None
            if index not in (first, first + 1):
                complaint = problem.same_value(expected, got, index, len(expected))
            if complaint is not None and index == 0 and problem.rule.stem in FITS:
                complaint = fits(problem.rule.stem, problem.call, got[0])
            if complaint is not None:
                return complaint
        pivots, rows = got[first + 1], got[first].shape[-2]
        if bool(((pivots < 1) | (pivots > rows)).any()):
            return "a pivot is not a row of the matrix"
        factors = torch.lu_unpack(in_double(expected[first]), expected[first + 1])
        product = _product(*torch.lu_unpack(in_double(got[first]), pivots))
        return problem.rebuilt(product, _product(*factors), "LU with its pivots", _terms(*factors))

    return judge


_JUDGES: dict[str, Callable[[_Problem, Leaves, Leaves], str | None]] = {
    "_linalg_svd": _svd,
    "_linalg_eigh": _eigh,
    "linalg_eig": _eig,
    "linalg_eigvals": _eig,
    "_linalg_eigvals": _eig,
    "linalg_qr": _qr,
    "linalg_lu": _lu,
    "linalg_lu_factor": _compact_lu(0),
    "linalg_lu_factor_ex": _compact_lu(0),
    "_lu_with_info": _compact_lu(0),
    "_linalg_det": _compact_lu(1),
    "_linalg_slogdet": _compact_lu(2),
    "_linalg_solve_ex": _compact_lu(1),
}
