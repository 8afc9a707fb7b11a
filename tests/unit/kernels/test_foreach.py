from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import MANIFEST, eager, kernel, values

from opsmith.kernels.common.launch import launch

OPS = [op for op in MANIFEST if op.startswith("_foreach_")]


def tensors(dtype: torch.dtype = torch.float32, count: int = 4) -> list[torch.Tensor]:
    """Of several sizes, one transposed, one empty, one a number; between 0 and 1, where every op is defined."""
    shapes = [(3, 5), (2, 70), (0, 3), ()] * (count // 4)
    found = [values(*shape, dtype=dtype).abs() % 0.9 + 0.05 for shape in shapes]
    found[0] = values(5, 3, dtype=dtype).abs().t() % 0.9 + 0.05
    return found


def arguments(op: str, dtype: torch.dtype, count: int = 4) -> list[object]:
    """Some for each of an overload's positional parameters."""
    found: list[object] = []
    for argument in eager(op)._schema.arguments:  # type: ignore[attr-defined]
        kind = str(argument.type)
        if "List[Tensor]" in kind:
            found.append(tensors(dtype, count))
        elif kind.startswith("List"):
            found.append([0.25 * (n + 1) for n in range(count)])
        elif kind == "Tensor":
            found.append(torch.tensor(0.5, dtype=dtype))
        elif argument.name in ("scalar", "value", "weight", "exponent", "self"):
            found.append(0.5)
    return found


def both(op: str, given: list[object]) -> tuple[object, object]:
    """What the kernel and eager return, or, in place, leave behind."""
    results = []
    for function in (kernel(op), eager(op)):
        own = [[t.clone() for t in a] if isinstance(a, list) and isinstance(a[0], torch.Tensor) else a for a in given]
        with np.errstate(all="ignore"):
            returned = function(*own)
        results.append(own[0] if returned is None else returned)
    return results[0], results[1]


@pytest.mark.parametrize("op", OPS)
def test_every_op_agrees_with_eager(op: str) -> None:
    """On tensors of several sizes and layouts, which the results keep."""
    ours, eagers = both(op, arguments(op, torch.float32))
    for x, y in zip(ours, eagers, strict=True):  # type: ignore[call-overload]
        torch.testing.assert_close(x, y)
        # Eager's CPU kernel for a number to many powers forgets the layout; a device's keeps it.
        assert x.stride() == y.stride() or "ScalarAndTensor" in op


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_more_tensors_than_a_launch_takes(dtype: torch.dtype) -> None:
    """In every type."""
    for op in ("_foreach_addcdiv_.ScalarList", "_foreach_lerp.Scalar", "_foreach_mul_.Tensor"):
        ours, eagers = both(op, arguments(op, dtype, 72))
        torch.testing.assert_close(ours, eagers)


@pytest.mark.parametrize(
    ("op", "most"), [("_foreach_mul_.Scalar", 64), ("_foreach_sqrt.default", 48), ("_foreach_addcdiv_.ScalarList", 32)]
)
def test_a_launch_takes_more_tensors_the_fewer_lists_there_are(
    op: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read and written is one list."""
    taken: list[int] = []

    def noted(kernel: Any, grid: tuple[int, ...], device: torch.device, lists: Any, *args: Any, **meta: Any) -> None:
        assert len({id(tensor) for tensors in lists for tensor in tensors}) == len(lists) * len(lists[0])
        taken.append(len(lists[0]))
        launch(kernel, grid, device, lists, *args, **meta)

    monkeypatch.setattr("opsmith.kernels.lists.tensor_lists.launch", noted)
    given = [
        [values(n % 3 + 1).abs() + 0.1 for n in range(most + 3)]
        if isinstance(one, list) and isinstance(one[0], torch.Tensor)
        else one
        for one in arguments(op, torch.float32, most + 3)
    ]
    ours, eagers = both(op, given)
    torch.testing.assert_close(ours, eagers)
    assert [most, 3] == taken


def test_tensors_longer_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks are moved without a mask, the rest with one."""
    monkeypatch.setattr("opsmith.kernels.lists.tensor_lists.BLOCK", 16)
    ours, eagers = both("_foreach_add.List", arguments("_foreach_add.List", torch.float32))
    torch.testing.assert_close(ours, eagers)


@pytest.mark.parametrize("op", ["_foreach_add.List", "_foreach_div_.ScalarList"])
def test_programs_take_several_blocks_of_long_lists(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """So that they look for their tensor once; tensors end anywhere in a program's blocks."""
    grids = []

    def noted(kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
        grids.append(grid)
        launch(kernel, grid, *args, **meta)

    monkeypatch.setattr("opsmith.kernels.lists.tensor_lists.launch", noted)
    monkeypatch.setattr("opsmith.kernels.lists.tensor_lists.BLOCK", 16)
    sizes = (1, 16 * 3, 0, 16 * 3 + 1, 700, 31)  # 54 blocks, six a program.
    x = [values(size, dtype=torch.float16) for size in sizes]
    other = [values(size + 1, dtype=torch.float16)[1:] for size in sizes] if op == "_foreach_add.List" else [3.0] * 6
    ours, eagers = both(op, [x, other])
    torch.testing.assert_close(ours, eagers)
    assert grids == [(12,)]


def test_lists_that_do_not_fit() -> None:
    """Other types, layouts and integers are declined; other lengths refused."""
    add = kernel("_foreach_add.List")
    with pytest.raises(ValueError, match="tensors"):
        add(tensors(), tensors()[:2])
    with pytest.raises(NotImplementedError):
        add(tensors(), tensors(torch.float64))
    with pytest.raises(NotImplementedError):
        add([values(3, 4)], [values(4, 3).t()])
    with pytest.raises(NotImplementedError):
        kernel("_foreach_add.Scalar")([torch.ones(3, dtype=torch.int64)], 1)
