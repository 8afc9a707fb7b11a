"""Notices that a device's clock is throttled, as NVML tells it.

A block that ran while the clock was throttled took longer than its work needs, so its pair does not
count. Where the device is the CPU nothing watches: what a block loses there is mostly a wait for a
processor, which the judge's clock sees by the kernel's own count (``schedstat``), and repeats the block.

Names and numbers are those of NVML's header, ``nvml.h``.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Self

from opsmith.devices import nvml
from opsmith.devices.nvml import Nvml

_CLOCK_SM = 1

#: Reasons that count, by their bits. "Hardware slowdown" stands behind its causes, with which it is set.
#: The others hold nothing back that runs: idle, clocks that somebody chose, sync boost, a display.
_REASONS = {
    0x80: "power brake",
    0x40: "thermal slowdown",
    0x20: "thermal slowdown",
    0x08: "hardware slowdown",
    0x04: "power cap",
}


class ThrottleWatch:
    """Watches one device; threads may share it. Made by :meth:`open`."""

    def __init__(self, library: Nvml, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        try:
            self._get_reasons = library.nvmlDeviceGetCurrentClocksEventReasons
        except AttributeError:  # Drivers before 535 know it by its former name only.
            self._get_reasons = library.nvmlDeviceGetCurrentClocksThrottleReasons

    @classmethod
    def open(cls, device: str, *, library: Nvml | None = None) -> Self | None:
        """Watch a device.

        Args:
            device: its UUID as the driver writes it (``GPU-...``; torch leaves the prefix out), or the
                bus id of its PCI slot.
            library: what to ask; NVML itself if None.

        Returns:
            None where NVML is missing, does not know the device, or does not tell what holds its clock
            back (a part of a device, for example).
        """
        library = library or nvml.loaded()
        if library is None or library.nvmlInit_v2() != 0:
            return None
        handle = ctypes.c_void_p()
        if nvml.find(library, device, handle) == 0:
            watch = cls(library, handle)
            if watch._read_reasons()[0] == 0:
                return watch
        library.nvmlShutdown()
        return None

    def throttled(self) -> str | None:
        """Why the clock is throttled at the moment, in two words, or None if it is not.

        Where NVML fails to say, that is the reason: a block of which nothing is known does not count.
        """
        error, reasons = self._read_reasons()
        if error != 0:
            return f"not known (NVML error {error})"
        return next((words for bit, words in _REASONS.items() if reasons & bit), None)

    def clock_mhz(self) -> int | None:
        """The clock of the multiprocessors at the moment, or None if NVML fails to say."""
        clock_mhz = ctypes.c_uint()
        error = self._library.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(clock_mhz))
        return clock_mhz.value if error == 0 else None

    def name(self) -> str | None:
        """The device's name, or None if NVML fails to say."""
        return nvml.text_of(functools.partial(self._library.nvmlDeviceGetName, self._handle))

    def close(self) -> None:
        """Let go of NVML, which counts who uses it."""
        self._library.nvmlShutdown()

    def _read_reasons(self) -> tuple[int, int]:
        """An error code or 0, and the bits of the reasons."""
        reasons = ctypes.c_ulonglong()
        error: int = self._get_reasons(self._handle, ctypes.byref(reasons))
        return error, reasons.value
