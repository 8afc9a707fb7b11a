"""What the children that have a context ask of a device: memory, the clock, ceilings, random numbers, its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.device_stand_ins import CACHE_BYTES, GPU_BYTES

from opsmith.calls.seeding import random_state
from opsmith.core.run import Selection
from opsmith.devices import DeviceKind, kind_of
from opsmith.devices.cuda import Cuda, Rocm
from opsmith.devices.kind import UNKNOWN_CACHE_BYTES
from opsmith.devices.mps import Mps
from opsmith.devices.xpu import Xpu
from opsmith.evaluation.roofline import ceilings
from opsmith.evaluation.roofline.ceilings import measure_ceilings
from opsmith.evaluation.timing import blocks, cuda_graphs
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.evaluation.timing.single_calls import launch_ms, runtime_ms
from opsmith.evaluation.timing.statistics import quantities_on
from opsmith.runner.child.contexts import open_device
from opsmith.runner.protocol.out_of_memory import is_oom
from opsmith.runner.referee.server import Referee
from opsmith.runner.worker.execution import raised
from opsmith.tasks.problem import record_call


def test_an_intel_gpu_is_opened(intel: None) -> None:
    """It has a name, and what tells it from others."""
    opened = open_device("xpu:1")
    assert ("Intel(R) Data Center GPU Max 1550", None, "xpu-8680", 2) == (
        opened.name,
        opened.problem,
        opened.identity,
        opened.count,
    )


def test_an_apple_gpu_is_opened(apple: None) -> None:
    """Torch gives it no name, and there is one."""
    opened = open_device("mps")
    assert ("Apple GPU", None, "mps", 1) == (opened.name, opened.problem, opened.identity, opened.count)


def test_a_device_that_is_not_there_is_a_problem() -> None:
    """In torch's words, of which there is one line."""
    for name in ("xpu", "mps"):
        problem = open_device(name).problem
        assert problem
        assert "\n" not in problem


def test_memory_is_what_torch_says(intel: None, apple: None) -> None:
    """A Mac's is the host's, of which Metal recommends a part."""
    found = {
        name: [kind(torch.device(name)) for kind in (of.total_bytes, of.free_bytes, of.cache_bytes)]
        for name, of in (("xpu", Xpu()), ("mps", Mps()))
    }
    assert [GPU_BYTES, GPU_BYTES - 1, CACHE_BYTES] == found["xpu"]
    assert [GPU_BYTES, GPU_BYTES - (1 << 30), UNKNOWN_CACHE_BYTES] == found["mps"]


def test_a_kind_that_no_package_offers_is_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enabled kernels serve devices of any kind."""
    module = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda _: SimpleNamespace())
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    kind = kind_of("hpu:0")
    assert (DeviceKind, "hpu", 2) == (type(kind), kind.type, kind.count())
    assert ("hpu", UNKNOWN_CACHE_BYTES) == (kind.identity(torch.device("hpu")), kind.cache_bytes(torch.device("hpu")))


@pytest.mark.parametrize(
    "message",
    [
        "XPU out of memory. Tried to allocate 2.00 GiB",
        "MPS backend out of memory (MPS allocated: 1 GB)",
        "HIP out of memory. Tried to allocate 20.00 MiB",
        "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        "level_zero backend failed with error: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)",
    ],
)
def test_every_kind_says_that_it_has_no_memory_left(message: str) -> None:
    """Such a case is tried again alone, not held against the kernel."""
    assert is_oom(f"RuntimeError: {message}")


@pytest.mark.parametrize(
    ("device", "message", "lost"),
    [
        ("xpu", "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", True),
        ("xpu", "CUDA error: an illegal memory access was encountered", False),
        ("mps", "command buffer exited with error status.", True),
        ("cuda", "UR_RESULT_ERROR_DEVICE_LOST", False),
        ("cpu", "UR_RESULT_ERROR_DEVICE_LOST", False),
    ],
)
def test_a_lost_context_is_known_by_its_kinds_words(device: str, message: str, tmp_path: Path, *, lost: bool) -> None:
    """The referee ends then, and another one takes its place; of a worker the judge is told."""
    assert ("device" if lost else "error") == raised(RuntimeError(message), device).kind
    assert lost is kind_of(device).is_lost(RuntimeError(message), message)
    referee = Referee(device, tmp_path, 0, Selection())

    def fail(_request: object) -> Any:
        raise RuntimeError(message)

    referee._handlers[int] = fail  # type: ignore[index]
    reply: Any = referee.answer(1)  # type: ignore[arg-type]
    referee._spool.close()
    assert (lost, lost) == (referee.device_lost, reply.ends)


def test_torchs_own_error_means_a_lost_context_everywhere() -> None:
    """Whatever it says."""
    assert all(kind_of(name).is_lost(torch.AcceleratorError("x"), "x") for name in ("cpu", "cuda", "mps", "xpu"))


@pytest.mark.parametrize(("device", "quantities"), [("cpu", "E"), ("cuda:1", "KE"), ("xpu", "E"), ("mps", "E")])
def test_k_is_measured_where_graphs_can_be_captured(device: str, quantities: str) -> None:
    """Elsewhere nothing holds a queue up, so that the host's pace would count."""
    assert quantities == quantities_on(device)


