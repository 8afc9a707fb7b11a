"""What holds a device's clock back, as a stand-in for NVML tells it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opsmith.runner.machine.throttling import ThrottleWatch

UUID = "GPU-11111111-2222-3333-4444-555555555555"
BUS_ID = "00000000:18:00.0"
NOT_SUPPORTED, NOT_FOUND, GPU_IS_LOST = 3, 6, 15
HANDLE = 0x7F00_0000_1234


class FakeNvml:
    """A driver with one device.

    Attributes:
        reasons: bits that it tells next.
        errors: error codes by the names of functions.
        users: who has initialised it and not shut it down.
    """

    def __init__(self, *, errors: dict[str, int] | None = None, missing: str | None = None) -> None:
        self.reasons = 0
        self.errors = errors or {}
        self.missing = missing
        self.users = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name == self.missing:
            raise AttributeError(name)
        answers: dict[str, Callable[..., None]] = {
            "nvmlInit_v2": lambda: self._count(1),
            "nvmlShutdown": lambda: self._count(-1),
            "nvmlDeviceGetHandleByUUID": lambda uuid, handle: _find(uuid == UUID.encode(), handle),
            "nvmlDeviceGetHandleByPciBusId_v2": lambda bus_id, handle: _find(bus_id == BUS_ID.encode(), handle),
            "nvmlDeviceGetCurrentClocksEventReasons": self._tell_reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self._tell_reasons,
            "nvmlDeviceGetClockInfo": _tell_clock,
            "nvmlDeviceGetName": _tell_name,
        }

        def function(*args: Any) -> int:
            if name in self.errors:
                return self.errors[name]
            try:
                answers[name](*args)
            except LookupError:
                return NOT_FOUND
            return 0

        return function

    def _count(self, more: int) -> None:
        self.users += more

    def _tell_reasons(self, device: ctypes.c_void_p, reasons: Any) -> None:
        assert HANDLE == device.value
        assert isinstance(reasons._obj, ctypes.c_ulonglong)
        reasons._obj.value = self.reasons


def _find(known: bool, handle: Any) -> None:  # noqa: FBT001 - of a stand-in
    if not known:
        raise LookupError
    handle._obj.value = HANDLE


def _tell_clock(device: ctypes.c_void_p, clock: int, mhz: Any) -> None:
    assert HANDLE == device.value
    assert isinstance(mhz._obj, ctypes.c_uint)
    mhz._obj.value = {0: 1, 1: 1980, 2: 2}[clock]


def _tell_name(device: ctypes.c_void_p, name: Any, size: ctypes.c_uint) -> None:
    assert HANDLE == device.value
    assert size.value == len(name)
    name.value = b"NVIDIA H200"


def a_watch(nvml: FakeNvml, device: str = UUID) -> ThrottleWatch:
    """A watch of the device that is there."""
    watch = ThrottleWatch.open(device, library=nvml)
    assert watch is not None
    return watch


@pytest.mark.parametrize(
    ("bits", "reason"),
    [
        (0x04, "power cap"),
        (0x20, "thermal slowdown"),
        (0x40, "thermal slowdown"),
        (0x08, "hardware slowdown"),
        (0x80, "power brake"),
        (0x48, "thermal slowdown"),
        (0x88, "power brake"),
        (0x07, "power cap"),
    ],
)
def test_a_clock_that_is_throttled_has_a_reason(bits: int, reason: str) -> None:
    """A hardware slowdown is set together with its cause, and the cause says more."""
    nvml = FakeNvml()
    watch = a_watch(nvml)
    assert watch.throttled() is None
    nvml.reasons = bits
    assert reason == watch.throttled()


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x10, 0x100, 0x113, 0x8000])
def test_what_holds_no_kernel_back_does_not_count(bits: int) -> None:
    """Idle, chosen clocks, sync boost, a display, and what NVML may add one day."""
    nvml = FakeNvml()
    nvml.reasons = bits
    assert a_watch(nvml).throttled() is None


@pytest.mark.parametrize("device", [UUID, BUS_ID])
def test_the_device_is_found_by_what_names_it_for_good(device: str) -> None:
    """Its number depends on what CUDA_VISIBLE_DEVICES says."""
    watch = a_watch(FakeNvml(), device)
    assert "NVIDIA H200" == watch.name()
    assert 1980 == watch.clock_mhz()


def test_an_older_driver_is_asked_by_the_older_name() -> None:
    """The function was renamed in release 535."""
    nvml = FakeNvml(missing="nvmlDeviceGetCurrentClocksEventReasons")
    nvml.reasons = 0x04
    assert "power cap" == a_watch(nvml).throttled()


def test_an_error_discards_the_block() -> None:
    """A block of which nothing is known is not a good one; and the run goes on."""
    nvml = FakeNvml()
    watch = a_watch(nvml)
    nvml.errors = dict.fromkeys(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetClockInfo", "nvmlDeviceGetName"), GPU_IS_LOST
    )
    assert "not known (NVML error 15)" == watch.throttled()
    assert watch.clock_mhz() is None
    assert watch.name() is None


@pytest.mark.parametrize(
    ("device", "errors"),
    [
        (UUID, {"nvmlInit_v2": 9}),
        ("GPU-other", {}),
        ("00000000:19:00.0", {}),
        (UUID, {"nvmlDeviceGetCurrentClocksEventReasons": NOT_SUPPORTED}),
    ],
)
def test_where_nvml_cannot_tell_nothing_watches(device: str, errors: dict[str, int]) -> None:
    """No driver, another device, a device that does not say: known before the first block."""
    nvml = FakeNvml(errors=errors)
    assert ThrottleWatch.open(device, library=nvml) is None
    assert 0 == nvml.users


def test_a_machine_without_nvml_has_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every machine without an NVIDIA device."""
    monkeypatch.setattr("opsmith.devices.nvml._LIBRARY", "libnvidia-ml-that-is-not-there.so.1")
    assert ThrottleWatch.open(UUID) is None


def test_a_closed_watch_lets_go_of_nvml() -> None:
    """It counts its users, and a process may hold several watches."""
    nvml = FakeNvml()
    first, second = a_watch(nvml), a_watch(nvml)
    first.close()
    assert 1 == nvml.users
    second.close()
    assert 0 == nvml.users


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_look_is_short_beside_a_block() -> None:
    """It is taken before and after each block, the shortest of which is 200 us."""
    watch = ThrottleWatch.open(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    if watch is None:
        pytest.skip("needs an NVML that tells the clock's reasons")
    start = time.perf_counter()
    for _ in range(200):
        watch.throttled()
    took_us = (time.perf_counter() - start) / 200 * 1e6
    assert torch.cuda.get_device_name(0) == watch.name()
    assert 100 < (watch.clock_mhz() or 0) < 5000
    watch.close()
    assert took_us < 100
