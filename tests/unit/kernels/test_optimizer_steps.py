from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import eager, kernel, values


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Of several sizes."""
    return [values(*shape, dtype=dtype) * (seed + 1) for shape in ((3, 5), (70,), (0,), (1, 2))]


def stepped(op: str, lists: list[list[torch.Tensor]], **options: object) -> tuple[object, object]:
    """What three steps of the kernel and of eager leave behind."""
    results = []
    for function in (kernel(op), eager(op)):
        own = [[t.clone() for t in each] for each in lists]
        for _ in range(3):
            with np.errstate(all="ignore"):
                function(*own, **options)
        results.append(own)
    return results[0], results[1]


@pytest.mark.parametrize("op", ["_fused_adam_.default", "_fused_adamw_.default"])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("count", [1.0, 1000.0])
def test_adam(op: str, count: float, *, amsgrad: bool) -> None:
    """In an early and in a late step, with weight decay, down and up."""
    squares = [[t.abs() for t in tensors(seed)] for seed in (2, 3)]
    steps = [torch.tensor(count) for _ in range(4)]
    lists = [tensors(0), tensors(4), tensors(1), squares[0], squares[1] if amsgrad else [], steps]
    for maximize in (False, True):
        options = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.1, "eps": 1e-8}
        ours, eagers = stepped(op, lists, **options, amsgrad=amsgrad, maximize=maximize)
        torch.testing.assert_close(ours, eagers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_sgd(momentum: float, *, nesterov: bool, first: bool) -> None:
    """With and without momentum, whose buffers may hold nothing yet."""
    lists = [tensors(0), tensors(1), tensors(2) if momentum else []]
    options = {"weight_decay": 0.1, "momentum": momentum, "lr": 0.01, "dampening": 0.0 if nesterov else 0.3}
    flags = {"nesterov": nesterov and momentum > 0, "maximize": False, "is_first_step": first}
    ours, eagers = stepped("_fused_sgd_.default", lists, **options, **flags)
    torch.testing.assert_close(ours, eagers)


def test_a_gradient_scaler_is_declined() -> None:
    """It counts as not served."""
    options = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    with pytest.raises(NotImplementedError, match="scaler"):
        kernel("_fused_sgd_.default")(
            tensors(0), tensors(1), [], **options, maximize=False, is_first_step=True, found_inf=torch.zeros(1)
        )
