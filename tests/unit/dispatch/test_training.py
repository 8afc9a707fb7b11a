"""Training on kernels: gradients are eager's, and none is lost."""

from __future__ import annotations

import warnings

import pytest
import torch
from tests.dispatch_tables import KERNELS
from torch import Tensor, nn

import opsmith
from opsmith.dispatch.guards import Fallback
from opsmith.dispatch.override import FallbackWarning

BACKWARD_OPS = {
    "threshold_backward.default",
    "gelu_backward.default",
    "native_layer_norm_backward.default",
    "_softmax_backward_data.default",
}


class Block(nn.Module):
    """An MLP with layer norm, GELU, an in-place ReLU, softmax and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)
        self.second, self.last = nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.gelu(self.norm(self.first(x)))
        joined = torch.cat([x, torch.relu_(self.second(hidden))], 1)
        return torch.softmax(self.last(joined[:, :8] + joined[:, 8:]), -1)


def gradients(dtype: torch.dtype) -> list[Tensor]:
    """Those of the input and of all parameters after one step."""
    block = Block().to(dtype)
    x = torch.linspace(-2, 2, 48, dtype=dtype).reshape(6, 8).requires_grad_()
    (block(x) * torch.arange(5)).sum([0, 1]).backward()
    found = [x.grad, *(parameter.grad for parameter in block.parameters())]
    return [gradient for gradient in found if gradient is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradients_of_a_block_are_eagers(dtype: torch.dtype) -> None:
    """Forward and backward ops are answered, and each parameter gets its gradient."""
    expected = gradients(dtype)
    with opsmith.enabled(KERNELS, exclude="softmax.int"):
        actual = gradients(dtype)
        called = {one.op for one in opsmith.active().ops if one.calls}
    assert called >= BACKWARD_OPS
    assert 9 == len(actual)
    for mine, eagers in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, eagers)


def test_training_steps_stay_together() -> None:
    """Twenty steps of an optimiser, the in-place ops that it calls included."""

    def train() -> list[float]:
        block, losses = Block().double(), []
        optimizer = torch.optim.AdamW(block.parameters(), lr=1e-2, foreach=False)
        x = torch.linspace(-2, 2, 48, dtype=torch.float64).reshape(6, 8)
        for _ in range(20):
            optimizer.zero_grad()
            loss = (block(x) - 0.2).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train()
    with opsmith.enabled(KERNELS, exclude="softmax.int"):
        assert expected == pytest.approx(train(), rel=1e-9)
        assert {"mul_.Tensor"} <= {one.op for one in opsmith.active().ops if one.calls}


def test_a_composite_op_loses_no_gradient_and_says_so() -> None:
    """Its kernel would cut the graph: PyTorch decomposes it, and a warning names the op, once."""
    x = torch.linspace(-2, 2, 6).requires_grad_()
    with opsmith.enabled(KERNELS, ops="softmax"):
        with pytest.warns(FallbackWarning, match="softmax.int on cpu: a gradient is needed"):
            (expected,) = torch.autograd.grad(torch.softmax(x, 0)[0], x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.softmax(x, 0)
        active = next(one for one in opsmith.active().ops if one.op == "softmax.int")
        assert (0, {Fallback.NEEDS_GRADIENT: 2}) == (active.calls, active.fallbacks)
        assert torch.is_nonzero(expected.abs().sum())


def test_a_composite_op_is_answered_where_no_gradient_is_needed() -> None:
    """With gradients enabled, but for arguments that need none."""
    with opsmith.enabled(KERNELS, ops="softmax.int"):
        torch.softmax(torch.ones(3), 0)
        assert 1 == opsmith.active().calls


def test_second_derivatives_are_eagers() -> None:
    """Backward ops have gradients of their own."""

    def second() -> Tensor:
        x = torch.linspace(-2, 2, 6, dtype=torch.float64).requires_grad_()
        (first,) = torch.autograd.grad(nn.functional.gelu(x).mul(x).sum([0]), x, create_graph=True)
        (found,) = torch.autograd.grad(first.sum([0]), x)
        return found

    expected = second()
    with opsmith.enabled(KERNELS):
        torch.testing.assert_close(second(), expected)


def test_checkpointed_modules_are_recomputed_with_kernels() -> None:
    """The second forward runs inside backward."""
    from torch.utils.checkpoint import checkpoint

    def run() -> Tensor:
        x = torch.linspace(-2, 2, 48).reshape(6, 8).requires_grad_()
        checkpoint(Block(), x, use_reentrant=False)[0, 0].backward()
        assert x.grad is not None
        return x.grad

    expected = run()
    with opsmith.enabled(KERNELS, exclude="softmax.int"):
        torch.testing.assert_close(run(), expected)
