"""What eager spends its time on for a call, by torch's profiler, in a process of its own: the judge's imports no torch.

``python -m opsmith.generate.eager_profile cuda`` reads calls as msgpack, task to call, and prints one JSON object,
task to :class:`EagerProfile`. ``... cuda --once`` only makes the calls, for Nsight Compute to watch.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

import msgspec

from opsmith.core.call_text import describe
from opsmith.core.case import CallRecord
from opsmith.core.evidence import CallProfile
from opsmith.errors import RefereeFailed

TIME_LIMIT_S = 600.0
COUNTER_LIMIT_S = 120.0
WARM_UPS, CALLS = 3, 10
MOST_ROWS = 6
#: Of Nsight Compute's section SpeedOfLight what a writer of kernels can do something about.
_COUNTERS = ("Duration", "Memory Throughput", "DRAM Throughput", "L2 Cache Throughput", "Compute (SM) Throughput")


class EagerProfile(msgspec.Struct, frozen=True):
    """Of one call: the ops or kernels that take most of its time, and what ran when."""

    text: str
    timeline: CallProfile


def eager_profiles(calls: Mapping[str, CallRecord], device: str) -> dict[str, EagerProfile]:
    """Profile one call of each task.

    Raises:
        RefereeFailed: the process that makes the calls failed.
    """
    command = [sys.executable, "-m", __name__, device]
    ended = subprocess.run(  # noqa: S603 - this very module
        command, input=msgspec.msgpack.encode(calls), capture_output=True, timeout=TIME_LIMIT_S, check=False
    )
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RefereeFailed(f"eager could not be profiled: {''.join(last)}")
    return msgspec.json.decode(ended.stdout, type=dict[str, EagerProfile])


def counters(call: CallRecord, device: str) -> str | None:
    """What Nsight Compute counts of the kernels of one call; None where it is absent, or may not count here."""
    ncu = shutil.which("ncu")
    if ncu is None or not device.startswith("cuda"):
        return None
    command = [ncu, "--csv", "--section", "SpeedOfLight", sys.executable, "-m", __name__, device, "--once"]
    try:
        ended = subprocess.run(  # noqa: S603 - a program of the user's, by its name, on this very module
            command,
            input=msgspec.msgpack.encode({"call": call}),
            capture_output=True,
            timeout=COUNTER_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return read_counters(ended.stdout.decode(errors="replace")) if ended.returncode == 0 else None


def read_counters(output: str) -> str | None:
    """One line a kernel out of Nsight Compute's CSV; None without any."""
    lines = output.splitlines()
    head = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        return None
    kernels: dict[tuple[str, str], list[str]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        if row.get("Metric Name") in _COUNTERS:
            kernel = kernels.setdefault((row["ID"], row["Kernel Name"]), [])
            kernel.append(f"{row['Metric Name']} {row['Metric Value']} {row['Metric Unit']}".strip())
    rows = [f"- {name[:100]}: {', '.join(figures)}" for (_, name), figures in list(kernels.items())[:MOST_ROWS]]
    return "\n".join(rows) or None


def _profiles(calls: Mapping[str, CallRecord], device: str) -> dict[str, EagerProfile]:
    from opsmith.evaluation.timing.profiles import profiled

    found = {}
    for task, call in calls.items():
        run = _live(call, device)
        profile = profiled(run, device)
        timeline = msgspec.structs.replace(profile, inputs=describe(call))
        found[task] = EagerProfile(_profile(run, device), timeline)
    return found


def _live(record: CallRecord, device: str) -> Callable[[], object]:
    import torch

    from opsmith.aten.schemas import overload
    from opsmith.calls.live import rebuild

    call = rebuild(record, torch.device(device))
    function = overload(record.op)

    def run() -> object:
        with torch.no_grad():
            return function(*call.args, **call.kwargs)

    return run


def _profile(run: Callable[[], object], device: str) -> str:
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_device = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    for _ in range(WARM_UPS):
        run()
    with profile(activities=activities) as profiler:
        for _ in range(CALLS):
            run()
        if on_device:
            torch.cuda.synchronize()
    events = [
        (event.key, event.self_device_time_total if on_device else event.self_cpu_time_total, event.count)
        for event in profiler.key_averages()
    ]
    events = sorted((event for event in events if event[1] > 0), key=lambda event: -event[1])
    whole = sum(time for _, time, _ in events) or 1.0
    return "\n".join(
        f"- {name[:100]}: {time / CALLS:.1f} us a call, {100 * time / whole:.0f} %, {count / CALLS:g} times"
        for name, time, count in events[:MOST_ROWS]
    )


def main() -> None:
    """See the module's docstring."""
    calls = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=dict[str, CallRecord])
    if "--once" in sys.argv:
        for call in calls.values():
            _live(call, sys.argv[1])()
    else:
        sys.stdout.buffer.write(msgspec.json.encode(_profiles(calls, sys.argv[1])))


if __name__ == "__main__":
    main()
