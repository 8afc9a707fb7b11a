"""On a GPU: views and new memory lie there, and factories bring to the host what they are asked for there."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import eager, kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("zeros_like.default", ()),
        ("full_like.default", (2.5,)),
        ("new_ones.default", ([3, 2],)),
        ("new_full.default", ([3, 2], 2.5)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.complex64])
def test_a_factory_writes_for_the_host(op: str, args: tuple[Any, ...], dtype: torch.dtype) -> None:
    """The values and the layout that eager has there."""
    model = torch.ones(2, 3, device="cuda").t()
    expected = eager(op)(model, *args, device=CPU, dtype=dtype, pin_memory=False)
    actual = kernel(op)(model, *args, device=CPU, dtype=dtype, pin_memory=False)
    assert (expected.device, expected.stride()) == (actual.device, actual.stride())
    assert torch.equal(expected, actual)


def test_random_numbers_for_the_host_differ_and_lie_in_their_range() -> None:
    """Drawn from the generator of the GPU."""
    model = torch.ones(100, 30, device="cuda")
    uniform = kernel("rand_like.default")(model, device=CPU, dtype=torch.float64)
    integers = kernel("randint_like.low_dtype")(model, 2, 9, device=CPU)
    assert (CPU, torch.float64) == (uniform.device, uniform.dtype)
    assert {*range(2, 9)} == {*integers.int().flatten().tolist()}
    assert 0 <= float(uniform.min()) < 0.01
    assert not torch.equal(uniform, kernel("rand_like.default")(model, device=CPU, dtype=torch.float64))


def test_views_and_memory_lie_on_the_gpu() -> None:
    """Over the argument's storage, or in new memory of the same device; a number comes to the host."""
    x = torch.arange(60.0, device="cuda").reshape(3, 4, 5)
    view = kernel("select.int")(x, 1, 2)
    assert (x.device, x.untyped_storage().data_ptr()) == (view.device, view.untyped_storage().data_ptr())
    assert torch.equal(x[:, 2], view)
    assert x.device == kernel("empty_like.default")(x).fill_(1).device
    assert CPU == kernel("new_empty.default")(x, [2], device=CPU).device
    assert 10.0 == kernel("_local_scalar_dense.default")(view[0, 0])
    grown = kernel("resize_.default")(x.clone(), [100])
    assert x.flatten().tolist() == grown[:60].tolist()
