"""Ceilings are measured once for each device, torch and number of threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from opsmith.core.timing import Ceilings
from opsmith.evaluation.roofline import ceilings
from opsmith.evaluation.roofline.ceilings import cached_ceilings, measure_ceilings
from opsmith.evaluation.roofline.datasheets import datasheet_of

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that take milliseconds."""
    monkeypatch.setattr(ceilings, "COPIED_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(ceilings, "SIDES", {"cpu": {"f32": 32, "bf16": 32, "f64": 32}})
    monkeypatch.setattr(ceilings, "COPY_S", 0.01)
    monkeypatch.setattr(ceilings, "PRODUCT_S", 0.01)


def test_a_cpu_is_measured() -> None:
    """Copies, products of each dtype and the last cache."""
    found = measure_ceilings(CPU)
    assert found.copy_gbps > 0
    assert ["bf16", "f32", "f64"] == sorted(found.matmul_tflops)
    assert all(rate > 0 for rate in found.matmul_tflops.values())
    assert found.l2_bytes >= 1 << 20
    assert torch.__version__ == found.torch


def test_a_dtype_that_the_device_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known about it, which is not the same as nothing is possible."""
    real = torch.mm

    def refusing(left: torch.Tensor, right: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
        if left.dtype is torch.bfloat16:
            raise RuntimeError('"addmm" not implemented')
        return real(left, right, **options)

    monkeypatch.setattr(torch, "mm", refusing)
    assert ["f32", "f64"] == sorted(measure_ceilings(CPU).matmul_tflops)


def test_tf32_is_off_while_products_are_timed_and_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TF32 product is no f32 product, and a user's setting is the user's."""
    seen: list[str] = []
    real = torch.mm

    def noting(left: torch.Tensor, right: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_float32_matmul_precision())
        return real(left, right, **options)

    monkeypatch.setattr(torch, "mm", noting)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        measure_ceilings(CPU)
        assert "high" == torch.get_float32_matmul_precision()
    finally:
        torch.set_float32_matmul_precision(before)
    assert {"highest"} == set(seen)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[Ceilings]:
    """What was measured from now on."""
    measured: list[Ceilings] = []
    real: Callable[[torch.device], Ceilings] = measure_ceilings

    def noting(device: torch.device) -> Ceilings:
        measured.append(real(device))
        return measured[-1]

    monkeypatch.setattr(ceilings, "measure_ceilings", noting)
    return measured


def test_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run reads it; its folder is made."""
    measured = counting(monkeypatch)
    first = cached_ceilings(CPU, tmp_path / "ceilings")
    assert first == cached_ceilings(CPU, tmp_path / "ceilings")
    assert [first] == measured
    (kept,) = (tmp_path / "ceilings").iterdir()
    assert torch.__version__.replace("+", "-") in kept.name


def test_another_number_of_threads_is_another_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with one thread reaches less."""
    measured = counting(monkeypatch)
    cached_ceilings(CPU, tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        cached_ceilings(CPU, tmp_path)
    finally:
        torch.set_num_threads(threads)
    assert 2 == len(measured)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"device": 1}'])
def test_a_damaged_measurement_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    """A file that cannot be read costs a measurement, not the run."""
    measured = counting(monkeypatch)
    cached_ceilings(CPU, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(damage)
    assert cached_ceilings(CPU, tmp_path) == cached_ceilings(CPU, tmp_path)
    assert 2 == len(measured)


def test_a_folder_that_cannot_be_made_costs_a_measurement(tmp_path: Path) -> None:
    """The run goes on without the file."""
    (tmp_path / "file").write_bytes(b"")
    assert cached_ceilings(CPU, tmp_path / "file" / "folder").copy_gbps > 0


class _Event:
    """Stands in for a CUDA event: every interval takes two milliseconds."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: _Event) -> float:
        return 2.0


class _Properties:
    L2_cache_size = 60 << 20


def test_a_gpu_is_measured_with_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two milliseconds for a copy of 4 MB there and back are 4.2 GB/s."""
    monkeypatch.setattr(ceilings, "COPIED_BYTES", {"cuda": 4 << 20})
    monkeypatch.setattr(ceilings, "SIDES", {"cuda": {"f32": 100}})
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: _Properties)
    for name in ("zeros", "randn"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, device, real=real, **k: real(*a, **k))
    found = measure_ceilings(torch.device("cuda"))
    assert ("NVIDIA H200", 60 << 20) == (found.device, found.l2_bytes)
    assert 2 * (4 << 20) / 2000 / 1e3 == found.copy_gbps
    assert {"f32": 2 * 100**3 / 2000 / 1e6} == found.matmul_tflops


@pytest.mark.parametrize(
    ("name", "gbps", "f32"),
    [
        ("NVIDIA H200", 4800, 329.8),
        ("NVIDIA H100 80GB HBM3", 3350, 329.8),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 3350, 329.8),
        ("NVIDIA A100-SXM4-80GB", 2039, 104),
        ("A100-SXM4-40GB", 1555, 104),
        ("Tesla T4", 320, 21.67),
        ("NVIDIA GeForce RTX 4090", 1008, 110.1),
    ],
)
def test_devices_are_known_by_the_name_that_torch_gives_them(name: str, gbps: float, f32: float) -> None:
    """The rate of f32 is a third of the 16-bit rate, or that without tensor cores if it is higher."""
    sheet = datasheet_of(name)
    assert sheet is not None
    assert (name, gbps) == (sheet.name, sheet.bandwidth_gbps)
    assert f32 == pytest.approx(sheet.matmul_tflops["f32"], rel=1e-3)


def test_a_similar_name_is_another_device() -> None:
    """An A10G is no A10, and an H20 no H200."""
    assert [None, None] == [datasheet_of("NVIDIA A10G"), datasheet_of("NVIDIA H20")]
