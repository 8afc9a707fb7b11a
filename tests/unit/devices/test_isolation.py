"""A child sees the device that it is given, whatever its kind, and no other variable of the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.device_stand_ins import VARIABLES

from opsmith.devices import cuda, kind_of
from opsmith.devices.cuda import Rocm
from opsmith.runner.machine.gpus import first_device
from opsmith.runner.processes.children import Processes, _plain_environment, _scrubbed_environment

#: Tells what torch calls the device, and which of them the process sees.
REGISTERS = """
    def register(self):
        import os, torch
        torch.utils.rename_privateuse1_backend("npu")
        with open(os.path.join(os.environ["HOME"], "registered"), "w") as told:
            told.write(f"{torch.device('npu').type} {os.environ['NPU_VISIBLE_DEVICES']}")
"""


@pytest.mark.parametrize(
    ("device", "variable"),
    [("cuda", "CUDA_VISIBLE_DEVICES"), ("xpu:0", "ZE_AFFINITY_MASK"), ("mps", None), ("cpu", None)],
)
def test_a_child_sees_the_device_that_it_is_given(device: str, variable: str | None, tmp_path: Path) -> None:
    """Workers and bare programs do, by the variable of the kind and by no other."""
    for made in (_scrubbed_environment, _plain_environment):
        shown = {name: value for name, value in made(device, tmp_path, "1").items() if name in VARIABLES}
        assert ({} if variable is None else {variable: "1"}) == shown


def test_a_child_on_rocm_sees_what_hip_calls_its_device(
    rocm: Rocm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer below counts first, so its variable stays as it is."""
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "GPU-a,GPU-b")
    shown = _scrubbed_environment("cuda", tmp_path, "1")
    assert ("1", "GPU-a,GPU-b") == (shown["HIP_VISIBLE_DEVICES"], shown["ROCR_VISIBLE_DEVICES"])
    assert "CUDA_VISIBLE_DEVICES" not in shown


@pytest.mark.parametrize("device", ["cpu", "cuda", "xpu"])
def test_triton_is_interpreted_on_the_cpu_alone(device: str, tmp_path: Path) -> None:
    """A worker reads that while it imports Triton."""
    for made in (_scrubbed_environment, _plain_environment):
        assert ("1" if device == "cpu" else None) == made(device, tmp_path, None).get("TRITON_INTERPRET")


@pytest.mark.parametrize(
    ("environment", "visible"),
    [
        ({"HIP_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "5"}, ["2", "3"]),
        ({"CUDA_VISIBLE_DEVICES": "5,6"}, ["5", "6"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}, ["0", "1", "2"]),
        ({}, ["0", "1"]),
    ],
)
def test_amd_gpus_are_those_that_hip_counts(
    environment: dict[str, str], visible: list[str], rocm: Rocm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of the driver without SIMD units is a processor."""
    for number, units in enumerate((0, 304, 304)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(
            f"cpu_cores_count 8\nsimd_count {units}\nmem_banks_count 1\n"
        )
    monkeypatch.setattr(cuda, "KFD_NODES", tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert visible == rocm.visible()
    assert visible[0] == first_device("cuda")


def test_intel_gpus_are_those_that_the_mask_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else lists them without opening the driver; parts of a device have names, too."""
    assert [] == kind_of("xpu").visible()
    assert first_device("xpu") is None
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0.1, 1")
    assert ["0.1", "1"] == kind_of("xpu").visible()


@pytest.mark.parametrize("name", ["cuda", "mps", "xpu"])
def test_no_context_survives_a_fork(name: str) -> None:
    """So a zygote imports nothing that asks the driver of a device."""
    assert not kind_of(name).survives_fork
    assert kind_of("cpu").survives_fork


@pytest.mark.slow
def test_a_zygote_lets_torch_know_the_device_of_a_package(npu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it forks a child, which would have to find the package from within the sandbox."""
    with (npu / "npu_kind.py").open("a") as source:
        source.write(REGISTERS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(npu), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with Processes("npu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20, visible="5") as processes:
        processes.wait_ready()
        assert "npu 5" == (processes.scratch / "registered").read_text()
