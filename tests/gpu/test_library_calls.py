"""Kernels tried out against libraries on a GPU: what is chosen is right, is kept, and survives Inductor's caches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opsmith.compile.report import collected
from opsmith.compile.trials import trying
from opsmith.trials.book import Trial
from opsmith.trials.turns import Way, hold_trial

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Of torch's own compiler.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.backends.cudnn.allow_tf32 = allowed


def test_a_large_product_in_float32_is_made_on_tensor_cores() -> None:
    """Faster than cuBLAS, by the kernel, and about as near to float64."""
    torch.manual_seed(0)
    model = nn.Linear(4096, 4096).cuda()
    x = torch.randn(4096, 4096, device="cuda")
    with torch.no_grad(), collected() as reports:
        result = torch.compile(model, backend="opsmith")(x)
    (trial,) = {one.call: one for one in reports.trials}.values()
    assert trial.is_faster("kernel", "library"), trial.line()
    assert "three terms" not in trial.us | trial.notes, trial.line()
    exact = x.double() @ model.weight.double().T + model.bias.double()
    assert (result - exact).abs().max() <= 1.5 * (model(x) - exact).abs().max()


def test_gradients_and_convolutions_are_right_whatever_is_chosen() -> None:
    """In training, with both layouts tried."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 64, 1), nn.Flatten(2))
    model = nn.Sequential(layers, nn.Linear(784, 1024)).cuda()
    x = torch.randn(32, 64, 28, 28, device="cuda")
    with collected() as reports:
        compiled = torch.compile(model, backend="opsmith")
        compiled(x).square().mean().backward()
    assert [] == reports.fallbacks
    found = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    model.zero_grad()
    model.double()(x.double()).square().mean().backward()
    expected = [one.grad.float() for one in model.parameters() if one.grad is not None]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert any("channels last" in one.us for one in reports.trials)


def test_three_terms_are_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is faster: about as near to float64 as the library's own, where TF32 is a hundred times as far."""

    def hold(call: str, ways: Mapping[str, Way], **settings: Any) -> Trial:
        trial = hold_trial(call, ways, **settings)
        return Trial(call=call, us={one: 1.0 if one == "three terms" else 9.0 for one in trial.us}, notes=trial.notes)

    monkeypatch.setattr(trying, "hold_trial", hold)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 2048)).cuda()
    x = torch.randn(16384, 256, device="cuda")
    with torch.no_grad(), collected() as reports:
        found = torch.compile(model, backend="opsmith")(x)
        library = model(x)
        exact = model.double()(x.double())
    assert [] == reports.fallbacks
    assert sum(one.fired for one in reports.passes if one.name == "library_calls") == 1
    assert (found - exact).abs().max() <= 5 * (library - exact).abs().max()


PROGRAM = """
import torch
from opsmith.compile.report import collected
a = torch.randn(4096, 4096, device="cuda")
with torch.no_grad(), collected() as reports:
    result = torch.compile(torch.mm, backend="opsmith")(a, a)
torch.testing.assert_close(result, a @ a, rtol=1e-4, atol=1e-2)
print(sum(one.name == "library_calls" for one in reports.passes))
"""


def test_a_graph_out_of_a_cache_finds_its_kernels() -> None:
    """The second process compiles nothing, so no pass runs in it."""
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert ["1", "0"] == [run.split()[-1] for run in runs]
