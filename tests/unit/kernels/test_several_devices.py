"""What eager does on a GPU alone, and where devices are mixed: tensors without memory stand for those of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import kernel, modules_with
from torch._subclasses import FakeTensorMode

from opsmith.kernels.common import launch

GPU = torch.device("cuda", 0)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """The arguments of each launch, on a machine that is said to have a GPU."""
    found: list[tuple[Any, ...]] = []
    for module in modules_with("launch"):
        monkeypatch.setattr(module, "launch", lambda _kernel, _grid, device, *args, **_: found.append((device, *args)))
    for module in modules_with("multiprocessors"):
        monkeypatch.setattr(module, "multiprocessors", lambda _device: 132)
    monkeypatch.setattr(launch, "INTERPRETED", False)
    with FakeTensorMode():
        yield found


def tensors_of(arguments: Any) -> list[torch.Tensor]:
    """All tensors among the arguments of a launch."""
    if isinstance(arguments, torch.Tensor):
        return [arguments]
    return [tensor for one in arguments for tensor in tensors_of(one)] if isinstance(arguments, tuple) else []


Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda x, number, op=op: kernel(f"{op}.Tensor")(x, number)
            for op in ("eq", "ne", "lt", "le", "gt", "ge", "add", "mul", "div", "remainder")
        ),
        lambda x, number: kernel("sub.Tensor")(number, x),
        kernel("maximum.default"),
        lambda x, number: kernel("logical_and.default")(number, x),
        lambda x, number: kernel("addcmul.default")(x, x, number),
        lambda x, number: kernel("lerp.Tensor")(x, x, number),
        lambda x, number: kernel("where.self")(x > 0, x, number),
        lambda x, number: kernel("masked_fill.Tensor")(x, x > 0, number),
        kernel("fill.Tensor"),
    ],
)
def test_a_number_on_the_host_joins_a_device(launched: list[tuple[Any, ...]], call: Call) -> None:
    """It goes into the kernel as its bits: a GPU cannot read it where it is."""
    x, number = torch.empty(3, 4, device=GPU), torch.tensor(1.5)
    assert call(x, number).device == GPU
    [arguments] = launched
    assert all(tensor.device == GPU for tensor in tensors_of(arguments))


def test_host_tensors_alone_are_declined(launched: list[tuple[Any, ...]]) -> None:
    """There is nothing to launch on; nor can a GPU read a host tensor with dimensions."""
    with pytest.raises(NotImplementedError, match="cpu tensors"):
        kernel("eq.Tensor")(torch.empty(3), torch.tensor(1.5))
    with pytest.raises(NotImplementedError, match="cpu tensors"):
        kernel("eq.Tensor")(torch.empty(3, device=GPU), torch.empty(1))
    assert [] == launched


@pytest.mark.parametrize("accumulate", [False, True])
def test_indices_on_the_host_are_moved(launched: list[tuple[Any, ...]], *, accumulate: bool) -> None:
    """As is a value without dimensions that is put."""
    x, index, number = torch.empty(3, 4, device=GPU), torch.tensor([2, 0]), torch.tensor(1.5)
    assert (2, 4) == kernel("index.Tensor")(x, [index]).shape
    assert (3, 2) == kernel("index.Tensor")(x, [None, index.to(GPU)]).shape
    kernel("index_put.default")(x, [index, index], number, accumulate)
    kernel("index_put_.default")(x, [index], number, accumulate)
    assert all(tensor.device == GPU for arguments in launched for tensor in tensors_of(arguments))


def test_the_extrema_of_all_elements_keep_no_dimensions_on_a_gpu(launched: list[tuple[Any, ...]]) -> None:
    """Eager keeps them on a CPU; along one dimension it keeps it on both."""
    shapes = [
        [end.shape for end in kernel("aminmax.default")(torch.empty(2, 3, device=GPU), dim=dim, keepdim=True)]
        for dim in (None, 0)
    ]
    assert [[(), ()], [(1, 3), (1, 3)]] == shapes
    assert {GPU} == {device for device, *_ in launched}
