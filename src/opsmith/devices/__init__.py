"""Kinds of devices: which there are, and what opsmith has to know of each."""

from __future__ import annotations

import functools

from opsmith import plugins
from opsmith.devices.kind import DeviceKind
from opsmith.errors import UnknownName

__all__ = ["DeviceKind", "kind_of", "names"]


def names() -> list[str]:
    """The device types that ``--device`` takes."""
    return plugins.names(plugins.DEVICES)


def kind_of(device: str) -> DeviceKind:
    """The kind of a device; of one that no package offers, what torch's module for it says.

    Args:
        device: torch device string, with or without a number.
    """
    return _kind(device.partition(":")[0])


@functools.cache
def _kind(device_type: str) -> DeviceKind:
    try:
        made: DeviceKind = plugins.load(plugins.DEVICES, device_type)()
    except UnknownName:
        return DeviceKind(device_type)
    return made
