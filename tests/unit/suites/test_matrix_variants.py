"""Other matrices for decompositions and solvers: what they are, who is right on them, and who is not any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of, leaves
from torch import Tensor

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls.live import rebuild
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord
from opsmith.evaluation.comparisons.compare import compare
from opsmith.suites.variants import matrix_variants, probes
from opsmith.suites.variants.matrices import MATRICES, Kind

aten = torch.ops.aten
CPU = torch.device("cpu")
SEEDS = range(5)


def _matrix(kind: Kind, seed: int, size: int = 6) -> Tensor:
    matrix = torch.randn(2, size, size, generator=torch.Generator().manual_seed(seed))
    match kind:
        case Kind.SYMMETRIC:
            return matrix + matrix.mT
        case Kind.DEFINITE:
            return matrix @ matrix.mT + torch.eye(size)
        case Kind.TRIANGULAR:
            return matrix.triu() + 3 * torch.eye(size)
        case Kind.GENERAL:
            return matrix


_RIGHT = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(99))
#: What stands around the matrix in a call.
AROUND: dict[str, Callable[[Tensor], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "_linalg_solve_ex": lambda matrix: ((matrix, _RIGHT), {}),
    "linalg_solve_triangular": lambda matrix: ((matrix, _RIGHT), {"upper": True}),
    "triangular_solve": lambda matrix: ((_RIGHT, matrix), {}),
    "_linalg_svd": lambda matrix: ((matrix, False, True), {}),
}


def _alone(matrix: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (matrix,), {}


def _in_single(result: Tensor) -> Tensor:
    """In single precision what is no whole number."""
    if result.is_complex():
        return result.to(torch.complex64)
    return result.float() if result.is_floating_point() else result


def _op(stem: str) -> Any:
    schemas = aten_schemas()
    return overload(next(name for name in (f"{stem}.default", f"{stem}.X", stem) if name in schemas))


def varied(op: Any, *args: Any, seed: int = 1, **kwargs: Any) -> dict[str, CallRecord]:
    """The variants of a call by label."""
    with CallRecorder(lambda *_: True) as recorder:
        op(*args, **kwargs)
    record = recorder.calls[-1].record
    assert record is not None
    return dict(matrix_variants(record, aten_schemas()[record.op], seed))


def verdict(op: Any, record: CallRecord, kernel: Callable[..., Any]) -> str:
    """What is found of a kernel on a variant; empty if nothing."""
    live = rebuild(record, CPU)
    reference = leaves(op(*live.args, **live.kwargs))
    with torch.no_grad():
        candidate = leaves(kernel(*rebuild(record, CPU).args, **live.kwargs))
    finding = compare(call_of(op, *live.args, **live.kwargs), [reference], [candidate], tolerance="strict")
    return "" if finding.passed else finding.detail or "differs"


@pytest.mark.parametrize("stem", MATRICES)
def test_eager_answers_every_variant_and_is_right(stem: str) -> None:
    """So is what was computed in float64; of the labels each is there, and what is promised of each."""
    op, matrix = _op(stem), MATRICES[stem]
    names = [argument.name for argument in op._schema.arguments]

    def in_float64(*args: Any, **kwargs: Any) -> Any:
        wide = [arg.double() if isinstance(arg, Tensor) else arg for arg in args]
        return tuple([_in_single(result) for result in leaves(op(*wide, **kwargs)) if isinstance(result, Tensor)])

    for seed in SEEDS:
        args, kwargs = AROUND.get(stem, _alone)(_matrix(matrix.kind, seed))
        variants = varied(op, *args, seed=seed, **kwargs)
        assert matrix.labels == {*variants}
        for label, record in variants.items():
            assert not verdict(op, record, op)
            assert not verdict(op, record, in_float64), (seed, label)
            changed = rebuild(record, CPU).args[names.index(matrix.name)]
            assert not torch.equal(changed, args[names.index(matrix.name)])
            if label == "zero_diagonal":
                assert not changed.diagonal(dim1=-2, dim2=-1).any()
            if matrix.kind in (Kind.SYMMETRIC, Kind.DEFINITE):
                assert torch.equal(changed, changed.mT)


def test_a_matrix_that_is_read_through_strides_stays_so() -> None:
    """Only its values change, and what lies between them does not."""
    store = torch.randn(5, 10)
    variants = varied(aten.linalg_inv_ex.default, store[:, ::2].t())
    for record in variants.values():
        matrix = rebuild(record, CPU).args[0]
        assert (2, 10) == matrix.stride()
        assert torch.equal(store[:, 1:-1:2], matrix.as_strided((5, 4), (10, 2), 1))


@pytest.mark.parametrize("other", [torch.randn(0, 0), torch.ones(1, 1).expand(3, 3), torch.randn(3, 0, 0)])
def test_what_is_no_matrix_of_its_own_is_left_alone(other: Tensor) -> None:
    """Nothing to reorder, or one element in many places."""
    assert not varied(aten.linalg_inv_ex.default, other)


def test_variants_are_among_those_that_are_asked() -> None:
    """And ops that take no matrix have none."""
    matrix = torch.randn(5, 5)
    with CallRecorder(lambda *_: True) as recorder:
        aten._linalg_det.default(matrix)
        aten.relu.default(matrix)
    of_det, of_relu = (call.record for call in recorder.calls[-2:])
    assert of_det is not None
    assert of_relu is not None
    labels = {label for label, _ in probes([of_det], aten_schemas()[of_det.op], 1, 8)}
    assert MATRICES["_linalg_det"].labels <= labels
    assert not [*matrix_variants(of_relu, aten_schemas()[of_relu.op], 1)]


# ---------------------------------------------------------------- kernels


def _eliminated(matrix: Tensor, *, pivots: bool) -> tuple[Tensor, Tensor]:
    """The inverse of each matrix by the method of Gauss and Jordan, and its determinant."""
    size = matrix.shape[-1]
    inverses, determinants = [], []
    for one in matrix.reshape(-1, size, size):
        rows, sign, determinant = torch.cat([one, torch.eye(size)], 1), 1.0, torch.tensor(1.0)
        for k in range(size):
            pivot = k + int(rows[k:, k].abs().argmax()) if pivots else k
            if pivot != k:
                rows[[k, pivot]] = rows[[pivot, k]]
                sign = -sign
            determinant = determinant * rows[k, k]
            rows[k] = rows[k] / rows[k, k]
            for i in range(size):
                if i != k:
                    rows[i] = rows[i] - rows[i, k] * rows[k]
        inverses.append(rows[:, size:])
        determinants.append(determinant * sign)
    return torch.stack(inverses).view(matrix.shape), torch.stack(determinants).view(matrix.shape[:-2])


def _info(matrix: Tensor) -> Tensor:
    return torch.zeros(matrix.shape[:-2], dtype=torch.int32)


def test_an_elimination_without_pivots_is_wrong() -> None:
    """On random matrices it passes; the diagonal is what it divides by. With pivots it is right on all of them."""
    op = aten.linalg_inv_ex.default
    for seed in SEEDS:
        for label, record in varied(op, _matrix(Kind.GENERAL, seed), seed=seed).items():
            assert not verdict(op, record, lambda a: (_eliminated(a, pivots=True)[0], _info(a))), (seed, label)
            found = verdict(op, record, lambda a: (_eliminated(a, pivots=False)[0], _info(a)))
            assert found or label != "zero_diagonal"


def test_a_determinant_without_the_sign_of_its_permutation_is_wrong() -> None:
    """And so is one that takes rows of zeros for a scale."""
    op = aten._linalg_det.default

    def determinant(matrix: Tensor, *, signed: bool) -> tuple[Tensor, Tensor, Tensor]:
        _, lu, pivots = op(matrix)
        value = lu.diagonal(dim1=-2, dim2=-1).prod(-1)
        swaps = (pivots != torch.arange(1, matrix.shape[-1] + 1)).sum(-1)
        return value * (1 - 2 * (swaps % 2)) if signed else value, lu, pivots

    unsigned = 0
    for seed in SEEDS:
        for record in varied(op, _matrix(Kind.GENERAL, seed, size=5), seed=seed).values():
            assert not verdict(op, record, lambda a: determinant(a, signed=True))
            unsigned += bool(verdict(op, record, lambda a: determinant(a, signed=False)))
    assert unsigned


@pytest.mark.slow
def test_a_solution_by_another_stable_method_is_right() -> None:
    """Through QR; of a matrix that was rounded to half precision it is not."""
    op = aten._linalg_solve_ex.default

    def by_qr(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        q, r = torch.linalg.qr(a)
        return torch.linalg.solve_triangular(r, q.mT @ b, upper=True), *op(a, b)[1:]

    def in_half(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return by_qr(a.half().float(), b)[0], *op(a, b)[1:]

    for seed in SEEDS:
        for label, record in varied(op, _matrix(Kind.GENERAL, seed), _RIGHT, seed=seed).items():
            assert not verdict(op, record, by_qr), (seed, label)
            assert "does not fit the equations" in verdict(op, record, in_half), (seed, label)


def test_a_triangle_is_solved_row_by_row() -> None:
    """Backwards it is right, with one row left out it is not."""
    op = aten.linalg_solve_triangular.default

    def backwards(a: Tensor, b: Tensor, *, upper: bool, first: int = 0) -> Tensor:
        x = torch.zeros_like(b)
        for i in reversed(range(first, a.shape[-1])):
            x[..., i, :] = (b[..., i, :] - (a[..., i, None, :] @ x)[..., 0, :]) / a[..., i, i, None]
        return x

    for seed in SEEDS:
        variants = varied(op, _matrix(Kind.TRIANGULAR, seed), _RIGHT, seed=seed, upper=True)
        for record in variants.values():
            assert not verdict(op, record, backwards)
            assert verdict(op, record, lambda a, b, upper: backwards(a, b, upper=upper, first=1))


def test_a_root_is_triangular_and_gives_the_matrix_back() -> None:
    """A column at a time is as good as a block; the root of the wrong triangle's scale is none."""
    op = aten.linalg_cholesky_ex.default

    def by_columns(a: Tensor) -> tuple[Tensor, Tensor]:
        lower = torch.zeros_like(a)
        for j in range(a.shape[-1]):
            lower[..., j, j] = (a[..., j, j] - lower[..., j, :j].square().sum(-1)).sqrt()
            beside = (lower[..., j + 1 :, :j] @ lower[..., j, :j, None])[..., 0]
            lower[..., j + 1 :, j] = (a[..., j + 1 :, j] - beside) / lower[..., j, j, None]
        return lower, _info(a)

    def turned(a: Tensor) -> tuple[Tensor, Tensor]:
        lower, info = by_columns(a)
        rotation = torch.linalg.qr(torch.randn(a.shape[-1], a.shape[-1]))[0]
        return lower @ rotation, info

    for seed in SEEDS:
        for record in varied(op, _matrix(Kind.DEFINITE, seed), seed=seed).values():
            assert not verdict(op, record, by_columns)
            assert "triangular" in verdict(op, record, turned)
            assert verdict(op, record, lambda a: (by_columns(a)[0] * 1.001, _info(a)))
