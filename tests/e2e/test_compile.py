"""Whole models through Inductor, on the CPU: trained, and explained."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code
from typer.testing import CliRunner

from opsmith.cli.main import app
from opsmith.compile.explain import summarise
from opsmith.compile.report import collected

MODELS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        print("half way")
        return (x * 2 + 1).relu()

def block(batch_size=3):
    return Block(), torch.randn(batch_size, 8)
"""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of torch's own compiler.


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """A norm by hand, attention by hand and a write to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.inner = nn.Linear(8, 24)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        q, k, v = self.inner(normed).chunk(3, dim=-1)
        result: Tensor = x + torch.softmax(q @ k.transpose(-2, -1) * 0.35, dim=-1) @ v
        return result


def test_a_model_trains_as_in_eager_with_one_compilation_for_many_sizes() -> None:
    """Results, gradients, buffers; the length is a symbol."""
    torch.manual_seed(0)
    eager, compiled = Block(), Block()
    compiled.load_state_dict(eager.state_dict())
    counter = CompileCounterWithBackend("opsmith")
    with collected() as reports:
        run = torch.compile(compiled, backend=counter)
        for length in (5, 7, 9):
            x = torch.randn(2, length, 8)
            torch._dynamo.mark_dynamic(x, 1)
            results = [model(x) for model in (eager, run)]
            for result in results:
                result.square().sum().backward()
            torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
    gradients = [[one.grad for one in model.parameters()] for model in (eager, compiled)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled.calls, eager.calls)
    fired = {one.name: one.fired for one in summarise(reports.passes)}
    assert (1, 1, 1, []) == (counter.frame_count, fired["attention"], fired["rms_norm"], reports.fallbacks)


class Pooled(nn.Module):
    """Sums of a layer and of convolutions, a factored weight, a pooled mixture of channels and a diagonal matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.mix = nn.Conv2d(16, 24, 1)
        self.grow = nn.ConvTranspose2d(24, 32, 4, stride=2, padding=1)
        self.up, self.down = nn.Parameter(torch.randn(64, 2)), nn.Parameter(torch.randn(2, 32))
        self.scale = nn.Parameter(torch.rand(64) + 0.5)
        self.last = nn.Linear(64, 40)

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.avg_pool2d(self.mix(torch.relu(self.first(x))), 2)
        pooled = self.grow(mixed).mul(0.5).mean((2, 3))
        hidden = torch.tanh(F.linear(pooled, self.up @ self.down)) @ torch.diag(self.scale)
        return self.last(hidden).sum(-1, keepdim=True)  # type: ignore[no-any-return]


def test_a_model_with_less_work_has_the_outputs_and_gradients_of_before() -> None:
    """In Inductor's code, for two batches with one compilation."""
    torch.manual_seed(0)
    eager = Pooled()
    compiled = copy.deepcopy(eager)
    counter = CompileCounterWithBackend("opsmith")
    with collected() as reports:
        run = torch.compile(compiled, backend=counter)
        for batch in (5, 8):
            x = torch.randn(batch, 3, 12, 12)
            torch._dynamo.mark_dynamic(x, 0)
            results = [model(x) for model in (eager, run)]
            for result in results:
                result.square().sum().backward()
            torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-3 * one.grad.abs().max().item())  # type: ignore[union-attr]
    fired = {one.name: one.fired for one in summarise(reports.passes)}
    names = ("reduced_product", "pooled_convolution", "diagonal_product")
    assert (1, [2, 1, 1], []) == (counter.frame_count, [fired[name] for name in names], reports.fallbacks)


def _residual_and_norm(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total, F.rms_norm(total, (total.shape[-1],)) * 1.5


def _rotated_by_halves(x: Tensor, angles: Tensor) -> Tensor:
    one, other = x.transpose(0, 1).chunk(2, dim=-1)
    return x.transpose(0, 1) * angles.cos() + torch.cat([-other, one], -1) * angles.sin()


def _gated_products(x: Tensor, weights: Tensor) -> Tensor:
    gate, up = weights.chunk(2)
    return F.silu(x @ gate.T) * (x @ up.T)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (_residual_and_norm, ((6, 32), (6, 32))),
        (_rotated_by_halves, ((6, 3, 16), (6, 16))),
        (_gated_products, ((6, 32), (80, 32))),
    ],
)
def test_what_is_left_to_inductor_is_one_kernel(
    function: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...]
) -> None:
    """Beside products: which is why opsmith has no pass for it."""
    inputs = [torch.randn(shape) for shape in shapes]
    results, sources = run_and_get_code(torch.compile(function, backend="opsmith"), *inputs)
    assert [1] == [source.count("async_compile.cpp_pybinding(") for source in sources]
    torch.testing.assert_close(results, function(*inputs), rtol=1e-5, atol=1e-5)


def test_a_compiled_step_of_an_optimiser_is_eagers() -> None:
    """Of all parameters at once, step by step."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimisers = [torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True) for model in models]
    compiled = torch.compile(optimisers[1].step, backend="opsmith")
    with collected() as reports:
        for count in range(3):
            x = torch.randn(5, 8) + count
            for model in models:
                model.zero_grad()
                model(x).square().sum().backward()
            optimisers[0].step()
            compiled()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)
    assert ([], []) == (reports.fallbacks, [one.undone for one in reports.passes if one.undone])


def test_explain_tells_breaks_causes_passes_launches_and_times(tmp_path: Path) -> None:
    """As one JSON document, whatever the model prints."""
    (tmp_path / "models.py").write_text(MODELS)
    command = ["explain", f"{tmp_path}/models.py:block", "--batch-size", "3", "--batch-size", "4", "--json"]
    done = CliRunner().invoke(app, command)
    assert 0 == done.exit_code, done.output
    found = json.loads(done.stdout)
    assert [(11, "forward")] == [(one["line"] - 1, one["function"]) for one in found["graph_breaks"]]
    causes = [one["cause"] for one in found["compilations"] if one["cause"]]
    assert ["size mismatch at index 0. expected 3, actual 4"] * 2 == [cause.partition("' ")[2] for cause in causes]
    fired = {one["name"]: one["fired"] for one in found["passes"]}
    assert 2 == fired["rms_norm"]
    assert "overflow" in {one["name"]: one["differs"] or "" for one in found["passes"]}["gelu"]
    launches = {name: work["launches"] for name, work in found["work"].items()}
    moved = {name: work["bytes_moved"] for name, work in found["work"].items()}
    assert (9, 2, 2) == (launches["eager"], launches["inductor"], launches["opsmith"])
    assert moved["eager"] > moved["opsmith"] > 2 * 3 * 8 * 4
    assert found["guards"]["TENSOR_MATCH"] >= 2
    assert "its inputs are not all on one cuda device" in {one["reason"] for one in found["graphs"]}
    assert found["first_call_s"]["opsmith"] > found["first_call_s"]["eager"]


def test_explain_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    """A model that is none, and an option that is none."""
    (tmp_path / "models.py").write_text(MODELS)
    for command, message in (
        (["explain", "nothing"], "names no model"),
        (["explain", f"{tmp_path}/models.py:block", "--option", "passes=atention"], "did you mean attention"),
        (["explain", f"{tmp_path}/models.py:block", "--option", "passes"], "is no KEY=VALUE"),
    ):
        done = CliRunner().invoke(app, command)
        assert (2, 1) == (done.exit_code, len(done.stderr.strip().splitlines()))
        assert message in done.stderr
