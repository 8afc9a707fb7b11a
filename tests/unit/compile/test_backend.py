"""The backend: found by name, its options, its hashes and its kernels."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch._aot_autograd.utils import make_boxed_func

from opsmith.compile import shipped
from opsmith.compile.backend import LoweredPasses, opsmith
from opsmith.compile.options import read_options
from opsmith.compile.report import collected
from opsmith.errors import BadInput, UnknownName


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_torch_finds_the_backend_by_its_name() -> None:
    """Through the entry point, without an import."""
    found = [one for one in entry_points(group="torch_dynamo_backends") if one.name == "opsmith"]
    assert [opsmith] == [one.load() for one in found]


def _passes_hash(options: dict[str, Any]) -> Any:
    return LoweredPasses(read_options(None, options)).uuid()


def test_graphs_of_other_passes_and_kernels_have_other_places_in_caches() -> None:
    """What Inductor kept for one choice is never taken for another's."""
    choices = [{}, {"passes": "none"}, {"passes": "-dead_code"}, {"kernels": "none"}]
    hashes = [_passes_hash(choice) for choice in choices]
    assert len(choices) == len(set(hashes))
    assert hashes[0] == _passes_hash({})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"passes": "atention"}, UnknownName, "did you mean attention"),
        ({"mode": "fastest"}, UnknownName, "no mode named"),
        ({"max_autotunes": True}, UnknownName, "max_autotune"),
        ({"kernels": "no_such_op"}, UnknownName, "no op named"),
        ({"fallback": "quietly"}, BadInput, "it can be inductor, eager, raise"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """In one line that says what there is."""
    with pytest.raises(error, match=message):
        read_options(None, options)


def test_modes_and_settings_of_inductor_reach_it() -> None:
    """As torch.compile has them, with dots or dashes."""
    chosen = read_options("max-autotune-no-cudagraphs", {"triton.cudagraphs": True, "shape-padding": False})
    assert {"max_autotune": True, "triton.cudagraphs": True, "shape_padding": False}.items() <= chosen.inductor.items()


@pytest.mark.slow
def test_what_our_part_cannot_compile_inductor_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning; and with fallback="raise" the error is raised."""

    def fail(*args: object) -> None:
        raise RuntimeError("no kernels today")

    monkeypatch.setattr("opsmith.compile.backend.kernel_decompositions", fail)
    x = torch.randn(3, 4)
    with caplog.at_level(logging.WARNING, logger="opsmith"), collected() as reports:
        result = torch.compile(lambda x: x @ x.T, backend="opsmith")(x)
    torch.testing.assert_close(result, x @ x.T)
    assert ["RuntimeError: no kernels today"] == reports.fallbacks
    assert any("compiled by Inductor alone" in message for message in caplog.messages)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no kernels today"):
        torch.compile(lambda x: x @ x.T, backend="opsmith", options={"fallback": "raise"})(x)


# ---------------------------------------------------------------- kernels


def test_without_a_measurement_no_kernel_is_called() -> None:
    """On a CPU there never is one."""
    assert shipped.kernel_decompositions("none") is None
    assert (shipped.kernel_decompositions("measured") is None) == (not shipped.measured())


def test_graphs_call_no_kernel_for_memory() -> None:
    """An overload of ours that returned an argument's memory, or unwritten memory, would be a wrong or a lost step."""
    wanted = "relu,_unsafe_view,empty_like,new_empty,unsafe_split,view,_local_scalar_dense"
    table = shipped.kernel_decompositions(wanted)
    plain = {str(op) for op in shipped.kernel_decompositions("relu") or {}}
    assert plain == {str(op) for op in table or {}}


def test_a_row_counts_on_its_gpu_in_its_dtype_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that beat Inductor's in float32 says nothing of TF32's."""
    row = shipped.Row(op="mm.default", dtype="f32", hardware="GPU 0", speedup=1.4, inputs=9, record="run")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")

    def counts(dtype: torch.dtype, place: int) -> bool:
        given: Any = SimpleNamespace(dtype=dtype, device=torch.device("cuda", place))
        return shipped._measured_for([row], given)

    assert [True, False, False] == [counts(torch.float32, 0), counts(torch.float32, 1), counts(torch.bfloat16, 0)]
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert not counts(torch.float32, 0)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_what_fuses_has_no_row() -> None:
    """Faster by itself, an elementwise kernel costs a graph the kernel that it would be part of."""
    assert [False, False, True, True] == [
        shipped.may_have_row(op) for op in ("relu.default", "add.Tensor", "mm.default", "sort.stable")
    ]


def _opaque_calls(graph: Any) -> Mapping[str, int]:
    """How often a lowered graph calls which shipped kernel."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "opsmith":
            packet, _, overload_name = node.target._schema.name.partition("::")[2].rpartition("__")
            name = f"{packet}.{overload_name}"
            found[name] = found.get(name, 0) + 1
    return found


def _calls(kernels: str, function: Any, inputs: Sequence[Tensor]) -> tuple[dict[str, int], list[Tensor]]:
    """Which kernels a function's graphs call under a choice of kernels, and what it returns in ATen and them."""
    found: dict[str, int] = {}

    def keep(module: Any, _: Any) -> Any:
        found.update(_opaque_calls(module.graph))
        return make_boxed_func(module.forward)

    aot_autograd: Any = torch._dynamo.backends.common.aot_autograd
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, decompositions=shipped.kernel_decompositions(kernels))
    given = [one.detach().clone().requires_grad_() for one in inputs]
    compiled: Any = torch.compile(function, backend=backend)
    result = compiled(*given)
    result.square().sum().backward()
    return found, [result.detach(), *(one.grad for one in given if one.grad is not None)]


def test_a_shipped_kernel_is_called_by_a_graph_and_its_gradient() -> None:
    """Here in Triton's interpreter, which stands for the GPU that it runs on elsewhere."""
    x = torch.randn(4, 8)
    found, results = _calls("_softmax,_softmax_backward_data", lambda x: torch.softmax(x, -1), [x])
    given = x.clone().requires_grad_()
    expected = torch.softmax(given, -1)
    expected.square().sum().backward()
    assert {"_softmax.default": 1, "_softmax_backward_data.default": 1} == found
    torch.testing.assert_close(results, [expected.detach(), given.grad])


def test_a_kernel_that_declines_leaves_the_call_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere, by raising NotImplementedError."""

    def decline(*args: object, **kwargs: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("opsmith.dispatch.serving.function_of", lambda record: decline)
    x = torch.randn(3, 5)
    found, results = _calls("sort.stable", lambda x: torch.sort(x, stable=True).values, [x])
    assert {"sort.stable": 1} == found
    torch.testing.assert_close(results[0], x.sort().values)
