"""Kernels stay in use, and right, under the modes and transforms of PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._decomp.decompositions_for_jvp  # It is scripted where it is first imported, of which torch warns.
from tests.dispatch_tables import KERNELS, kernel_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import opsmith

X = torch.linspace(-2, 2, 24).reshape(6, 4)


def model() -> nn.Module:
    """The same small module each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3), nn.ReLU(), nn.Softmax(-1))


def calls() -> dict[str, int]:
    """How many calls each op's kernel answered, those with none left out."""
    return {one.op: one.calls for one in opsmith.active().ops if one.calls}


def assert_served(call: Callable[[], Any], *ops: str) -> None:
    """The call gives eager's result, and kernels answered these ops in it."""
    expected = call()
    with opsmith.enabled(KERNELS):
        actual = call()
        assert {*ops} <= calls().keys()
    torch.testing.assert_close(actual, expected)


def test_no_grad_and_inference_mode() -> None:
    """Without autograd, the composite softmax itself is answered."""
    ops = ("addmm.default", "native_layer_norm.default", "gelu.default", "relu.default", "softmax.int")
    with torch.no_grad():
        assert_served(lambda: model()(X), *ops)
    with torch.inference_mode():
        assert_served(lambda: model()(X), *ops)


def test_autocast() -> None:
    """Casts come before the kernels, which see what eager's would: bfloat16, and decline it here."""

    def run() -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.relu(X), model()(X)

    with torch.no_grad():
        assert_served(run, "relu.default")
    with opsmith.enabled(KERNELS), torch.no_grad():
        run()
        assert {"declined": 2} == next(one.fallbacks for one in opsmith.active().ops if one.op == "addmm.default")


def test_vmap() -> None:
    """The batching rules call the ops again, on plain tensors."""
    weight = torch.linspace(-1, 1, 8).reshape(4, 2)
    batch = X.reshape(3, 2, 4)
    assert_served(lambda: torch.vmap(lambda x: torch.relu(x @ weight) + 1)(batch), "relu.default", "mm.default")
    assert_served(lambda: torch.vmap(lambda x: torch.softmax(x, 0))(X), "_softmax.default")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own formulas.
def test_function_transforms() -> None:
    """grad, vmap of grad, hessian and jvp: a composite op decomposes where a derivative is taken."""

    def loss(x: Tensor) -> Tensor:
        return (torch.softmax(x, 0) * torch.nn.functional.gelu(x)).sum(dim=[0])

    x = X[0].double()
    with pytest.warns(UserWarning, match="softmax.int"):
        assert_served(lambda: torch.func.grad(loss)(x), "_softmax.default", "_softmax_backward_data.default")
    with pytest.warns(UserWarning, match="softmax.int"):
        assert_served(lambda: torch.vmap(torch.func.grad(loss))(X.double()), "gelu_backward.default")
    with pytest.warns(UserWarning, match="softmax.int"):
        assert_served(lambda: torch.func.jvp(loss, (x,), (torch.ones_like(x),)), "_softmax.default")
    with pytest.warns(UserWarning, match="softmax.int"):
        assert_served(lambda: torch.func.hessian(loss)(x), "_softmax.default")


def test_forward_mode_gradients() -> None:
    """A dual tensor needs no gradient and yet has a tangent to keep."""
    from torch.autograd import forward_ad

    def run() -> Tensor:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(X, torch.ones_like(X) * X)
            tangent = forward_ad.unpack_dual(torch.softmax(dual, 1)).tangent
            assert isinstance(tangent, Tensor)
            return tangent

    with pytest.warns(UserWarning, match="softmax.int"):
        assert_served(run, "_softmax.default")


