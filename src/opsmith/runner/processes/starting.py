"""The processes of one device, with this project's limits."""

from __future__ import annotations

from opsmith.runner.processes.children import Processes
from opsmith.suites.traits import traits_of

MEMORY_LIMIT_BYTES = 4 << 30
#: On a device the host only holds what is copied back, which may be several large results.
DEVICE_MEMORY_LIMIT_BYTES = 16 << 30
OUTPUT_LIMIT_BYTES = 8 << 20


def start_processes(
    device: str, *, suite: str | None = None, with_compiler: bool = False, visible: str | None = None
) -> Processes:
    """The zygote and its children, with this project's limits; a context manager.

    Args:
        device: torch device string.
        suite: what will be asked, if anything.
        with_compiler: kernels will use torch's compiler, so import it once for all.
        visible: the devices that they see, as the variable of their kind names them; None for those of this process.
    """
    return Processes(
        device,
        memory_limit_bytes=MEMORY_LIMIT_BYTES if device.startswith("cpu") else DEVICE_MEMORY_LIMIT_BYTES,
        output_limit_bytes=OUTPUT_LIMIT_BYTES,
        with_compiler=with_compiler,
        with_opinfo=suite is not None and traits_of(suite).imports_opinfo,
        visible=visible,
    )
