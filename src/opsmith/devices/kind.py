"""What opsmith has to know of a kind of device.

The judge reads the attributes and calls :meth:`DeviceKind.visible` and :meth:`DeviceKind.missing`; it never imports
torch. The other methods run in children that have a context. They ask torch's module for the device type, so that a
kind says only what differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Languages whose kernels run on an accelerator only.
ACCELERATOR_DSLS = frozenset(
    {"cuda", "cupy", "cutedsl", "cutile", "gluon", "helion", "numba", "pallas", "tilelang", "triton"}
)
#: Of these, what NVIDIA's GPUs alone run.
NVIDIA_DSLS = frozenset({"cuda", "cupy", "cutedsl", "cutile", "numba"})
#: The last cache of a device that does not tell.
UNKNOWN_CACHE_BYTES = 32 << 20


class DeviceKind:
    """A kind of device; a plug-in's is a subclass that can be made without arguments.

    Args:
        device_type: torch's name for it; by default the class's.

    Attributes:
        type: torch's device type, which is also the name of the entry point.
        label: what people call such a device.
        tested: opsmith was run on one.
        visible_variable: the environment variable that says which devices a process sees; None: there is none.
        kept_variables: of its driver and libraries, what a kernel's process may see besides.
        variables: names and values that the environment of every child has.
        survives_fork: a process may use it though the one that it was forked from has.
        nvidia_driver: NVIDIA's driver serves it: launch plans, device files, throttle reasons, NVML.
        times_kernels: ``torch.cuda`` captures graphs on it and holds its queue up, which K is measured with. Without
            that only E is measured.
        runtime: of ``torch.cuda``'s runtime the library, and what the names of its functions begin with.
        has_judge: the judge's processes, which need Linux, can use it.
        flush_bytes: what is written before a timed block to empty its cache: more than three times the largest one.
        counts_memory: torch counts what its allocator has handed out there.
        default_dsl: what kernels are written in if nothing else is asked.
        foreign_dsls: languages whose kernels do not run there.
        failures: one of these is in the message of an error if the context failed, and not the call.
    """

    type: str = ""
    label: str = ""
    tested: bool = False
    visible_variable: str | None = None
    kept_variables: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    survives_fork: bool = False
    nvidia_driver: bool = False
    times_kernels: bool = False
    runtime: tuple[str, str] = ("", "")
    has_judge: bool = True
    flush_bytes: int = 1 << 30
    counts_memory: bool = True
    default_dsl: str = "triton"
    foreign_dsls: frozenset[str] = NVIDIA_DSLS
    failures: tuple[str, ...] = ()

    def __init__(self, device_type: str = "") -> None:
        self.type = device_type or self.type
        self.label = self.label or self.type

    # ------------------------------------------------------------ in the judge

    def visible(self) -> list[str]:
        """The devices that this process may use, as ``visible_variable`` names them; empty where nothing says so."""
        listed = os.environ.get(self.visible_variable or "", "")
        return [name.strip() for name in listed.split(",") if name.strip()]

    def showing(self, name: str | None) -> dict[str, str]:
        """What the environment of a process has besides that sees that device alone; None leaves things as they are."""
        return {} if name is None or self.visible_variable is None else {self.visible_variable: name}

    def missing(self) -> str | None:
        """Why this machine has no such device, as far as its files tell; None if they do not say so."""
        return None

    # ------------------------------------------------------------ in children

    def register(self) -> None:
        """Import what lets torch know the device type; called once torch is imported, before anything is forked."""

    def _module(self) -> Any:
        import torch

        return torch.get_device_module(self.type)

    def count(self) -> int:
        """How many there are for this process."""
        return int(self._module().device_count())

    def name(self, device: torch.device) -> str:
        """What its maker calls the device."""
        return str(self._module().get_device_name(device))

    def identity(self, device: torch.device) -> str:
        """What tells the device from others on this machine; part of a file's name."""
        uuid = getattr(self._module().get_device_properties(device), "uuid", None)
        return str(device) if uuid is None else f"{self.type}-{uuid}"

    def total_bytes(self, device: torch.device) -> int:
        """Its memory."""
        return int(self._module().get_device_properties(device).total_memory)

    def free_bytes(self, device: torch.device) -> int:
        """What nobody uses of its memory."""
        return int(self._module().mem_get_info(device)[0])

    def cache_bytes(self, device: torch.device) -> int:
        """Its last cache."""
        properties = self._module().get_device_properties(device)
        for name in ("L2_cache_size", "last_level_cache_size"):
            if size_bytes := getattr(properties, name, 0):
                return int(size_bytes)
        return UNKNOWN_CACHE_BYTES

    def elapsed_ms(self, run: Callable[[], object], device: torch.device) -> float:
        """Milliseconds between two events around a call, which is waited for."""
        module = self._module()
        with self._current(device):
            start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end))

    def _current(self, device: torch.device) -> AbstractContextManager[Any]:
        """Within it the device is the current one."""
        module = self._module()
        return module.device(device) if hasattr(module, "device") else nullcontext()

    def launch_nothing(self, device: torch.device) -> object:
        """Launch as little as can be launched."""
        import torch

        return torch.zeros(1, device=device)

    def random_state(self, device: torch.device) -> torch.Tensor:
        """The state of its default generator."""
        state: torch.Tensor = self._module().get_rng_state(device)
        return state

    def is_lost(self, error: BaseException, message: str) -> bool:
        """Whether an error, which says that, leaves no usable context."""
        import torch

        return isinstance(error, torch.AcceleratorError) or any(failure in message for failure in self.failures)
