"""Graphs with passes and without Inductor: what a pass does is seen in a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.compile.manager import run_passes
from opsmith.compile.report import PassReport


class Outcome(NamedTuple):
    """What came of a function that was compiled with some passes.

    Attributes:
        results: its outputs, and the gradients of its floating-point inputs where they were asked for.
        expected: the same, in eager mode.
        fired: how often passes rewrote something, together.
        reports: of every pass and graph.
        targets: what the rewritten graphs call.
    """

    results: list[Tensor]
    expected: list[Tensor]
    fired: int
    reports: list[PassReport]
    targets: list[str]

    def assert_equal(self, *, rtol: float | None = None, atol: float | None = None) -> None:
        torch.testing.assert_close(self.results, self.expected, equal_nan=True, rtol=rtol, atol=atol)


def outcome(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    passes: Sequence[GraphPass],
    *,
    gradients: bool = True,
    dynamic: bool | None = None,
) -> Outcome:
    """Compile a function with passes, run it in ATen, and run it in eager mode."""
    reports: list[PassReport] = []
    targets: list[str] = []
    backend = in_aten(passes, reports, targets)
    torch._dynamo.reset()
    results = _run(torch.compile(function, backend=backend, dynamic=dynamic), inputs, gradients=gradients)
    expected = _run(function, inputs, gradients=gradients)
    return Outcome(results, expected, sum(one.fired for one in reports), reports, targets)


def in_aten(
    passes: Sequence[GraphPass], reports: list[PassReport] | None = None, targets: list[str] | None = None
) -> Callable[..., Any]:
    """A backend for ``torch.compile`` that rewrites graphs as opsmith does, and has ATen run them.

    The graphs are those that Inductor would get: its decompositions, its partitioning into forward and backward,
    inputs written at the end of a graph. As in Inductor's code, a graph refuses inputs of other sizes than those that
    it was made for.

    Args:
        passes: those of both stages, in the order in which they run.
        reports: to which those of every pass and graph are added.
        targets: to which the names of what the rewritten graphs call are added.
    """
    reports = [] if reports is None else reports
    targets = [] if targets is None else targets

    def traced(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        reports.extend(run_passes(module.graph, passes, Stage.TRACED))
        module.recompile()
        targets.extend(_called(module.graph))
        return inner(module, examples)  # type: ignore[no-any-return]

    def lowered(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        reports.extend(run_passes(module.graph, passes, Stage.LOWERED))
        module.recompile()
        targets.extend(_called(module.graph))
        boxed: Callable[..., Any] = make_boxed_func(_of_its_sizes(module))
        return boxed

    inner: Any = aot_autograd(
        fw_compiler=lowered,
        decompositions=select_decomp_table,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return traced


def _of_its_sizes(module: fx.GraphModule) -> Callable[..., Any]:
    """Run a graph on what it was made for.

    Where Dynamo misses a guard, it hands over a tensor of another rank, and passes have relied on the old one.
    """
    fakes = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]

    def run(*inputs: Any) -> Any:
        for one, fake in zip(inputs, fakes, strict=True):
            if isinstance(one, Tensor) and isinstance(fake, Tensor) and not _fits(one, fake):
                raise AssertionError(f"a graph that was made for sizes {list(fake.shape)} is given {list(one.shape)}")
        return module.forward(*inputs)

    return run


def _fits(given: Tensor, fake: Tensor) -> bool:
    pairs = zip(given.shape, fake.shape, strict=False)
    return given.dim() == fake.dim() and all(one == size for one, size in pairs if isinstance(size, int))


def _run(function: Callable[..., Tensor], inputs: Sequence[Tensor], *, gradients: bool) -> list[Tensor]:
    given = [one.detach().clone() for one in inputs]
    for one, original in zip(given, inputs, strict=True):
        for dim in getattr(original, "_dynamo_dynamic_indices", ()):
            torch._dynamo.mark_dynamic(one, dim)
    if not gradients:
        with torch.no_grad():
            return [function(*given), *given]
    leaves = [one.requires_grad_() for one in given if one.is_floating_point()]
    result = function(*given)
    result.double().sin().sum().backward()
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def _called(graph: fx.Graph) -> list[str]:
    nodes = (node for node in graph.nodes if node.op in {"call_function", "call_method"})
    return [node.target if isinstance(node.target, str) else _name(node.target) for node in nodes]


def _name(target: Any) -> str:
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", target))
