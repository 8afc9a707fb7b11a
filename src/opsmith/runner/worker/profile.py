"""Looking at one call of a loaded kernel: what runs when, which lines take how long, what was compiled."""

from __future__ import annotations

import torch

from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord
from opsmith.core.evidence import Evidence
from opsmith.evaluation.timing.compiled_kernels import compiled_kernels
from opsmith.evaluation.timing.line_times import line_times
from opsmith.evaluation.timing.modules import timed_function
from opsmith.evaluation.timing.profiles import profiled
from opsmith.runner.worker.execution import Answering


def looked_at(answering: Answering, record: CallRecord, device: torch.device) -> Evidence:
    """What is seen of a call.

    Args:
        answering: the kernel.
        record: the call.
        device: where it runs.

    Raises:
        BaseException: whatever the kernel raises.
    """
    function, record = timed_function(answering.function, record, device)
    live = rebuild(record, device)

    def run() -> object:
        with torch.no_grad():
            return function(*live.args, **live.kwargs)

    def wait() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    seen = profiled(run, device.type)
    profile = seen if seen.spans else None  # A profiler that may not look at the device sees nothing.
    root = answering.root
    if root is None:
        return Evidence(profile=profile)
    lines = line_times(run, root, answering.files, wait)
    return Evidence(profile=profile, lines=lines, compiled=compiled_kernels(root))
