"""What a device reaches in practice: the rate of a large copy and of large matrix products."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import torch

from opsmith.core.run import write_atomically
from opsmith.core.timing import Ceilings
from opsmith.devices import kind_of

#: Bytes of each of the two buffers of a copy, on the CPU and on devices: far more than any cache holds.
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
#: On the CPU and on devices, by dtype the side of the square matrices whose product is timed.
SIDES = {
    "cuda": {"bf16": 8192, "f16": 8192, "f32": 4096, "f64": 4096},
    "cpu": {"f32": 1024, "bf16": 1024, "f64": 1024},
}
#: Seconds that each quantity is repeated for, at the least once; the best repetition counts.
COPY_S = 0.4
PRODUCT_S = 0.3
_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}


def cached_ceilings(device: torch.device, folder: Path) -> Ceilings:
    """What was measured for this device, torch and number of threads, or a new measurement.

    Args:
        device: a CUDA device or the CPU, which nobody else uses meanwhile.
        folder: where measurements are kept; it is made if it is missing. One that cannot be written costs
            a measurement each time.
    """
    words = f"{device_name(device)} torch {torch.__version__} {torch.get_num_threads()} threads"
    path = folder / f"{re.sub(r'[^A-Za-z0-9.]+', '-', words)}.json"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Ceilings)
    found = measure_ceilings(device)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(found))
    return found


def measure_ceilings(device: torch.device) -> Ceilings:
    """Measure a device, in about three seconds.

    Args:
        device: a CUDA device or the CPU; a CPU is measured with torch's present number of threads.
    """
    with torch.no_grad(), _full_precision():
        copy_gbps = _copy_gbps(device)
        rates = {dtype: _matmul_tflops(device, dtype, side) for dtype, side in SIDES[_place(device)].items()}
    return Ceilings(
        device=device_name(device),
        copy_gbps=copy_gbps,
        matmul_tflops={dtype: rate for dtype, rate in rates.items() if rate is not None},
        l2_bytes=kind_of(device.type).cache_bytes(device),
        measured_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        torch=str(torch.__version__),
    )


def device_name(device: torch.device) -> str:
    """The name of a device as torch or the operating system gives it."""
    return kind_of(device.type).name(device)


def _place(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else "cuda"


def _copy_gbps(device: torch.device) -> float:
    size = COPIED_BYTES[_place(device)]
    if device.type != "cpu":
        size = min(size, kind_of(device.type).free_bytes(device) // 4)
    source = torch.zeros(size // 4, dtype=torch.int32, device=device)
    target = torch.zeros_like(source)
    # The driver's copy is not the fastest everywhere, so a kernel that reads and writes as much competes.
    best_us = min(
        _best_us(lambda: target.copy_(source), device, COPY_S / 2),
        _best_us(lambda: torch.neg(source, out=target), device, COPY_S / 2),
    )
    return 2 * source.nbytes / best_us / 1e3


def _matmul_tflops(device: torch.device, dtype: str, side: int) -> float | None:
    """The rate of a product, or None if the device has no kernel for it."""
    try:
        # Random numbers: the power that zeros save lets the clock run higher.
        left, right = (torch.randn(side, side, device=device).to(_DTYPES[dtype]) for _ in range(2))
        result = torch.empty_like(left)
        best_us = _best_us(lambda: torch.mm(left, right, out=result), device, PRODUCT_S)
    except (RuntimeError, TypeError):  # MPS has no float64, and says so by a TypeError.
        return None
    return 2 * side**3 / best_us / 1e6


def _best_us(run: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """The shortest of as many repetitions as fit into the budget, after one that does not count."""
    run()
    end = time.monotonic() + budget_s
    best = _elapsed_us(run, device)
    while time.monotonic() < end:
        best = min(best, _elapsed_us(run, device))
    return best


def _elapsed_us(run: Callable[[], object], device: torch.device) -> float:
    return kind_of(device.type).elapsed_ms(run, device) * 1e3


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """Without TF32, which is not a product of f32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
