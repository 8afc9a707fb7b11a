"""Gradients of a function, as a function of what a backward pass is given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx


class Gradients:
    """Autograd's gradients of a function that returns one tensor.

    They are computed by the ATen calls that autograd makes, less those of the forward pass that no gradient needs: of
    ``linear`` only the products of its backward pass. These calls are found once for each signature of a call.

    Args:
        function: takes tensors, numbers and tuples of numbers; it must not branch on values of tensors.
        positions: of the arguments whose gradients are wanted, floating-point tensors.
    """

    def __init__(self, function: Callable[..., torch.Tensor], positions: Sequence[int]) -> None:
        self._function, self._positions = function, tuple(positions)
        self._graphs: dict[Hashable, GraphModule] = {}

    def __call__(self, grad_output: torch.Tensor, *arguments: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The gradients in the order of ``positions``, alone if there is one.

        Args:
            grad_output: the gradient of the function's result, in that one's shape.
            arguments: of the function.

        Raises:
            RuntimeError: the function does not depend on one of those arguments, or branches on values of tensors.
        """
        given = (grad_output, *arguments)
        signature = tuple([_signature(value) for value in given])
        if signature not in self._graphs:
            self._graphs[signature] = self._traced(given)
        found = self._graphs[signature](*[value for value in given if isinstance(value, torch.Tensor)])
        return found[0] if len(self._positions) == 1 else tuple(found)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _traced(self, given: Sequence[Any]) -> GraphModule:
        def gradients(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            left = iter(tensors)
            grad_output, *arguments = [next(left) if isinstance(value, torch.Tensor) else value for value in given]
            with torch.enable_grad():
                for position in self._positions:
                    arguments[position] = arguments[position].detach().requires_grad_()
                result = self._function(*arguments)
                return torch.autograd.grad(result, [arguments[position] for position in self._positions], grad_output)

        traced = make_fx(gradients)(*[value for value in given if isinstance(value, torch.Tensor)])
        for node in traced.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
            node.replace_all_uses_with(node.args[0])
        traced.graph.eliminate_dead_code()
        traced.recompile()
        return traced


def _signature(value: Any) -> Hashable:
    if not isinstance(value, torch.Tensor):
        return type(value), value
    return type(value), value.shape, value.stride(), value.dtype, value.device
