"""Which kinds of devices there are, and what is said to whoever chooses one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith import devices
from opsmith.cli.doctor import _described, _problems
from opsmith.cli.selection import parse_device
from opsmith.core.run import Options
from opsmith.devices import cuda, kind_of, nvml
from opsmith.devices import xpu as xpu_module
from opsmith.devices.cpu import Cpu
from opsmith.devices.cuda import Cuda, Rocm
from opsmith.devices.mps import Mps
from opsmith.devices.nvml import GpuMemory
from opsmith.devices.xpu import Xpu
from opsmith.errors import BadInput, UsageError
from opsmith.pipeline import check_options
from opsmith.runner.machine.environment import device_memory, workers_that_fit
from opsmith.runner.machine.gpus import first_device
from opsmith.runner.processes.children import _scrubbed_environment


@pytest.mark.parametrize(
    ("name", "made", "tested"),
    [("cpu", Cpu, True), ("cuda", Cuda, True), ("mps", Mps, False), ("xpu", Xpu, False)],
)
def test_a_kind_is_registered_by_its_device_type(name: str, made: type, *, tested: bool) -> None:
    """The name of the entry point is torch's, with or without a number."""
    kind = kind_of(f"{name}:1")
    assert (made, name, tested) == (type(kind), kind.type, kind.tested)
    assert kind is kind_of(name)
    assert name in devices.names()


def test_rocm_is_what_cuda_means_to_a_torch_that_was_built_for_it(rocm: Rocm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch keeps the device type; nothing of NVIDIA's driver serves it, and it is untested."""
    monkeypatch.setattr(nvml, "memory_of", lambda _: GpuMemory("GPU-1", 1 << 36, 1 << 36))
    assert ("cuda", False, False) == (rocm.type, rocm.nvidia_driver, rocm.tested)
    assert ("cuda", True, True) == (Cuda.type, Cuda.nvidia_driver, Cuda.tested)
    assert device_memory("cuda", None) is None
    assert 0 == workers_that_fit("cuda", None)


def test_the_judge_learns_the_kind_without_torch() -> None:
    """It would open no device by that, but it would start later."""
    program = (
        "import sys\nfrom opsmith.cli.selection import parse_device\n"
        "parse_device('cuda')\nprint('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ("False\n", "") == (done.stdout, done.stderr)


USE_NPU = """
import torch
from opsmith.devices import kind_of
from opsmith.evaluation.integrity.poison import dispatch_keys
kind = kind_of("npu:1")
kind.register()
device = torch.device("npu:1")
print(kind.count(), kind.name(device), torch._C._dispatch_key_for_device(device.type))
"""


def test_a_package_adds_a_kind(npu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked as opsmith's own are, and cannot take the place of one."""
    assert "npu" in devices.names()
    assert "npu:1" == parse_device("npu:1")
    assert "opsmith: device npu (Some accelerator) is untested: " in capsys.readouterr().err
    monkeypatch.setenv("NPU_VISIBLE_DEVICES", "4,5")
    assert "4" == first_device("npu")
    assert "4" == _scrubbed_environment("npu", Path("/nowhere"), "4")["NPU_VISIBLE_DEVICES"]
    assert isinstance(kind_of("cuda"), Cuda)


@pytest.mark.slow
def test_a_package_lets_torch_know_its_device(npu: Path) -> None:
    """In a process of its own, for torch forgets no name; its kernels have the key that torch keeps for others."""
    path = os.pathsep.join([str(npu), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", USE_NPU],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "3 npu one PrivateUse1\n" == done.stdout


def test_whoever_chooses_an_untested_kind_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and none for what is tested."""
    assert ["xpu", "xpu:1"] == [parse_device("xpu"), parse_device("xpu:1")]
    told = capsys.readouterr().err
    assert told.startswith("opsmith: device xpu (Intel GPU) is untested: ")
    assert 1 == told.count("\n")
    parse_device("cpu")
    parse_device("cuda")
    assert ("", "") == capsys.readouterr()


def test_rocm_is_told_of_as_untested(rocm: Rocm, capsys: pytest.CaptureFixture[str]) -> None:
    """Though its device type is tested elsewhere."""
    parse_device("cuda")
    assert "device cuda (AMD GPU (ROCm)) is untested" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("meta", "no device named 'meta'; there is: cpu, cuda, mps, xpu"),
        ("rocm", "torch calls the devices of ROCm cuda; write --device cuda"),
        ("mps", "device mps cannot be used: judging needs Linux, where there is no Apple GPU"),
        ("cuda:one", "'cuda:one' is not a torch device string; write cpu, cuda or cuda:1"),
    ],
)
def test_what_is_not_judged_on_is_one_line(device: str, message: str) -> None:
    """It says what to write instead, or why not."""
    with pytest.raises(UsageError) as refused:
        parse_device(device)
    assert message == str(refused.value)


@pytest.mark.parametrize(("driver", "chosen"), [(True, "cuda"), (False, "cpu")])
def test_the_default_is_the_gpu_of_which_there_is_a_driver(
    *, driver: bool, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before there were kinds."""
    monkeypatch.setattr(cuda, "DRIVER", tmp_path if driver else tmp_path / "absent")
    assert chosen == parse_device("")


def test_the_default_is_an_amd_gpu_only_where_torch_can_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rocm: Rocm
) -> None:
    """Its driver is another file."""
    monkeypatch.setattr(cuda, "DRIVER", tmp_path)
    monkeypatch.setattr(cuda, "KFD", tmp_path / "absent")
    assert "cpu" == parse_device("")
    monkeypatch.setattr(cuda, "KFD", tmp_path)
    assert "cuda" == parse_device("")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the machine's files tell."""
    monkeypatch.setattr(xpu_module, "DRI", tmp_path)
    assert "no Intel GPU on this machine (/dev/dri has no renderD file)" == kind_of("xpu").missing()
    (tmp_path / "renderD128").touch()
    assert kind_of("xpu").missing() is None
    assert kind_of("cpu").missing() is None
    assert (Mps().missing() is None) is (sys.platform == "darwin")


def test_the_doctor_says_what_is_missing_and_what_is_untested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each kind, and a problem for the device that was asked for."""
    monkeypatch.setattr(xpu_module, "DRI", tmp_path)
    assert ["cpu: CPU", "xpu: Intel GPU (untested)"] == [_described(kind_of(name)) for name in ("cpu", "xpu")]
    assert "device xpu: no Intel GPU on this machine (/dev/dri has no renderD file); use --device cpu" in _problems(
        "xpu", "3.6.0"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"suite": "distributed"}, "suite distributed is not available on xpu: ranks need CUDA devices or the CPU"),
        ({"suite": "parallel"}, "suite parallel is not available on xpu: ranks need CUDA devices or the CPU"),
        ({"baseline": "cudagraphs"}, "--baseline cudagraphs needs a CUDA device, not xpu:0; "),
    ],
)
def test_what_only_cuda_has_is_refused_before_anything_starts(more: dict[str, str], message: str) -> None:
    """A run would find it out after minutes."""
    options = Options(**{"suite": "smoke", "backend": "aten", "device": "xpu:0", "dtypes": ("f32",)} | more)  # type: ignore[arg-type]
    with pytest.raises(BadInput) as refused:
        check_options(options)
    assert str(refused.value).startswith(message)
