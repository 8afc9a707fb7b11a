"""Factorisations: what a decomposition promises, not eager's choice among equals."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.evaluation_calls import call_of, judge

from opsmith.evaluation.comparisons.compare import compare

aten = torch.ops.aten


def _matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, rows, columns, dtype=dtype, generator=torch.Generator().manual_seed(3))


def test_an_svd_may_turn_its_singular_vectors() -> None:
    """By a phase that cancels in the product, not on one side only."""
    for dtype, phase in ((torch.float32, -1.0), (torch.complex64, 1j)):
        x = _matrix(5, 3, dtype)
        u, s, vh = aten._linalg_svd(x)
        turn = torch.tensor([1.0, phase, 1.0], dtype=dtype)
        assert judge(aten._linalg_svd.default, (x,), (u * turn, s, vh * turn.conj()[:, None])).passed
        finding = judge(aten._linalg_svd.default, (x,), (u * turn, s, vh))
        assert "U diag(S) Vh does not give the matrix back" in finding.detail


def test_an_svd_has_its_spectrum_in_order_and_orthonormal_vectors() -> None:
    """A product that gives the matrix back is not enough."""
    x = _matrix(4, 4)
    u, s, vh = aten._linalg_svd(x)
    assert "singular values" in judge(aten._linalg_svd.default, (x,), (u.flip(-1), s.flip(-1), vh.flip(-2))).detail
    mixed = (x @ torch.linalg.inv(vh) / s.unsqueeze(-2) * 2, s, vh / 2)
    assert "orthonormal" in judge(aten._linalg_svd.default, (x,), mixed).detail


def test_eigenvectors_may_change_sign_and_eigenvalues_may_not_move() -> None:
    """For a symmetric matrix, of which eager reads one triangle."""
    x = _matrix(4, 4)
    w, v = aten._linalg_eigh(x, "U")
    assert judge(aten._linalg_eigh.default, (x, "U"), (w, -v)).passed
    assert not judge(aten._linalg_eigh.default, (x, "U"), (w.flip(-1), v.flip(-1))).passed
    assert not judge(aten._linalg_eigh.default, (x, "U"), aten._linalg_eigh(x, "L")).passed


def test_general_eigenvalues_may_come_in_any_order_with_their_vectors() -> None:
    """Each with its own."""
    x = _matrix(4, 4)
    w, v = aten.linalg_eig(x)
    assert judge(aten.linalg_eig.default, (x,), (w.flip(-1), v.flip(-1))).passed
    assert not judge(aten.linalg_eig.default, (x,), (w.flip(-1), v)).passed
    assert not judge(aten.linalg_eig.default, (x,), (w[..., :1].expand(2, 4), v[..., :1].expand(2, 4, 4))).passed


def test_a_qr_may_turn_a_column_and_keeps_r_triangular() -> None:
    """Signs of a column of Q and a row of R go together."""
    x = _matrix(5, 3)
    q, r = aten.linalg_qr(x)
    sign = torch.tensor([1.0, -1.0, 1.0])
    assert judge(aten.linalg_qr.default, (x,), (q * sign, r * sign[:, None])).passed
    assert not judge(aten.linalg_qr.default, (x,), (q * sign, r)).passed
    turn = torch.linalg.qr(_matrix(3, 3))[0]
    assert "triangular" in judge(aten.linalg_qr.default, (x,), (q @ turn, turn.mT @ r)).detail


def test_an_lu_may_choose_other_pivots_and_has_to_give_the_matrix_back() -> None:
    """Beside it the solution is a value."""
    a, b = torch.tensor([[2.0, 1.0], [2.0, 5.0]]), torch.tensor([1.0, 2.0])
    x, lu, _, info = aten._linalg_solve_ex(a, b)
    other = torch.tensor([[2.0, 5.0], [1.0, -4.0]])  # Rows exchanged: L = [1; 1, 1].
    args = (a.mT.contiguous().mT, b)
    reference = aten._linalg_solve_ex(*args)
    assert judge(aten._linalg_solve_ex.default, args, reference).passed
    exchanged = torch.tensor([2, 2], dtype=torch.int32)
    kept = torch.tensor([1, 2], dtype=torch.int32)
    assert judge(aten._linalg_solve_ex.default, args, (x, other, exchanged, info)).passed
    assert not judge(aten._linalg_solve_ex.default, args, (x, other, kept, info)).passed
    assert not judge(aten._linalg_solve_ex.default, args, (x + 1e-3, lu, kept, info)).passed


def _eliminated(a: torch.Tensor, between: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> torch.Tensor:
    """L and U of an LU without pivoting, in one matrix, each product changed before it is taken away."""
    a = a.clone()
    for k in range(a.shape[-1] - 1):
        a[..., k + 1 :, k] /= a[..., k, k, None]
        a[..., k + 1 :, k + 1 :] -= between(a[..., k + 1 :, k, None] * a[..., k, None, k + 1 :])
    return a


def test_factors_that_grow_without_pivoting_may_lose_what_their_products_round() -> None:
    """As eager's do; products of half the digits fail, and so does a factor that is off by more than those."""
    a = _matrix(5, 5)
    a[..., 0, 0] = 1e-4
    pivots, info = torch.arange(1, 6, dtype=torch.int32).expand(2, 5), torch.zeros(2, dtype=torch.int32)
    call = call_of(aten.linalg_lu_factor_ex.default, a, pivot=False)
    eager, exact = _eliminated(a), _eliminated(a.double()).float()
    lower, upper = (eager.double().tril(-1) + torch.eye(5), eager.double().triu())
    assert (lower @ upper - a).abs().max() > 1e-4
    rounded = _eliminated(a, lambda product: product.half().float())
    grown = exact.clone()
    grown[..., 4, 3] *= 1.1
    for answer, passes in ((exact, True), (rounded, False), (exact * 1.001, False), (grown, False)):
        finding = compare(call, [[eager, pivots, info]], [[answer, pivots, info]], tolerance="strict")
        assert passes == finding.passed, finding.detail
