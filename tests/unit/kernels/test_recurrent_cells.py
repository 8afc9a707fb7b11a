"""ATen has these cells for GPUs alone: here they are held against their formulas in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, kernel, values


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of branches that are not taken."""
    with np.errstate(all="ignore"):
        yield


def inputs(gates: int, dtype: torch.dtype, *, bias: bool) -> list[torch.Tensor | None]:
    """Input and hidden gates, a state that is not dense, and biases."""
    width = gates * 37
    state = values(5, 2 * 37, dtype=dtype, scale=1.0)[:, :37]
    biases = [values(width, dtype=dtype), values(width, dtype=dtype, scale=0.5)] if bias else [None, None]
    return [values(5, width, dtype=dtype), values(width, 5, dtype=dtype, scale=1.0).T, state, *biases]


def wide(tensors: list[torch.Tensor | None]) -> list[Any]:
    """In float64, ready for gradients."""
    return [None if tensor is None else tensor.double().requires_grad_() for tensor in tensors]


def assert_near(actual: object, expected: object, dtype: torch.dtype) -> None:
    """At torch's own tolerances for the type."""
    assert isinstance(actual, torch.Tensor)
    assert isinstance(expected, torch.Tensor)
    assert dtype == actual.dtype
    torch.testing.assert_close(actual, expected.to(dtype))


def lstm(
    x: torch.Tensor, h: torch.Tensor, cx: torch.Tensor, b1: torch.Tensor | None, b2: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden state, cell and gates, as the documentation of ``torch.nn.LSTMCell`` defines them."""
    total = x + h if b1 is None or b2 is None else x + h + b1 + b2
    i, f, g, o = total.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def gru(
    x: torch.Tensor, h: torch.Tensor, hx: torch.Tensor, b1: torch.Tensor | None, b2: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden state and workspace, as the documentation of ``torch.nn.GRUCell`` defines them."""
    xr, xz, xn = (x if b1 is None else x + b1).chunk(3, 1)
    hr, hz, hn = (h if b2 is None else h + b2).chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], 1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_cell(dtype: torch.dtype, *, bias: bool) -> None:
    """Both states, and the gates in the order in which the backward pass of either side reads them."""
    given = inputs(4, dtype, bias=bias)
    expected = lstm(*wide(given))
    actual = kernel("_thnn_fused_lstm_cell.default")(*given)
    for own, other in zip(actual, expected, strict=True):
        assert_near(own, other.detach(), dtype)


def test_gates_of_any_size() -> None:
    """Infinite, NaN, and next to where the forms of tanh and of the exponential change."""
    gate = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-30, 200.0, -200.0, 80.0, -80.0])
    gate = torch.cat([gate, torch.linspace(-0.6, 0.6, 101), torch.linspace(-12, 12, 101)]).view(2, -1)
    gates, nothing = gate.repeat(1, 4), torch.zeros(2, 4 * gate.shape[1])
    workspace = kernel("_thnn_fused_lstm_cell.default")(gates, nothing, torch.zeros_like(gate))[2]
    i, _, g, _ = workspace.chunk(4, 1)
    for own, other in ((i, gate.double().sigmoid()), (g, gate.double().tanh())):
        torch.testing.assert_close(own, other.float(), rtol=1e-6, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_grads", [(True, True), (True, False), (False, True)])
def test_the_gradients_of_an_lstm_cell(dtype: torch.dtype, with_grads: tuple[bool, bool]) -> None:
    """Against autograd through the formulas; a gradient that is absent counts as zero."""
    given = inputs(4, dtype, bias=True)
    leaves = wide(given)
    hy, cy, _ = lstm(*leaves)
    grads = [values(*hy.shape, dtype=dtype) if has else None for has in with_grads]
    used = [(out, grad) for out, grad in zip((hy, cy), grads, strict=True) if grad is not None]
    expected = torch.autograd.grad(
        [out for out, _ in used], [leaves[0], leaves[2], leaves[3]], [grad.double() for _, grad in used]
    )
    _, own_cy, workspace = kernel("_thnn_fused_lstm_cell.default")(*given)
    actual = kernel("_thnn_fused_lstm_cell_backward_impl.default")(*grads, given[2], own_cy, workspace, True)
    for own, other in zip(actual, expected, strict=True):
        assert_near(own, other, dtype)


def test_without_gradients_an_lstm_cell_has_none() -> None:
    """As ATen answers, and without a bias its gradient is absent."""
    backward = kernel("_thnn_fused_lstm_cell_backward_impl.default")
    state, workspace = values(3, 4), values(3, 16)
    assert (None, None, None) == backward(None, None, state, state, workspace, True)
    assert backward(state, None, state, state, workspace, False)[2] is None


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_gru_cell(dtype: torch.dtype, *, bias: bool) -> None:
    """The hidden state, and the workspace in the order in which the backward pass of either side reads it."""
    given = inputs(3, dtype, bias=bias)
    expected = gru(*wide(given))
    actual = kernel("_thnn_fused_gru_cell.default")(*given)
    for own, other in zip(actual, expected, strict=True):
        assert_near(own, other.detach(), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_the_gradients_of_a_gru_cell(dtype: torch.dtype, *, bias: bool) -> None:
    """Against autograd through the formulas."""
    given = inputs(3, dtype, bias=bias)
    leaves = wide(given)
    hy, _ = gru(*leaves)
    grad = values(2 * hy.shape[0], hy.shape[1], dtype=dtype)[::2]
    wanted = [leaf for leaf in leaves if leaf is not None]
    expected = torch.autograd.grad(hy, wanted, grad.double())
    workspace = kernel("_thnn_fused_gru_cell.default")(*given)[1]
    actual = kernel("_thnn_fused_gru_cell_backward.default")(grad, workspace, bias)
    assert bias == (actual[3] is not None) == (actual[4] is not None)
    for own, other in zip(filter(lambda own: own is not None, actual), expected, strict=True):
        assert_near(own, other, dtype)


def test_gates_that_do_not_fit_are_refused() -> None:
    """An LSTM has four gates, not three."""
    with pytest.raises(ValueError, match="4 times"):
        kernel("_thnn_fused_lstm_cell.default")(values(2, 9), values(2, 9), values(2, 3))
