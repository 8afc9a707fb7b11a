from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, eager, kernel, layouts, values

from opsmith.kernels.common.launch import launch
from opsmith.kernels.copies import concatenation

CAT = "cat.default"


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_inputs_of_every_layout_join(dtype: torch.dtype, dim: int) -> None:
    """Row-major, permuted, strided, offset and expanded ones in one call."""
    assert_as_eager(CAT, list(layouts(2, 3, 4, dtype=dtype).values()), dim)


@pytest.mark.parametrize("count", [2, 5])
def test_inputs_without_rows_of_their_own_join_in_one_launch(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As attention's blocks: heads lie behind positions in memory, slices of one position are contiguous."""
    x = values(2, 13, 3, 20)
    launches: list[Any] = []

    def counted(*args: Any, **meta: Any) -> None:
        launches.append(args)
        launch(*args, **meta)

    monkeypatch.setattr(concatenation, "launch", counted)
    monkeypatch.setattr(concatenation, "copy_into", None)
    parts = [x[:, start : 2 * start + 1].transpose(1, 2) for start in range(1, 1 + count)]
    batches_inside = values(3, 2, 4, 20).transpose(0, 1)
    assert_as_eager(CAT, [*parts, values(2, 3, 5, 20), batches_inside, parts[0][:, :, :0]], 2)
    assert len(launches) == 1


@pytest.mark.parametrize("other", [torch.float16, torch.int64, torch.bool, torch.float64])
def test_mixed_types_promote(other: torch.dtype) -> None:
    """As elsewhere."""
    assert_as_eager(CAT, [values(2, 3, dtype=torch.bfloat16), values(4, 3, dtype=other)])


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.channels_last_3d])
def test_channels_last_survives_where_all_inputs_have_it(memory_format: torch.memory_format) -> None:
    """One row-major input makes the result row-major."""
    x = values(*([2, 3, 4, 5] if memory_format is torch.channels_last else [2, 3, 4, 5, 6]))
    last = x.to(memory_format=memory_format)
    assert_as_eager(CAT, [last, last], 1)
    assert_as_eager(CAT, [last, x], 1)


def test_empty_inputs_take_no_room() -> None:
    """A 1-d empty tensor fits everything, and its type takes part in the promotion."""
    x = values(2, 3)
    assert_as_eager(CAT, [torch.empty(0), x], 1)
    assert_as_eager(CAT, [x, torch.empty(0, dtype=torch.float64)], 0)
    assert_as_eager(CAT, [values(0, 3), x, values(0, 3)], 0)
    assert_as_eager(CAT, [torch.empty(0), torch.empty(0)], 0)


@pytest.mark.parametrize(
    "tensors",
    [[], [torch.tensor(1.0)], [torch.ones(2, 2), torch.ones(2, 3)], [torch.ones(2), torch.ones(2, 3)]],
)
def test_inputs_that_do_not_fit_are_refused(tensors: list[torch.Tensor]) -> None:
    """As in eager."""
    for cat in (eager(CAT), kernel(CAT)):
        with pytest.raises((RuntimeError, ValueError)):
            cat(tensors, 0)
