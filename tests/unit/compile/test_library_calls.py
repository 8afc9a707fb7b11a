"""Which calls of a compiled graph are tried out, and what becomes of those whose kernel is faster.

The CPU stands for the GPU that trials are held on, and Triton's interpreter runs the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.compile.on_a_cpu import finding, preferring, trials_on_a_cpu
from torch import Tensor, nn
from torch._inductor.utils import run_and_get_code

from opsmith.compile import forget_pass, graph_pass
from opsmith.compile.backend import LoweredPasses
from opsmith.compile.built_in import LIBRARY_CALLS
from opsmith.compile.lowered import library_calls
from opsmith.compile.options import read_options
from opsmith.compile.report import Reports, collected
from opsmith.compile.trials import calls, trying
from opsmith.dispatch.serving import Serving
from opsmith.trials.book import Trial

pytestmark = pytest.mark.slow

KERNEL_WINS = {library_calls.LIBRARY: 100.0, library_calls.KERNEL: 50.0}
LIBRARY_WINS = {library_calls.LIBRARY: 100.0, library_calls.KERNEL: 99.0}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with trials_on_a_cpu(monkeypatch, tmp_path):
        yield


def _run(function: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[Reports, int, Any]:
    """What a compilation reports, how many calls it replaced, and what the compiled function returns."""
    with collected() as reports:
        result = torch.compile(function, backend="opsmith", options=options)(*inputs)
    assert [] == reports.fallbacks
    assert not any(one.undone for one in reports.passes)
    return reports, sum(one.fired for one in reports.passes if one.name == LIBRARY_CALLS), result


def _products(x: Tensor, w: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return x @ w, torch.addmm(bias, x, w), torch.cdist(x, x, p=1.0), torch.topk(x, 3).values


def _operands(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(16, 48, dtype=dtype), torch.randn(48, 8, dtype=dtype), torch.randn(8, dtype=dtype)


def test_the_faster_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels run in the compiled graph, and give what eager gives."""
    finding(monkeypatch, KERNEL_WINS)
    reports, fired, results = _run(_products, *_operands())
    assert 4 == fired
    asked = {one.call for one in reports.trials}
    assert {
        "mm(f32[16, 48], f32[48, 8])",
        "addmm(f32[8], f32[16, 48], f32[48, 8])",
        "topk(f32[16, 48], 3)",
        "_cdist_forward(f32[16, 48], f32[16, 48], 1.0, None)",
    } == asked
    torch.testing.assert_close(results, _products(*_operands()))


def test_gradients_are_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of the backward pass has products of its own."""
    finding(monkeypatch, KERNEL_WINS)
    x, w, _ = (one.requires_grad_() for one in _operands())
    compiled = torch.compile(lambda x, w: (x @ w).square().sum(), backend="opsmith")
    with collected() as reports:
        compiled(x, w).backward()
    assert [1, 2] == [one.fired for one in reports.passes if one.name == LIBRARY_CALLS]
    given = [one.detach().clone().requires_grad_() for one in (x, w)]
    (given[0] @ given[1]).square().sum().backward()
    torch.testing.assert_close([x.grad, w.grad], [one.grad for one in given], rtol=1e-5, atol=1e-4)


def test_a_trial_times_the_library_and_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Really, here; the next compilation asks the book."""
    monkeypatch.setattr(library_calls, "LEAST_US", 0.0)
    reports, fired, _ = _run(lambda x, w: x @ w, *_operands()[:2])
    (trial,) = reports.trials
    assert (["library", "kernel", "three terms"], {}) == ([*trial.us], trial.notes)
    assert fired == any(trial.is_faster(way, "library") for way in ("kernel", "three terms"))
    torch._dynamo.reset()
    finding(monkeypatch, KERNEL_WINS)
    again, _, _ = _run(lambda x, w: x @ w, *_operands()[:2])
    assert [trial] == again.trials


