"""Devices that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.device_stand_ins import CACHE_BYTES, GPU_BYTES, VARIABLES, Event

from opsmith import devices
from opsmith.cli import selection
from opsmith.devices import kind_of
from opsmith.devices.cuda import Rocm

NPU = """
from opsmith.devices import DeviceKind

class Npu(DeviceKind):
    type = "npu"
    label = "Some accelerator"
    visible_variable = "NPU_VISIBLE_DEVICES"

    def register(self):
        import types, torch
        torch.utils.rename_privateuse1_backend("npu")
        module = types.ModuleType("torch.npu")
        module.device_count = lambda: 3
        module.get_device_name = lambda device: "npu one"
        torch._register_device_module("npu", module)
"""


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is known yet, and no variable hides a device."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    devices._kind.cache_clear()
    selection._say_untested.cache_clear()
    yield
    devices._kind.cache_clear()


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rocm:
    """A torch that was built for ROCm is installed."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("from typing import Optional\nhip: Optional[str] = '6.4.1'\n")
    spec = SimpleNamespace(origin=str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    kind = kind_of("cuda")
    assert isinstance(kind, Rocm)
    return kind


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that are asked for on a device are made on the host."""
    for name in ("zeros", "randn", "empty"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, device=None, real=real, **k: real(*a, **k))


@pytest.fixture
def intel(monkeypatch: pytest.MonkeyPatch, on_host: None) -> None:
    """``torch.xpu`` with a device."""
    properties = SimpleNamespace(total_memory=GPU_BYTES, last_level_cache_size=CACHE_BYTES, uuid="8680")
    answers: dict[str, Any] = {
        "Event": Event,
        "device": lambda _device: nullcontext(),
        "device_count": lambda: 2,
        "get_device_name": lambda _device: "Intel(R) Data Center GPU Max 1550",
        "get_device_properties": lambda _device: properties,
        "mem_get_info": lambda _device: (GPU_BYTES - 1, GPU_BYTES),
        "get_rng_state": lambda _device: torch.tensor([7]),
        "memory_stats_as_nested_dict": lambda _device: {"allocated_bytes": {"all": {"current": 5, "peak": 9}}},
        "reset_peak_memory_stats": lambda _device: None,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.xpu, name, answer)


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch, on_host: None) -> None:
    """``torch.mps`` with a device."""
    answers: dict[str, Any] = {
        "Event": Event,
        "device_count": lambda: 1,
        "recommended_max_memory": lambda: GPU_BYTES,
        "driver_allocated_memory": lambda: 1 << 30,
        "get_rng_state": lambda: torch.tensor([8]),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.mps, name, answer)


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a kind of its own, installed as pip would."""
    information = tmp_path / "npu_kind-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: npu_kind\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[opsmith.devices]\nnpu = npu_kind:Npu\ncuda = npu_kind:Npu\n")
    (tmp_path / "npu_kind.py").write_text(NPU)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path
