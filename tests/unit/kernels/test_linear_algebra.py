from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values

from opsmith.kernels.linear_algebra import lu_factorization

BATCH = (2, 1)
WIDE = torch.float64
SQUARE = values(*BATCH, 5, 5, dtype=WIDE) + 4 * torch.eye(5)
POSITIVE = SQUARE @ SQUARE.mT
FACTOR = torch.linalg.cholesky(POSITIVE)
SIDES = values(*BATCH, 5, 2, dtype=WIDE)
TALL = values(2, 6, 3, dtype=WIDE)
MATRICES = {"square": SQUARE, "transposed": SQUARE.mT, "tall": TALL, "wide": TALL.mT}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(*, upper: bool) -> None:
    """Only one triangle is read, and only it is written; the factor solves and inverts."""
    half = POSITIVE.triu() if upper else POSITIVE.tril()
    assert_as_eager("linalg_cholesky_ex.default", half, upper=upper)
    assert_as_eager("cholesky.default", half, upper)
    factor = FACTOR.mT.contiguous() if upper else FACTOR
    assert_as_eager("cholesky_solve.default", SIDES, factor, upper)
    assert_as_eager("cholesky_solve.default", SIDES, factor[0, 0], upper)
    assert_as_eager("cholesky_inverse.default", factor, upper)


def test_a_matrix_that_is_not_positive_definite() -> None:
    """Its first bad minor is told, or raised."""
    matrix = POSITIVE[:, 0].clone()
    matrix[1, 3, 3] = -1.0
    assert [0, 4] == kernel("linalg_cholesky_ex.default")(matrix)[1].tolist()
    with pytest.raises(RuntimeError, match="positive definite"):
        kernel("cholesky.default")(matrix)


@pytest.mark.parametrize(("upper", "unit"), list(itertools.product([False, True], repeat=2)))
def test_triangular_systems(*, upper: bool, unit: bool) -> None:
    """From the left, from the right and of the transpose; batches broadcast."""
    matrix = FACTOR.mT if upper else FACTOR
    options = {"upper": upper, "unitriangular": unit}
    assert_as_eager("linalg_solve_triangular.default", matrix, SIDES, **options)
    assert_as_eager("linalg_solve_triangular.default", matrix[0, 0], SIDES.mT, left=False, **options)
    for transpose in (False, True):
        assert_as_eager("triangular_solve.default", SIDES[:1], matrix, upper, transpose, unit)


@pytest.mark.parametrize("name", MATRICES)
def test_lu(name: str) -> None:
    """Compact and unpacked."""
    matrix = MATRICES[name]
    assert_as_eager("linalg_lu_factor_ex.default", matrix)
    assert_as_eager("linalg_lu.default", matrix)
    lu, pivots, _ = eager("linalg_lu_factor_ex.default")(matrix)
    for data, permutation in itertools.product([False, True], repeat=2):
        assert_as_eager("lu_unpack.default", lu, pivots, data, permutation)


@pytest.mark.parametrize("left", [False, True])
def test_systems_of_equations(*, left: bool) -> None:
    """With a matrix, with its factorization and with that of its transpose."""
    sides = SIDES if left else SIDES.mT
    lu, pivots, _ = eager("linalg_lu_factor_ex.default")(SQUARE)
    for adjoint in (False, True):
        assert_as_eager("linalg_lu_solve.default", lu, pivots, sides, left=left, adjoint=adjoint)
    assert_as_eager("_linalg_solve_ex.default", SQUARE.mT, sides, left=left)
    solution = kernel("_linalg_solve_ex.default")(SQUARE, sides, left=left)[0]
    torch.testing.assert_close(solution, torch.linalg.solve(SQUARE, sides, left=left))
    if left:
        assert_as_eager("_linalg_solve_ex.default", SQUARE.mT, SIDES[..., 0])
        assert_as_eager("_linalg_solve_ex.default", SQUARE[0, 0].mT, SIDES[0, 0, :, 0])


@pytest.mark.parametrize("name", ["square", "transposed"])
def test_inverses_and_determinants(name: str) -> None:
    """LU is that of the transpose where eager's is, on which gradients count."""
    assert_as_eager("linalg_inv_ex.default", MATRICES[name])
    assert_as_eager("_linalg_det.default", MATRICES[name])
    assert_as_eager("_linalg_slogdet.default", MATRICES[name])


def test_a_singular_matrix() -> None:
    """Its first pivot that is 0 is told, or raised; its determinant is 0."""
    matrix = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert 2 == kernel("linalg_inv_ex.default")(matrix)[1].item()
    assert 0 == kernel("_linalg_det.default")(matrix)[0].item()
    sign, logarithm = kernel("_linalg_slogdet.default")(matrix)[:2]
    assert (0, float("-inf")) == (sign.item(), logarithm.item())
    with pytest.raises(RuntimeError, match="singular"):
        kernel("_linalg_solve_ex.default")(matrix.mT, matrix, check_errors=True)


@pytest.mark.parametrize("name", MATRICES)
def test_qr(name: str) -> None:
    """With the signs of LAPACK's reflections, reduced, complete and R alone."""
    matrix = MATRICES[name]
    assert_as_eager("geqrf.default", matrix)
    for mode in ("reduced", "complete", "r"):
        assert_as_eager("linalg_qr.default", matrix, mode)