def test_the_random_state_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a trial come from a generator of its own."""
    monkeypatch.setattr(library_calls, "LEAST_US", 0.0)
    x, w, _ = _operands()
    before = torch.random.get_rng_state()
    _run(lambda x, w: x @ w, x, w)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("tf32", ["_cdist_forward", "topk"]),
        ("half", ["_cdist_forward", "topk"]),
        ("tuned by Inductor", ["_cdist_forward", "topk"]),
        ("deterministic", []),
        ("another device", []),
        ("kernels by name", []),
        ("without the pass", []),
        ("sizes that change", []),
    ],
)
def test_what_is_not_tried(monkeypatch: pytest.MonkeyPatch, change: str, expected: list[str]) -> None:
    """Where the library is at its limit, somebody else times it, or a measurement must not decide."""
    finding(monkeypatch, KERNEL_WINS)
    settings: dict[str, dict[str, Any]] = {
        "tuned by Inductor": {"max_autotune_gemm": True},
        "kernels by name": {"kernels": "relu.default"},
        "without the pass": {"passes": "-library_calls"},
    }
    operands = _operands(torch.float64 if change == "half" else torch.float32)
    if change == "another device":
        monkeypatch.setattr(calls, "DEVICE_TYPES", {"cuda"})
    if change == "sizes that change":
        torch._dynamo.mark_dynamic(operands[0], 0)
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if change == "tf32" else before
    torch.use_deterministic_algorithms(change == "deterministic")
    try:
        reports, _, _ = _run(_products, *operands, **settings.get(change, {}))
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.matmul.fp32_precision = before
    assert expected == sorted(one.call.partition("(")[0] for one in reports.trials)


def test_indices_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call does with them hangs on values that are not there yet."""
    finding(monkeypatch, KERNEL_WINS)
    reports, _, _ = _run(lambda x: torch.topk(x, 2).values, torch.randint(9, (4, 8)))
    assert [] == reports.trials


def test_three_terms_are_calls_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that Inductor makes the parts of a factor where the factor is made; a long sum is not made this way."""
    preferring(monkeypatch, library_calls.THREE_TERMS)
    model = nn.Sequential(nn.Linear(36, 300), nn.ReLU(), nn.Linear(300, 8))
    x = torch.randn(2, 36)
    with torch.no_grad():
        compiled = torch.compile(model, backend="opsmith")
        with collected() as reports:
            result, [code] = run_and_get_code(compiled, x)
        assert [] == reports.fallbacks
        torch.testing.assert_close(result, model(x), rtol=1e-5, atol=1e-5)
        assert result.stride() == model(x).stride()
    (found,) = (one for one in reports.passes if one.name == LIBRARY_CALLS)
    assert (1, None) == (found.fired, found.undone)
    assert 1 == code.count("torch.ops.opsmith.tf32_addmm.default(")


def test_a_factor_of_several_products_has_one_set_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries, keys and values: what they are made of is split once."""
    preferring(monkeypatch, library_calls.THREE_TERMS)
    compiled = torch.compile(lambda x, q, k, v: (x @ q, x @ k, x @ v), backend="opsmith")
    x, q, k, v = torch.randn(4, 32, 32)
    results, [code] = run_and_get_code(compiled, x, q, k, v)
    torch.testing.assert_close(results, (x @ q, x @ k, x @ v), rtol=1e-5, atol=1e-5)
    (left,) = {line.split("default(")[1].split(",")[0] for line in code.splitlines() if "tf32_mm.default(" in line}
    assert left.startswith("buf")


