"""What trials found on well-known GPUs, shipped with opsmith: a class that stands there needs no trial.

A table is a file of :data:`FOLDER`, named for its GPU; ``benchmarks/dispatch/shipped_trials.py`` writes it from the
records of runs. A row holds for the kernel that was timed and for no later one, since it is found by the kernel's
content. What a machine has measured itself goes before.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec
import torch

from opsmith.dispatch.choice.choosing import EAGER, KERNEL
from opsmith.trials.book import Trial

FOLDER = Path(__file__).with_name("tables")


class TimedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """The classes of calls of one kernel that were tried.

    Attributes:
        kernel: its :func:`~opsmith.dispatch.choice.choosing.timed_content`.
        classes: class -> microseconds of a call by PyTorch's own kernel and by this one; the latter is None where the
            kernel did not answer, or answered otherwise than PyTorch.
    """

    kernel: str
    classes: dict[str, tuple[float, float | None]]


class ShippedTrials(msgspec.Struct, frozen=True, kw_only=True):
    """What trials found on one kind of GPU.

    Attributes:
        device: the GPU's name.
        torch: the version of torch that ran.
        ops: overload -> what was tried of its kernel.
    """

    device: str
    torch: str
    ops: dict[str, TimedKernel] = {}

    def find(self, op: str, kernel: str, text: str) -> Trial | None:
        """The trial of a class of calls.

        Args:
            op: the overload.
            kernel: :func:`~opsmith.dispatch.choice.choosing.timed_content` of its kernel.
            text: the class.
        """
        timed = self.ops.get(op)
        if timed is None or timed.kernel != kernel or text not in timed.classes:
            return None
        eager_us, kernel_us = timed.classes[text]
        return Trial(call=text, us={EAGER: eager_us} if kernel_us is None else {EAGER: eager_us, KERNEL: kernel_us})


def table_file(device: str) -> Path:
    """The file of a GPU's table, by the GPU's name."""
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', device.lower())}.json"


def find_shipped(device_type: str, op: str, kernel: str, text: str) -> Trial | None:
    """What the table of this machine's GPU says of a class of calls, see :meth:`ShippedTrials.find`."""
    return _table(device_type).find(op, kernel, text)


@functools.cache
def _table(device_type: str) -> ShippedTrials:
    """An empty one where there is none."""
    name = torch.cuda.get_device_name() if device_type == "cuda" else device_type
    file = table_file(name)
    if not file.exists():
        return ShippedTrials(device=name, torch="")
    return msgspec.json.decode(file.read_bytes(), type=ShippedTrials)