def test_an_exported_module() -> None:
    """Exported without kernels, run with them; and exported with them."""
    with torch.no_grad():
        program = torch.export.export(model(), (X,))
        run = program.module()
        assert_served(lambda: run(X), "relu.default", "native_layer_norm.default")
    with opsmith.enabled(KERNELS):
        again = torch.export.export(model(), (X,))
        assert {} == calls()
    assert str(program.graph) == str(again.graph)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_traced_module() -> None:
    """TorchScript's interpreter calls the dispatcher too."""
    with torch.no_grad():
        traced = torch.jit.trace(model(), (X,))
        assert_served(lambda: traced(X), "relu.default", "native_layer_norm.default")


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_convolution_is_traced_as_without_kernels(tmp_path: Path) -> None:
    """``torch.jit.trace`` looks into it: what a kernel does there would become the graph, unwritten memory included."""
    weight, image = torch.linspace(-1, 1, 18).reshape(1, 2, 3, 3), torch.linspace(-2, 2, 50).reshape(1, 2, 5, 5)
    kernel_file(tmp_path, "convolution.default", "def kernel(x, *_): return torch.zeros(1, 1, x.shape[2] - 2, 3)")
    expected = torch.jit.trace(lambda x: torch.conv2d(x, weight), (image,))
    with opsmith.enabled(tmp_path):
        actual = torch.jit.trace(lambda x: torch.conv2d(x, weight), (image,), check_trace=False)
        assert {"traced": 1} == next(one.fallbacks for one in opsmith.active().ops if one.op == "convolution.default")
        assert not torch.conv2d(image, weight).any()
    assert [n.kind() for n in expected.graph.nodes()] == [n.kind() for n in actual.graph.nodes()]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_under_torch_compile(backend: str) -> None:
    """Compiled without kernels and run with them, and the other way round; training included."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.relu(x + x).mul(2).sum([0]), backend=backend, fullgraph=True)

    def run() -> tuple[Tensor, Tensor]:
        x = X.clone().requires_grad_()
        out = compiled(x)
        out.sum([0]).backward()
        assert x.grad is not None
        return out.detach(), x.grad

    assert_served(run, "relu.default", "threshold_backward.default")
    torch._dynamo.reset()
    with opsmith.enabled(KERNELS):
        first = run()
        assert {"relu.default", "mul.Tensor"} <= calls().keys()
    torch.testing.assert_close(run(), first)


def test_a_graph_break_compiles_no_kernel() -> None:
    """Dynamo watches the frames between its graphs; those of overrides and kernels are not its business."""
    torch._dynamo.reset()
    frames: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        frames.extend(str(node.target) for node in graph.graph.nodes if node.op.startswith("call"))
        return graph.forward

    def broken(x: Tensor) -> Tensor:
        x = torch.relu(x)
        torch._dynamo.graph_break()
        return torch.add(x, 1)

    expected = broken(X)
    with opsmith.enabled(KERNELS):
        assert torch.equal(expected, torch.compile(broken, backend=backend)(X))
    assert 2 == len(frames)


@pytest.mark.slow
def test_under_inductor() -> None:
    """Inductor writes its own kernels; what it calls of ATen's (``mm.out``) is answered."""
    torch._dynamo.reset()
    weight = torch.linspace(-1, 1, 4 * 64).reshape(4, 64)
    compiled = torch.compile(lambda x: torch.relu(x @ weight) + 1, backend="inductor")
    expected = torch.relu(X @ weight) + 1
    with opsmith.enabled(KERNELS):
        torch.testing.assert_close(compiled(X), expected)
    with opsmith.enabled(KERNELS):
        actual = compiled(X)
        assert {"mm.out": 1} == calls()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(compiled(X), expected)


def test_a_mode_sees_the_ops_that_it_sees_without_kernels() -> None:
    """A composite op decomposes above a dispatch mode, so a trace made with kernels is the same trace."""

    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.ops: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.ops.append(str(func))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Seen() as expected:
        model()(X)
    with opsmith.enabled(KERNELS), torch.no_grad(), Seen() as actual:
        model()(X)
        assert {"_softmax.default", "addmm.default"} <= calls().keys()
    assert expected.ops == actual.ops


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, of lanes that are masked out.
def test_the_shipped_triton_kernels_under_the_interpreter() -> None:
    """A forward and backward of the small module, through ``opsmith.enable()`` as a user writes it."""

    def run() -> Tensor:
        x = X.clone().requires_grad_()
        model()(x).sum().backward()
        assert x.grad is not None
        return x.grad

    expected = run()
    with opsmith.enabled():
        torch.testing.assert_close(run(), expected, rtol=1e-4, atol=1e-5)
        assert {"mm.default", "gelu.default", "native_layer_norm.default", "_softmax.default"} <= calls().keys()


@pytest.mark.slow
def test_a_child_process_that_was_forked_keeps_the_kernels() -> None:
    """As the workers of a DataLoader are."""
    program = f"""
import os, torch, opsmith
opsmith.enable({str(KERNELS)!r}, ops="relu")
child = os.fork()
if not child:
    torch.relu(torch.ones(3))
    os._exit(opsmith.active().calls)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "1\n" == done.stdout