def test_of_several_faster_ways_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are held against the library one by one."""
    asked: list[list[str]] = []

    def hold(call: str, ways: Any, **settings: object) -> Trial:
        asked.append([*ways])
        return Trial(call=call, us={"library": 100.0, "kernel": 80.0, "three terms": 60.0})

    monkeypatch.setattr(trying, "hold_trial", hold)
    x, w, _ = _operands()
    _, fired, result = _run(lambda x, w: x @ w, x, w)
    torch.testing.assert_close(result, x @ w, rtol=1e-5, atol=1e-5)
    assert ([["library", "kernel", "three terms"]], 1) == (asked, fired)


@pytest.mark.parametrize("us", [KERNEL_WINS, LIBRARY_WINS])
def test_convolutions_are_tried_as_they_lie(monkeypatch: pytest.MonkeyPatch, us: dict[str, float]) -> None:
    """In strict float32, where Inductor does not turn images."""
    finding(monkeypatch, us)
    monkeypatch.setattr(library_calls, "convolution_precision", lambda: "ieee")
    model = nn.Conv2d(3, 4, 3, padding=1)
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        reports, fired, result = _run(model, x, layout_optimization=False)
        torch.testing.assert_close(result, model(x))
        (trial,) = reports.trials
        assert trial.call.startswith("convolution(f32[2, 3, 6, 6], f32[4, 3, 3, 3], None, (1, 1), (1, 1)")
        assert (us is KERNEL_WINS) == fired
        torch._dynamo.reset()
        turned, fired, _ = _run(model, x, layout_optimization=True)
        assert ([], 0) == (turned.trials, fired)


@pytest.mark.parametrize("by", ["input", "weight", "both", "neither"])
def test_gradients_of_a_convolution_are_tried_apart(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """In training, with nothing set: the kernel may be faster for one of them."""
    asked: list[str] = []

    def hold(call: str, ways: Any, **settings: object) -> Trial:
        mask = call[call.rindex("(") :]
        asked.append(mask)
        half = {"(True, False, False))": "input", "(False, True, True))": "weight"}.get(mask)
        return Trial(call=call, us={one: 9.0 if one == "library" or by not in (half, "both") else 5.0 for one in ways})

    monkeypatch.setattr(trying, "hold_trial", hold)
    monkeypatch.setattr(library_calls, "convolution_precision", lambda: "ieee")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    expected = torch.autograd.grad(model(x).square().sum(), (x, *model.parameters()))
    compiled = torch.compile(model, backend="opsmith")
    with collected() as reports:
        found = torch.autograd.grad(compiled(x).square().sum(), (x, *model.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert [] == reports.fallbacks
    passed = [one for one in reports.passes if one.name == LIBRARY_CALLS]
    assert [None, None] == [one.undone for one in passed]
    of_gradients = {"input": 1, "weight": 1, "both": 2, "neither": 0}[by]
    assert [0, of_gradients] == [one.fired for one in passed]
    assert {"(True, False, False))", "(False, True, True))"} < {*asked}


def test_calls_of_graphs_are_repeated_from_plans_without_a_look_for_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.jit.trace looks into installed convolutions, but not into what a compiled graph calls."""
    monkeypatch.setattr("opsmith.dispatch.serving.driver", lambda device_type: "a driver")
    (schema, record) = next(both for both in library_calls._kernels() if both[0].name == "convolution.default")
    installed = Serving(schema, "cuda", record, None).plans
    in_graphs = Serving(schema, "cuda", record, None, under_jit=False).plans
    assert installed is not None
    assert in_graphs is not None
    assert [False, True] == [one.bypass is None for one in (installed, in_graphs)]


def test_passes_of_users_come_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """They find ATen's calls, not those of kernels."""
    finding(monkeypatch, KERNEL_WINS)
    seen: list[int] = []

    @graph_pass("counting")
    def counting(graph: torch.fx.Graph) -> int:
        seen.append(len(list(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default))))
        return 0

    try:
        _, fired, _ = _run(lambda x, w: x @ w, *_operands()[:2])
    finally:
        forget_pass("counting")
    assert ([1], 1) == (seen, fired)


def test_cached_graphs_hang_on_the_kernels_and_on_cudnns_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own keys leave out both."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def key(**options: Any) -> Any:
        return LoweredPasses(read_options(None, options)).uuid()

    keys = [key(), key(kernels="none")]
    monkeypatch.setattr("opsmith.compile.backend.convolution_precision", lambda: "ieee")
    keys += [key(), key(kernels="none")]
    monkeypatch.setattr("opsmith.compile.backend.opsmith_content", lambda: "other kernels")
    keys.append(key())
    assert [0, 1, 2, 1, 3] == [sorted(set(keys), key=keys.index).index(one) for one in keys]


def test_kernels_exist_before_a_cached_graph_calls_them() -> None:
    """Every overload that may be tried has a shipped kernel, opaque under a name of its own."""
    names: Sequence[str] = (*library_calls.PRODUCTS, *library_calls.CONVOLUTIONS, *library_calls.OTHERS)
    assert len(names) == len(library_calls.answered())
    assert {f"opsmith.{name.replace('.', '__')}.default" for name in names} == {
        str(one) for one in library_calls.answered().values()
    }
