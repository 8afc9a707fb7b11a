"""A module problem through torch's compiler: Triton for its ``Model``, by fake tensors on a GPU that need not be there.

The Model is traced with its parameters and buffers as arguments, at the sizes of the problem, and what the compiler
writes becomes the ``forward`` of a ``ModelNew``: see :mod:`.module_file`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from opsmith.core.case import digest
from opsmith.generate.inductor.emission import Declined, compiling, module_text, one_line, triton_kernels
from opsmith.generate.inductor.host_code import read_module
from opsmith.generate.inductor.messages import AskModule, WroteModule
from opsmith.generate.inductor.module_file import Expected, module_file
from opsmith.generate.inductor.numerics import decompositions
from opsmith.tasks.problem import ProblemFile

DEVICE = "cuda"


def write_module(asked: AskModule) -> WroteModule:
    """Write a ``ModelNew`` for a problem.

    Raises:
        Declined: the Model cannot be traced, or the compiler has no kernel of its own for it.
        Unsupported: what it writes does more than launch kernels and call libraries.
        NotPortable: a kernel cannot leave the compiler.
    """
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with compiling(mode, DEVICE):
            traced = _trace(asked, mode)
            code = module_text(traced.graph, traced.inputs)
    except Declined:
        raise
    except Exception as exc:
        raise Declined(one_line(exc)) from exc
    kernels = triton_kernels(code, any_size=False)
    names = [*traced.state.values(), *(expected.name for expected in traced.expected)]
    host = read_module(code, inputs=names, symbols={}, triton=kernels, library=True)
    if not host.kernels:
        raise Declined("the compiler leaves all of it to libraries")
    source = module_file(
        Path(asked.file).read_text(encoding="utf-8"),
        state=traced.state,
        expected=traced.expected,
        host=host,
        result=traced.result,
    )
    return WroteModule(
        source=source,
        kernels=len(host.kernels),
        graph_hash=digest(_graph_text(traced.graph).encode()),
        kernel_hash=digest("\n".join(_anonymous(host.kernels)).encode()),
    )


class _Trace(NamedTuple):
    """A Model as a graph.

    Attributes:
        graph: of the state and the tensors among the arguments.
        inputs: these, fake.
        state: names of parameters and buffers -> of the variables that hold them.
        expected: the tensors among the arguments.
        result: text of what is returned, with ``{0}``, ``{1}`` for the graph's results.
    """

    graph: torch.fx.GraphModule
    inputs: list[torch.Tensor]
    state: dict[str, str]
    expected: list[Expected]
    result: str


def _trace(asked: AskModule, mode: FakeTensorMode) -> _Trace:
    parts = ProblemFile(Path(asked.file), small=asked.small)
    with mode:
        model = parts.model(parts.init_inputs(0), 0)
        state = dict(model.named_parameters()) | dict(model.named_buffers())
        arguments = parts.inputs(0)
    parameters = list(inspect.signature(model.forward).parameters)
    expected: list[Expected] = []
    tensors: list[torch.Tensor] = []
    for name, argument in zip(parameters, arguments, strict=False):
        _take(name, name, argument, expected, tensors)
    results: list[str] = []

    def flat(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(state, values, strict=False))
        rest = iter(values[len(state) :])
        filled = [_filled(argument, rest) for argument in arguments]
        outputs: list[torch.Tensor] = []
        results[:] = [_rendered(torch.func.functional_call(model, given, tuple(filled)), outputs)]
        return tuple(outputs)

    functional = torch.func.functionalize(flat, remove="mutations_and_views")
    inputs = [*state.values(), *tensors]
    # On the CPU: only a torch that is built for a GPU lets Python index and copy fake tensors on one.
    with mode, sdpa_kernel(SDPBackend.MATH):
        graph = make_fx(functional, decomposition_table=decompositions())(*inputs)
    if any(node.op == "get_attr" for node in graph.graph.nodes):
        raise Declined("Model keeps tensors that are neither parameters nor buffers")
    for node in graph.graph.nodes:
        node.args, node.kwargs = tree_map(_placed, node.args), tree_map(_placed, node.kwargs)
    graph.recompile()
    with mode:
        inputs = [_moved(value) for value in inputs]
        FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*inputs)
    taken = {*parameters, *(one.name for one in expected)}
    return _Trace(graph, inputs, {name: _variable(name, taken) for name in state}, expected, results[0])


def _placed(value: Any) -> Any:
    return torch.device(DEVICE) if value == torch.device("cpu") else value


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor like another, on the GPU."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE)


def _take(name: str, path: str, value: Any, expected: list[Expected], tensors: list[torch.Tensor]) -> None:
    """Collect the tensors in an argument, with the text that finds each."""
    if isinstance(value, torch.Tensor):
        expected.append(Expected(name, path, tuple(value.shape), value.stride(), str(value.dtype)))
        tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            _take(f"{name}_{place}", f"{path}[{place}]", item, expected, tensors)
    elif isinstance(value, dict):
        for key, item in value.items():
            _take(f"{name}_{key}", f"{path}[{key!r}]", item, expected, tensors)


def _filled(value: Any, tensors: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)([_filled(item, tensors) for item in value])
    return {key: _filled(item, tensors) for key, item in value.items()} if isinstance(value, dict) else value


def _rendered(value: Any, outputs: list[torch.Tensor]) -> str:
    """The text of a result; its tensors go to ``outputs``."""
    if isinstance(value, torch.Tensor):
        outputs.append(value)
        return f"{{{len(outputs) - 1}}}"
    if isinstance(value, (list, tuple)):
        items = ", ".join(_rendered(item, outputs) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items},)"
    raise Declined(f"the result holds a {type(value).__name__}")


def _variable(name: str, taken: set[str]) -> str:
    variable = name.replace(".", "_")
    return f"{variable}_" if variable in taken else variable


def _graph_text(graph: torch.fx.GraphModule) -> str:
    """The graph with shapes and dtypes, and without the names that the model's author chose."""
    lines = []
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        kind = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
        lines.append(f"{node.op} {node.target} {node.args} {node.kwargs} {kind}")
    return "\n".join(lines)


def _anonymous(kernels: Sequence[Any]) -> list[str]:
    return [kernel.source.replace(kernel.name, "kernel") for kernel in kernels]
