"""GPUs and their memory, as a stand-in for NVML tells them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from opsmith.devices import kind_of, nvml
from opsmith.devices.nvml import GpuMemory

GPUS = {"GPU-a": (80 << 30, 70 << 30), "GPU-b": (140 << 30, 1 << 30)}
SLOTS = ("00000000:18:00.0", "00000000:2A:00.0")
NOT_FOUND = 6


class TwoGpus:
    """A driver with two devices, which are numbered in their order."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        answers: dict[str, Callable[..., None]] = {
            "nvmlDeviceGetCount_v2": lambda count: _put(count, len(GPUS)),
            "nvmlDeviceGetHandleByIndex_v2": lambda number, handle: _find(number.value, handle),
            "nvmlDeviceGetHandleByUUID": lambda uuid, handle: _find(_place(uuid, GPUS), handle),
            "nvmlDeviceGetHandleByPciBusId_v2": lambda slot, handle: _find(_place(slot, SLOTS), handle),
            "nvmlDeviceGetUUID": lambda handle, text, size: _write(list(GPUS)[handle.value - 1], text, size),
            "nvmlDeviceGetMemoryInfo": _tell_memory,
            "nvmlSystemGetDriverVersion": lambda text, size: _write("580.159.04", text, size),
        }

        def function(*args: Any) -> int:
            try:
                answers[name](*args)
            except LookupError:
                return NOT_FOUND
            return 0

        return function


def _put(place: Any, value: int) -> None:
    place._obj.value = value


def _place(name: bytes, names: Iterable[str]) -> int:
    return {known: number for number, known in enumerate(names)}[name.decode()]


def _find(number: int, handle: Any) -> None:
    list(GPUS)[number]
    handle._obj.value = number + 1


def _write(value: str, text: Any, size: ctypes.c_uint) -> None:
    assert len(text) == size.value
    text.value = value.encode()


def _tell_memory(handle: Any, memory: Any) -> None:
    memory._obj.total, memory._obj.free = list(GPUS.values())[handle.value - 1]


@pytest.fixture
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "opened", TwoGpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("_two")
def test_devices_are_listed_in_the_drivers_order() -> None:
    """What --devices all is about, unless the environment names some."""
    assert ["GPU-a", "GPU-b"] == nvml.uuids()
    assert "580.159.04" == nvml.driver_version()


@pytest.mark.usefixtures("_two")
@pytest.mark.parametrize("name", ["1", "GPU-b", "00000000:2A:00.0"])
def test_memory_is_told_of_a_device_by_any_of_its_names(name: str) -> None:
    """A number, a UUID, a slot."""
    assert GpuMemory("GPU-b", 140 << 30, 1 << 30) == nvml.memory_of(name)


@pytest.mark.usefixtures("_two")
@pytest.mark.parametrize("name", ["2", "GPU-c", "00000000:FF:00.0"])
def test_of_a_device_that_is_not_there_nobody_says_anything(name: str) -> None:
    """It is no error: a judge without a budget of memory starts at once."""
    assert nvml.memory_of(name) is None


def test_a_machine_without_the_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no program is started to find that out."""
    monkeypatch.setattr(nvml, "opened", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert ([], None, None) == (nvml.uuids(), nvml.memory_of("0"), nvml.driver_version())
    assert [] == kind_of("cuda").visible()
