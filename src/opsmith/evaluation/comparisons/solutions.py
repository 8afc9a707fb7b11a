"""Solutions of linear systems, inverses and roots of matrices, which are right when they fit the matrix.

Asked where a result is not eager's to a tolerance, nor within what the last digits of the arguments explain
(:mod:`opsmith.evaluation.oracle.perturbation`). An algorithm that is stable for the norm of a matrix, as elimination
with pivots is, is no more exact in a row that is much smaller than the others.

A residual is held against ``n * eps`` times what the largest element of each column of the matrix makes of the
solution: elimination and QR treat columns of any scale alike. For a root it is ``n * eps`` times the square roots of
the two diagonal elements. ``SLACK`` of these units are granted (N. Higham, Accuracy and Stability of Numerical
Algorithms, theorems 9.4, 10.3, 19.4 and chapter 14). Of an inverse one side is enough: methods differ in which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Results
from opsmith.evaluation.criteria.results import PASSED, in_double, wrong

#: Units of error that are granted.
SLACK = 10.0
_Arguments = dict[str, Any]


def fits(stem: str, call: JudgedCall, result: Tensor) -> str | None:
    """What a solution, inverse or root promises and does not keep; None where it keeps all.

    Args:
        stem: of the op, one of :data:`FITS`.
        call: the call.
        result: the first of its results.
    """
    arguments = {name: _host(value) for name, value in call.bound().items()}
    unit = SLACK * max(1, *result.shape[-2:]) * torch.finfo(result.dtype).eps
    return FITS[stem](arguments, _host(result), unit)


def compare(call: JudgedCall, stem: str, reference: Results, candidate: Results, plain: Finding) -> Finding:
    """Judge a result that is not equal to eager's; ``plain`` says where it differs.

    What comes beside a solution (``info``, a copy of the coefficients) is to be eager's.
    """
    for expected, got in zip(reference[1:], candidate[1:], strict=True):
        if isinstance(expected, Tensor) and isinstance(got, Tensor) and not torch.equal(expected, got):
            return plain
    first = candidate[0]
    assert isinstance(first, Tensor)
    broken = fits(stem, call, first)
    return PASSED if broken is None else wrong(f"{broken}; {plain.detail}", plain.figures)


def _host(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    if not (value.is_floating_point() or value.is_complex()):
        return value
    return in_double(value)


def _residual(matrix: Tensor, solution: Tensor, wanted: Tensor, unit: float) -> float | None:
    """How far ``matrix @ solution`` is off, unless rounding explains it."""
    error = (matrix @ solution - wanted).abs()
    columns = matrix.abs().amax(-2, keepdim=True)
    return _beyond(error, unit * torch.maximum(columns @ solution.abs(), wanted.abs()))


def _beyond(error: Tensor, allowed: Tensor) -> float | None:
    return None if bool((error <= allowed).all()) else float(error.max())


def _complaint(off: float | None, what: str) -> str | None:
    return None if off is None else f"{what}: off by {off:.3g}"


def _solves(matrix: Tensor, right: Tensor, solution: Tensor, unit: float, *, left: bool = True) -> str | None:
    is_vector = right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1])
    if is_vector:
        right, solution = right.unsqueeze(-1), solution.unsqueeze(-1)
    if 0 in solution.shape:
        return None
    if not left:
        matrix, solution, right = matrix.mT, solution.mT, right.mT
    return _complaint(_residual(matrix, solution, right, unit), "the solution does not fit the equations")


def _solve_ex(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    return _solves(arguments["A"], arguments["B"], result, unit, left=arguments.get("left", True))


def _triangle(matrix: Tensor, *, upper: bool, unit_diagonal: bool) -> Tensor:
    triangle = matrix.triu() if upper else matrix.tril()
    if not unit_diagonal:
        return triangle
    size = matrix.shape[-1]
    return triangle - torch.diag_embed(triangle.diagonal(dim1=-2, dim2=-1)) + torch.eye(size, dtype=matrix.dtype)


def _solve_triangular(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    matrix = _triangle(arguments["self"], upper=arguments["upper"], unit_diagonal=arguments.get("unitriangular", False))
    return _solves(matrix, arguments["B"], result, unit, left=arguments.get("left", True))


def _triangular_solve(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    matrix = _triangle(
        arguments["A"], upper=arguments.get("upper", True), unit_diagonal=arguments.get("unitriangular", False)
    )
    return _solves(matrix.mT if arguments.get("transpose") else matrix, arguments["self"], result, unit)


def _product_of_root(root: Tensor, *, upper: bool) -> Tensor:
    root = root.triu() if upper else root.tril()
    return root.mH @ root if upper else root @ root.mH


def _cholesky_solve(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    matrix = _product_of_root(arguments["input2"], upper=arguments.get("upper", False))
    return _solves(matrix, arguments["self"], result, unit)


def _lu_solve(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    p, lower, upper = torch.lu_unpack(arguments["LU"], arguments["pivots"])
    matrix = p @ lower @ upper
    matrix = matrix.mH if arguments.get("adjoint") else matrix
    return _solves(matrix, arguments["B"], result, unit, left=arguments.get("left", True))


def _is_inverse(matrix: Tensor, result: Tensor, unit: float) -> str | None:
    if 0 in matrix.shape:
        return None
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)
    sides = [_residual(one, other, identity, unit) for one, other in ((matrix, result), (matrix.mT, result.mT))]
    return _complaint(None if None in sides else min(side for side in sides if side is not None), "no inverse")


def _inverse(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    return _is_inverse(arguments["A"], result, unit)


def _cholesky_inverse(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    return _is_inverse(_product_of_root(arguments["self"], upper=arguments.get("upper", False)), result, unit)


def _cholesky(arguments: _Arguments, result: Tensor, unit: float) -> str | None:
    upper = arguments.get("upper", False)
    beside = result.tril(-1) if upper else result.triu(1)
    diagonal = result.diagonal(dim1=-2, dim2=-1)
    if bool((beside != 0).any()) or bool((diagonal.real < 0).any()):
        return "the root is not triangular with a positive diagonal"
    if 0 in result.shape:
        return None
    # Of the matrix one triangle is read.
    given = arguments["self"].triu() if upper else arguments["self"].tril()
    product = _product_of_root(result, upper=upper)
    product = product.triu() if upper else product.tril()
    scale = given.diagonal(dim1=-2, dim2=-1).abs().sqrt()
    allowed = unit * scale[..., :, None] * scale[..., None, :]
    return _complaint(_beyond((product - given).abs(), allowed), "the root does not give the matrix back")


#: By an op's packet without decoration: what its first result has to fit.
FITS: dict[str, Callable[[_Arguments, Tensor, float], str | None]] = {
    "_linalg_solve_ex": _solve_ex,
    "linalg_solve_triangular": _solve_triangular,
    "triangular_solve": _triangular_solve,
    "cholesky_solve": _cholesky_solve,
    "linalg_lu_solve": _lu_solve,
    "linalg_inv_ex": _inverse,
    "cholesky_inverse": _cholesky_inverse,
    "linalg_cholesky_ex": _cholesky,
    "cholesky": _cholesky,
}