def test_k_is_measured_on_rocm(rocm: Rocm) -> None:
    """``torch.cuda`` captures HIP's graphs, whose functions are called otherwise."""
    assert "KE" == quantities_on("cuda")


def test_hips_runtime_is_called_by_its_names(rocm: Rocm, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is taken out of it, as of CUDA's."""
    called: list[str] = []

    def noting(name: str, error: int) -> Callable[..., int]:
        return lambda *_: called.append(name) or error  # type: ignore[func-returns-value]

    names = {"hipPointerGetAttributes": 1, "hipGetLastError": 0}
    runtime = SimpleNamespace(**{name: noting(name, error) for name, error in names.items()})
    monkeypatch.setattr(cuda_graphs, "_runtime", lambda: runtime)
    with pytest.raises(RuntimeError, match="hipPointerGetAttributes failed with error 1"):
        cuda_graphs.memory_kind(64)
    assert ["hipPointerGetAttributes", "hipGetLastError"] == called


@pytest.mark.parametrize("name", ["xpu", "mps"])
def test_a_call_is_timed_between_two_events(name: str, intel: None, apple: None) -> None:
    """So is the launch of as little as there is."""
    made: list[object] = []
    assert 2.0 == runtime_ms(lambda: made.append(1), torch.device(name))
    assert 6 == len(made)  # One untimed, five timed.
    assert 2.0 == launch_ms(torch.device(name))


def test_a_timed_call_empties_the_cache_and_counts_its_memory(intel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an Intel GPU, whose cache is larger than CUDA's."""
    blocks._flushed_memory.cache_clear()
    asked: list[int] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    sets = TimedInputs(record_call("relu.default", [torch.ones(3)], {}), torch.device("cpu"), 1)
    real = torch.empty

    def noting(size: int, **_: Any) -> torch.Tensor:
        asked.append(size)
        return real(1)

    monkeypatch.setattr(torch, "empty", noting)
    assert 4 == TimedCall(torch.relu, sets, torch.device("xpu")).peak_bytes
    assert [Xpu.flush_bytes] == [size for size in asked if size]
    blocks._flushed_memory.cache_clear()


def test_caches_are_emptied_by_more_than_three_of_them() -> None:
    """In MB: an H200 has 50, an MI300X 256, a Data Center GPU Max 408, an M2 Ultra 96."""
    largest = {Cuda: 50, Rocm: 256, Xpu: 408, Mps: 96}
    assert all(kind.flush_bytes > 3 * size * 10**6 for kind, size in largest.items())


@pytest.mark.parametrize(
    ("name", "device_name", "l2_bytes"),
    [("xpu", "Intel(R) Data Center GPU Max 1550", CACHE_BYTES), ("mps", "Apple GPU", UNKNOWN_CACHE_BYTES)],
)
def test_ceilings_are_measured(
    name: str, device_name: str, l2_bytes: int, intel: None, apple: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two milliseconds for a copy of 4 MB there and back are 4.2 GB/s; a dtype that is refused is left out."""
    monkeypatch.setattr(ceilings, "COPIED_BYTES", {"cuda": 4 << 20})
    monkeypatch.setattr(ceilings, "SIDES", {"cuda": {"f32": 100, "f64": 100}})
    monkeypatch.setattr(ceilings, "COPY_S", 0.01)
    monkeypatch.setattr(ceilings, "PRODUCT_S", 0.01)
    real = torch.mm

    def product(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        if left.dtype is torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        return real(left, right, out=out)

    monkeypatch.setattr(torch, "mm", product)
    found = measure_ceilings(torch.device(name))
    assert (device_name, l2_bytes) == (found.device, found.l2_bytes)
    assert 2 * (4 << 20) / 2000 / 1e3 == found.copy_gbps
    assert {"f32": 2 * 100**3 / 2000 / 1e6} == found.matmul_tflops


def test_a_devices_random_state_is_seen(intel: None, apple: None) -> None:
    """A call that draws on the device changes it."""
    for name, state in (("xpu", 7), ("mps", 8)):
        host, own = random_state(torch.device(name))
        assert torch.equal(torch.get_rng_state(), host)
        assert torch.equal(torch.tensor([state]), own)
    assert 1 == len(random_state(torch.device("cpu")))
