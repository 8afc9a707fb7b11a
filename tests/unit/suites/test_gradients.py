"""Gradients of functions, computed without the parts of the forward pass that they do not need."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from opsmith.tasks.gradients import Gradients
from opsmith.tasks.module_call import CallSequence


def test_they_are_those_of_autograd() -> None:
    """Also where the caller has turned gradients off, as the judge does, and again at other shapes and numbers."""

    def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.layer_norm(x, weight.shape, weight, bias, eps).mean(0)

    gradients = Gradients(normalised, (0, 1))
    for rows, width, eps in ((3, 8, 1e-5), (5, 8, 1e-5), (5, 8, 10.0), (3, 8, 1e-5)):
        x, weight, bias, grad_output = (torch.randn(shape) for shape in ((rows, width), (width,), (width,), (width,)))
        with torch.no_grad():
            found = gradients(grad_output, x, weight, bias, eps)
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        expected = torch.autograd.grad(normalised(*leaves, bias, eps), leaves, grad_output)
        torch.testing.assert_close(expected, found)
        assert not any(each.requires_grad for each in (x, weight, *found))


def test_no_forward_pass_is_computed_that_they_do_not_need() -> None:
    """A backward kernel does not compute it, so its time is compared with that of the gradients alone."""
    gradients = Gradients(functional.linear, (0, 1, 2))
    call = torch.randn(4, 3), torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)
    gradients(*call)
    with CallSequence() as sequence:
        gradients(*call)
    assert {"mm.default": 2, "sum.dim_IntList": 1} == {
        name: sequence.names.count(name) for name in sequence.names if name not in ("t.default", "view.default")
    }


def test_one_gradient_is_no_tuple() -> None:
    """As a backward function returns it."""
    x = torch.randn(3)
    torch.testing.assert_close(2 * x, Gradients(torch.square, (0,))(torch.ones(3), x))


def test_a_function_that_branches_on_values_is_refused() -> None:
    """Its calls at one signature are not always the same."""

    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2 if bool(x.sum() > 0) else x

    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        Gradients(halved, (0,))(torch.ones(3), torch.ones(3))
