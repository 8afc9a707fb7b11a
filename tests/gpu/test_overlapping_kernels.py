"""Kernels that are launched while the one before them ends: in a CUDA graph each still sees all that came before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.dispatch.plans.mode import VARIABLE, LaunchMode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]
#: One block, a wave of them, and many waves.
SIZES = [100, 200_000, 1 << 24]
LENGTH, REPLAYS = 60, 20


@pytest.fixture(params=list(LaunchMode))
def _installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shipped kernels, by themselves and from plans in both ways."""
    monkeypatch.setenv(VARIABLE, request.param)
    opsmith.enable(device="cuda")
    yield
    opsmith.disable()


def steps_alone(x: Tensor, y: Tensor) -> Tensor:
    """Shipped kernels alone, each of which reads what the one before wrote, in place and anew."""
    x = x + y
    y = x * 0.5
    x = torch.relu(x) - y
    y += x
    return x + y.flip(0) * 0.25


def steps_among_others(x: Tensor, y: Tensor) -> Tensor:
    """Between a copy, a fill and a kernel of somebody else's, none of which lets the next one begin early."""
    z = torch.empty_like(x)
    torch.ops.aten.copy_.default(z[: len(z) // 2], y[: len(z) // 2])
    z[len(z) // 2 :] = 0
    x = x + z
    torch.cuda._sleep(2000)
    y += x
    return torch.where(y > 0, x, y * 0.5)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("steps", [steps_alone, steps_among_others])
def test_a_chain_in_a_graph_gives_what_its_calls_give(steps: Callable[[Tensor, Tensor], Tensor], size: int) -> None:
    """One by one, which leaves the device time to end; at every replay, on other values."""
    x, y = torch.empty(size, device="cuda"), torch.empty(size, device="cuda")

    def chain() -> Tensor:
        here, there = x.clone(), y.clone()
        for _ in range(LENGTH):
            here = steps(here, there) * 0.5
        return here

    x.fill_(1)
    y.fill_(2)
    for _ in range(3):
        chain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = chain()
    for number in range(REPLAYS):
        x.copy_(torch.linspace(-1, 1 + number, size, device="cuda"))
        y.copy_(torch.linspace(number, -2, size, device="cuda"))
        graph.replay()
        found = out.clone()
        torch.cuda.synchronize()
        assert torch.equal(found, chain())
