"""Which logical processors share hardware."""

from __future__ import annotations

from pathlib import Path

#: Where Linux says it.
TOPOLOGY = "/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"


def siblings_of(core: int) -> set[int]:
    """The logical processors that share a core's hardware, itself included, as far as the system says."""
    try:
        listed = Path(TOPOLOGY.format(core=core)).read_text()
    except OSError:
        return {core}
    ranges = [part.partition("-") for part in listed.strip().split(",")]
    return {core}.union(*[range(int(first), int(last or first) + 1) for first, _, last in ranges])
