"""What is particular to accelerators, with stand-ins: which device is current, and tensors of several devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.core.kernel import Kernel, Loader
from opsmith.dispatch.entry import Override, backend_function
from opsmith.dispatch.guards import Fallback, on_several_devices
from opsmith.dispatch.serving import Serving

RECORD = Kernel(task="relu.default", backend="test", loader=Loader.FILE, entry="relu.py:relu")


def serving(monkeypatch: pytest.MonkeyPatch, *, devices: int, entered: list[torch.device]) -> Serving:
    """A kernel for CUDA on a machine with so many devices."""

    @contextmanager
    def device(which: torch.device) -> Iterator[None]:
        entered.append(which)
        yield

    module = SimpleNamespace(device_count=lambda: devices, device=device)
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    return Serving(aten_schemas()["relu.default"], "cuda", RECORD, torch.clone)


def test_with_several_devices_the_tensors_own_is_made_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch on another device than the tensors' reads memory that is not there."""
    entered: list[torch.device] = []
    serving(monkeypatch, devices=2, entered=entered).kernel(torch.ones(3))
    assert [torch.device("cpu")] == entered


def test_with_one_device_nothing_is_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost a microsecond a call."""
    entered: list[torch.device] = []
    one = serving(monkeypatch, devices=1, entered=entered)
    assert torch.clone is one.kernel
    one.kernel(torch.ones(3))
    assert [] == entered


def test_tensors_of_several_devices_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in lists; numbers and absent arguments lie nowhere."""
    x, y = torch.ones(3), torch.ones(4)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: len(tensor) - 3)
    assert not on_several_devices((x, 2.5, None, x))
    assert on_several_devices((x, y))
    assert on_several_devices(([x, y], 1))
    assert not on_several_devices(([x, x], x))


def test_a_destination_on_another_device_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """``out=`` comes as a keyword; a kernel that got it would write through a pointer of another device."""
    one = serving(monkeypatch, devices=1, entered=[])
    override = Override(one.schema, "cuda")
    override.serving = one
    call = backend_function(override, lambda *_, **__: "torch's own")
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: len(tensor) - 3)
    assert "torch's own" == call(torch.ones(3), out=torch.ones(4))
    assert {Fallback.DEVICE: 1} == one.fallbacks
