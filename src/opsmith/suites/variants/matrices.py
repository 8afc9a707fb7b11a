"""The same decomposition or solution of other matrices: those that use brings and random samples do not hold.

================= ======================================================================================
label             the matrix
================= ======================================================================================
``permuted``      its rows and its columns in another order, so that pivots lie elsewhere
``zero_diagonal`` nothing on the diagonal, and as well conditioned as before it was reordered
``scaled``        rows and columns times powers of two from 2^-8 to 2^8
``singular``      one column of zeros; of a symmetric matrix the row, too
================= ======================================================================================

What is symmetric stays so, and what is positive definite. A triangle is only scaled, by rows. An algorithm without
pivots divides by zero on the second; a determinant without the sign of its permutation is wrong on the first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from opsmith.aten.strides import overlaps
from opsmith.core.case import CallRecord, TensorValue
from opsmith.core.op import OpSchema
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs.binding import stem_of
from opsmith.suites.variants.layouts import bytes_of, window_of
from opsmith.suites.variants.scope import bound_call

#: Rows and columns of ``scaled`` differ by up to the square of this power of two.
SCALE_BITS = 8
#: Of ``zero_diagonal``, what an element beside the large ones has for its size: a row of them adds up to a half.
BESIDE = 0.5


class Kind(enum.Enum):
    """What an op takes its matrix for."""

    GENERAL = enum.auto()
    SYMMETRIC = enum.auto()
    DEFINITE = enum.auto()
    TRIANGULAR = enum.auto()


class _Matrix(NamedTuple):
    """An op's matrix.

    Attributes:
        name: of the argument.
        kind: what it is taken for.
        labels: of the variants that have one right answer.
    """

    name: str
    kind: Kind
    labels: frozenset[str]


def _of(name: str, kind: Kind, labels: str) -> _Matrix:
    return _Matrix(name, kind, frozenset(labels.split()))


# Where rows differ in scale, a determinant, or the eigenvalues of what is not symmetric, are a matter of rounding.
# So is the inverse of a singular matrix.
MATRICES: dict[str, _Matrix] = {
    "_linalg_det": _of("A", Kind.GENERAL, "permuted zero_diagonal singular"),
    "_linalg_slogdet": _of("A", Kind.GENERAL, "permuted zero_diagonal singular"),
    "linalg_lu": _of("A", Kind.GENERAL, "permuted zero_diagonal scaled singular"),
    "linalg_lu_factor_ex": _of("A", Kind.GENERAL, "permuted zero_diagonal scaled singular"),
    "linalg_inv_ex": _of("A", Kind.GENERAL, "permuted zero_diagonal scaled"),
    "_linalg_solve_ex": _of("A", Kind.GENERAL, "permuted zero_diagonal scaled"),
    "linalg_qr": _of("A", Kind.GENERAL, "permuted zero_diagonal scaled singular"),
    "_linalg_svd": _of("A", Kind.GENERAL, "permuted zero_diagonal scaled singular"),
    "linalg_eig": _of("self", Kind.GENERAL, "zero_diagonal"),
    "_linalg_eigvals": _of("self", Kind.GENERAL, "zero_diagonal"),
    "linalg_eigvals": _of("self", Kind.GENERAL, "zero_diagonal"),
    "_linalg_eigh": _of("A", Kind.SYMMETRIC, "permuted zero_diagonal scaled singular"),
    "linalg_cholesky_ex": _of("self", Kind.DEFINITE, "permuted scaled"),
    "cholesky": _of("self", Kind.DEFINITE, "permuted scaled"),
    "linalg_solve_triangular": _of("self", Kind.TRIANGULAR, "scaled"),
    "triangular_solve": _of("A", Kind.TRIANGULAR, "scaled"),
}


def matrix_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with another matrix in the place of its own; labels as above, in that order.

    Args:
        record: a recorded call, whose matrix has recorded values and is not another argument, too.
        schema: of its overload.
        seed: of the orders and of the scales.
    """
    matrix = MATRICES.get(stem_of(schema.name))
    call = None if matrix is None else bound_call(record)
    if matrix is None or call is None:
        return
    tensor = call.tensor(matrix.name)
    if tensor is None or not _may_change(record, tensor, [slot.tensor.storage for slot in call.slots]):
        return
    square = tensor.shape[-1] == tensor.shape[-2]
    for label in ("permuted", "zero_diagonal", "scaled", "singular"):
        if label not in matrix.labels or (label == "zero_diagonal" and (not square or tensor.shape[-1] < 2)):
            continue
        if call.flag("unitriangular") and label == "scaled":
            continue  # Its diagonal is not read, so that it would not be scaled with the rest.
        generator = torch.Generator().manual_seed(derive_seed(seed, label))
        yield label, _with_matrix(record, tensor, label, matrix.kind, generator)


def _may_change(record: CallRecord, tensor: TensorValue, storages: list[int]) -> bool:
    is_matrix = len(tensor.shape) >= 2 and min(tensor.shape[-2:]) > 0 and 0 not in tensor.shape
    own = storages.count(tensor.storage) == 1 and isinstance(record.storages[tensor.storage], bytes)
    return is_matrix and own and 0 not in tensor.strides and not overlaps(tensor)


def _with_matrix(
    record: CallRecord, tensor: TensorValue, label: str, kind: Kind, generator: torch.Generator
) -> CallRecord:
    storage = record.storages[tensor.storage]
    assert isinstance(storage, bytes)
    memory, window = window_of(storage, tensor)
    window.copy_(_changed(window.clone(), label, kind, generator))
    storages = [*record.storages]
    storages[tensor.storage] = bytes_of(memory)
    return msgspec.structs.replace(record, storages=tuple(storages))


def _changed(matrix: Tensor, label: str, kind: Kind, generator: torch.Generator) -> Tensor:
    rows, columns = matrix.shape[-2:]
    paired = kind in (Kind.SYMMETRIC, Kind.DEFINITE)
    if label == "permuted":
        order = torch.randperm(rows, generator=generator)
        other = order if paired else torch.randperm(columns, generator=generator)
        return matrix[..., order, :][..., other]
    if label == "zero_diagonal":
        return _without_diagonal(matrix, paired=paired)
    if label == "scaled":
        left, right = _scales(rows, generator), _scales(columns, generator)
        if paired:
            right = left
        elif kind is Kind.TRIANGULAR:
            right = torch.ones(columns)
        return matrix * (left[:, None] * right).to(matrix.dtype)
    column = int(torch.randint(columns, (1,), generator=generator))
    matrix[..., column] = 0
    if paired:
        matrix[..., column, :] = 0
    return matrix


def _without_diagonal(matrix: Tensor, *, paired: bool) -> Tensor:
    """Nothing on the diagonal. Unless symmetric, ones beside it outweigh the rest of each row, so it is regular."""
    size = matrix.shape[-1]
    if not paired:
        largest = matrix.abs().amax((-2, -1), keepdim=True).clamp(min=torch.finfo(matrix.dtype).tiny)
        ones = torch.eye(size, dtype=matrix.dtype).roll(1, -1)
        matrix = matrix / largest * (BESIDE / size) + ones
    return matrix - torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))


def _scales(count: int, generator: torch.Generator) -> Tensor:
    return torch.exp2(torch.randint(-SCALE_BITS, SCALE_BITS + 1, (count,), generator=generator).float())
