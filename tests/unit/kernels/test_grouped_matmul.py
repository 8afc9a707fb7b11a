from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, values

from opsmith.kernels.common.launch import launch
from opsmith.kernels.matmul import grouped_matmul

#: Where groups end: one is empty, one a row long, and they add up to 150.
ENDS = torch.tensor([3, 3, 70, 149, 150], dtype=torch.int32)
OP = "_grouped_mm.default"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_in_groups(dtype: torch.dtype) -> None:
    """Each group of rows meets a matrix of its own, as experts do; weights come turned as well."""
    a = values(150, 72, dtype=dtype, scale=0.5)
    assert_as_eager(OP, a, values(5, 72, 40, dtype=dtype), ENDS)
    assert_as_eager(OP, a, values(5, 40, 72, dtype=dtype).mT, ENDS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_columns_in_groups(dtype: torch.dtype) -> None:
    """Each group of columns meets a matrix of its own."""
    actual = kernel(OP)(values(5, 24, 72, dtype=dtype), values(72, 152, dtype=dtype, scale=0.5)[:, :150], ENDS)
    a, b = values(5, 24, 72, dtype=dtype), values(72, 152, dtype=dtype, scale=0.5)[:, :150]
    begins = [0, *ENDS.tolist()[:-1]]
    parts = [a[g] @ b[:, begin:end] for g, (begin, end) in enumerate(zip(begins, ENDS.tolist(), strict=True))]
    torch.testing.assert_close(actual, torch.cat(parts, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_terms_in_groups(dtype: torch.dtype) -> None:
    """The gradients of the weights: sums over the rows of each group, zeros where it has none."""
    a, b = values(150, 40, dtype=dtype).T, values(150, 24, dtype=dtype, scale=0.5)
    actual = kernel(OP)(a, b, ENDS)
    begins = [0, *ENDS.tolist()[:-1]]
    parts = [a[:, begin:end] @ b[begin:end] for begin, end in zip(begins, ENDS.tolist(), strict=True)]
    torch.testing.assert_close(actual, torch.stack(parts))


def test_several_elements_of_a_line_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as divide the lines of each factor and of the result; a group may begin at any row, column or term."""
    taken: list[tuple[int, ...]] = []

    def launched(*args: Any, **meta: Any) -> None:
        layout = meta["LAYOUT"]
        taken.append(tuple(vector.value for vector in (layout.A_VEC, layout.B_VEC, layout.C_VEC, layout.K_VEC)))
        launch(*args, **meta)

    monkeypatch.setattr(grouped_matmul, "launch", launched)
    a, b = values(150, 72, dtype=torch.bfloat16, scale=0.5), values(5, 72, 24, dtype=torch.bfloat16)
    assert_as_eager(OP, a, b, ENDS)
    assert_as_eager(OP, a, values(5, 24, 72, dtype=torch.bfloat16).mT, ENDS)
    kernel(OP)(b.mT, a.mT, ENDS)
    kernel(OP)(a.mT, values(150, 24, dtype=torch.bfloat16), ENDS)
    kernel(OP)(values(24, 150, dtype=torch.bfloat16), a, ENDS)
    assert taken == [(8, 8, 8, 8), (8, 8, 8, 8), (8, 8, 1, 8), (8, 8, 8, 1), (1, 8, 8, 1)]


def test_without_offsets_matrices_form_a_batch() -> None:
    """As in eager."""
    assert_as_eager(OP, values(3, 16, 32, dtype=torch.bfloat16), values(3, 32, 24, dtype=torch.bfloat16))


def test_rows_behind_the_last_group_are_left_alone() -> None:
    """Nothing is read from a group that is not there."""
    a, b = values(40, 16, dtype=torch.bfloat16), values(2, 16, 8, dtype=torch.bfloat16)
    actual = kernel(OP)(a, b, torch.tensor([10, 12], dtype=torch.int32))
    torch.testing.assert_close(actual[:10], a[:10] @ b[0])
    torch.testing.assert_close(actual[10:12], a[10:12] @ b[1])


def test_what_does_not_fit_is_refused() -> None:
    """Offsets are needed for two dimensions, one for each matrix, and a bias is not served."""
    a, b = values(4, 8), values(2, 8, 16)
    with pytest.raises(ValueError, match="needed"):
        kernel(OP)(a, b)
    with pytest.raises(ValueError, match="one offset"):
        kernel(OP)(a, b, ENDS)
    with pytest.raises(NotImplementedError, match="bias"):
        kernel(OP)(a, b, torch.tensor([1, 4], dtype=torch.int32), values(16))