@pytest.mark.parametrize(("left", "transpose"), list(itertools.product([False, True], repeat=2)))
def test_products_with_reflections(*, left: bool, transpose: bool) -> None:
    """Q times a matrix without Q."""
    reflections, tau = eager("geqrf.default")(TALL)
    other = values(2, 6, 4, dtype=WIDE) if left else values(2, 4, 6, dtype=WIDE)
    assert_as_eager("ormqr.default", reflections, tau, other, left, transpose)
    assert_as_eager("linalg_householder_product.default", reflections, tau)


def test_float32_and_matrices_of_nothing() -> None:
    """A batch may be empty, and a matrix, too."""
    matrix = torch.eye(3) + values(3, 3, scale=0.1)
    assert_as_eager("linalg_inv_ex.default", matrix)
    assert_as_eager("linalg_qr.default", matrix)
    assert_as_eager("linalg_cholesky_ex.default", matrix @ matrix.T)
    for shape in ((0, 4, 4), (3, 0, 0)):
        empty = values(*shape)
        assert_as_eager("linalg_cholesky_ex.default", empty)
        assert_as_eager("linalg_lu_factor_ex.default", empty)
        assert_as_eager("linalg_qr.default", empty)
        assert_as_eager("_linalg_det.default", empty)
        assert_as_eager("linalg_solve_triangular.default", empty, empty, upper=True)


def test_large_matrices_and_other_types_are_declined() -> None:
    """A program holds 128 rows and columns, and a substitution 1024 rows."""
    with pytest.raises(NotImplementedError, match="128"):
        kernel("linalg_qr.default")(values(129, 2))
    with pytest.raises(NotImplementedError, match="1024"):
        kernel("linalg_solve_triangular.default")(torch.eye(1025), torch.ones(1025, 1), upper=True)
    with pytest.raises(NotImplementedError, match="complex64"):
        kernel("_linalg_det.default")(torch.eye(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="square"):
        kernel("_linalg_det.default")(values(2, 3))


COMPLEX_SQUARE = torch.complex(SQUARE, values(2, 1, 5, 5, dtype=WIDE).mT)
COMPLEX_SIDES = torch.complex(SIDES, SIDES.flip(-1) + 1)
COMPLEX_MATRICES = {
    "square": COMPLEX_SQUARE,
    "transposed": COMPLEX_SQUARE.mT,
    "tall": torch.complex(TALL, TALL.flip(-2)),
    "wide": torch.complex(TALL, TALL.flip(-2)).mT,
    "single": COMPLEX_SQUARE.to(torch.complex64),
    "none": COMPLEX_SQUARE[:0],
    "empty": COMPLEX_SQUARE[..., :0, :0],
}


@pytest.mark.parametrize("name", COMPLEX_MATRICES)
def test_factorizations_of_complex_matrices(name: str) -> None:
    """Rows are chosen by the sum of the parts' magnitudes, as LAPACK does."""
    matrix = COMPLEX_MATRICES[name]
    assert_as_eager("linalg_lu_factor_ex.default", matrix)
    if matrix.shape[-1] == matrix.shape[-2]:
        assert_as_eager("linalg_inv_ex.default", matrix)
        assert_as_eager("_linalg_solve_ex.default", matrix, matrix.mT)


@pytest.mark.parametrize("left", [False, True])
def test_systems_of_complex_equations(*, left: bool) -> None:
    """With a matrix in either layout, its factorization and adjoint; batches broadcast, and sides may be vectors."""
    sides = COMPLEX_SIDES if left else COMPLEX_SIDES.mT
    lu, pivots, _ = eager("linalg_lu_factor_ex.default")(COMPLEX_SQUARE)
    for adjoint in (False, True):
        assert_as_eager("linalg_lu_solve.default", lu, pivots, sides, left=left, adjoint=adjoint)
    for matrix in (COMPLEX_SQUARE, COMPLEX_SQUARE.mT):
        assert_as_eager("_linalg_solve_ex.default", matrix, sides, left=left)
        assert_as_eager("_linalg_solve_ex.default", matrix[0, 0], sides, left=left)
    if left:
        assert_as_eager("_linalg_solve_ex.default", COMPLEX_SQUARE[0, 0], COMPLEX_SIDES[0, 0, :, 0])


def test_a_singular_complex_matrix() -> None:
    """Its first pivot that is 0 is told."""
    matrix = torch.tensor([[1.0, 2j], [2.0, 4j]])
    assert 2 == kernel("linalg_lu_factor_ex.default")(matrix)[2].item()
    with pytest.raises(RuntimeError, match="singular"):
        kernel("_linalg_solve_ex.default")(matrix, matrix, check_errors=True)


def test_earlier_torch_is_asked_for_solutions_with_row_major_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them it factors transposed, and takes LU for the transpose's in the gradient, depends on more."""
    monkeypatch.setattr(lu_factorization, "_SOLVES_WITH_THE_MATRIX", f"{torch.__version__}.1")
    solve = kernel("_linalg_solve_ex.default")
    with pytest.raises(NotImplementedError, match="row-major"):
        solve(SQUARE, SIDES)
    for matrix in (SQUARE.mT, COMPLEX_SQUARE):
        sides = SIDES.to(matrix.dtype)
        torch.testing.assert_close(solve(matrix, sides)[0], torch.linalg.solve(matrix, sides))
