"""Kinds of devices without the devices: torch's modules for them are stand-ins here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opsmith import devices
from opsmith.calls.seeding import random_state
from opsmith.cli import selection
from opsmith.cli.selection import parse_device
from opsmith.core.kernel import SHIPPED_KERNELS, Kernel, Loader
from opsmith.core.run import Options, Selection
from opsmith.devices import DeviceKind, cuda, kind_of
from opsmith.devices import xpu as xpu_module
from opsmith.devices.cpu import Cpu
from opsmith.devices.cuda import Cuda, Rocm
from opsmith.devices.kind import UNKNOWN_CACHE_BYTES
from opsmith.devices.mps import Mps
from opsmith.devices.xpu import Xpu
from opsmith.dispatch.choice.trial import _on_device
from opsmith.dispatch.install import _readiness
from opsmith.dispatch.kernel_set import runs_on
from opsmith.errors import BadInput, UsageError
from opsmith.evaluation.integrity.supervision import Supervision
from opsmith.evaluation.roofline import ceilings
from opsmith.evaluation.roofline.ceilings import measure_ceilings
from opsmith.evaluation.timing import blocks, cuda_graphs
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.evaluation.timing.single_calls import launch_ms, runtime_ms
from opsmith.evaluation.timing.statistics import quantities_on
from opsmith.pipeline import check_options
from opsmith.runner.child.contexts import open_device
from opsmith.runner.machine.environment import device_memory, workers_that_fit
from opsmith.runner.machine.gpus import first_device
from opsmith.runner.processes.children import _plain_environment, _scrubbed_environment
from opsmith.runner.protocol.out_of_memory import is_oom
from opsmith.runner.referee.server import Referee
from opsmith.runner.worker.execution import raised
from opsmith.tasks.problem import record_call

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
GPU_BYTES, CACHE_BYTES = 48 << 30, 408 << 20


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is known yet, and no variable hides a device."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    devices._kind.cache_clear()
    selection._say_untested.cache_clear()
    yield
    devices._kind.cache_clear()


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rocm:
    """A torch that was built for ROCm is installed."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("from typing import Optional\nhip: Optional[str] = '6.4.1'\n")
    spec = SimpleNamespace(origin=str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    kind = kind_of("cuda")
    assert isinstance(kind, Rocm)
    return kind


class Event:
    """An event of two milliseconds."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _end: Event) -> float:
        return 2.0


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that are asked for on a device are made on the host."""
    for name in ("zeros", "randn", "empty"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, device=None, real=real, **k: real(*a, **k))


@pytest.fixture
def intel(monkeypatch: pytest.MonkeyPatch, on_host: None) -> None:
    """``torch.xpu`` with a device."""
    properties = SimpleNamespace(total_memory=GPU_BYTES, last_level_cache_size=CACHE_BYTES, uuid="8680")
    answers: dict[str, Any] = {
        "Event": Event,
        "device": lambda _device: nullcontext(),
        "device_count": lambda: 2,
        "get_device_name": lambda _device: "Intel(R) Data Center GPU Max 1550",
        "get_device_properties": lambda _device: properties,
        "mem_get_info": lambda _device: (GPU_BYTES - 1, GPU_BYTES),
        "get_rng_state": lambda _device: torch.tensor([7]),
        "memory_stats_as_nested_dict": lambda _device: {"allocated_bytes": {"all": {"current": 5, "peak": 9}}},
        "reset_peak_memory_stats": lambda _device: None,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.xpu, name, answer)


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch, on_host: None) -> None:
    """``torch.mps`` with a device."""
    answers: dict[str, Any] = {
        "Event": Event,
        "device_count": lambda: 1,
        "recommended_max_memory": lambda: GPU_BYTES,
        "driver_allocated_memory": lambda: 1 << 30,
        "get_rng_state": lambda: torch.tensor([8]),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.mps, name, answer)


# ---------------------------------------------------------------- which there are


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


def test_rocm_is_what_cuda_means_to_a_torch_that_was_built_for_it(rocm: Rocm) -> None:
    """Torch keeps the device type; nothing of NVIDIA's driver serves it, and it is untested."""
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


NPU = """
from opsmith.devices import DeviceKind

class Npu(DeviceKind):
    type = "npu"
    label = "Some accelerator"
    visible_variable = "NPU_VISIBLE_DEVICES"

    def register(self):
        import types, torch
        torch.utils.rename_privateuse1_backend("npu")
        module = types.ModuleType("torch.npu")
        module.device_count = lambda: 3
        module.get_device_name = lambda device: "npu one"
        torch._register_device_module("npu", module)
"""
USE_NPU = """
import torch
from opsmith.devices import kind_of
from opsmith.evaluation.integrity.poison import dispatch_keys
kind = kind_of("npu:1")
kind.register()
device = torch.device("npu:1")
print(kind.count(), kind.name(device), torch._C._dispatch_key_for_device(device.type))
"""


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a kind of its own, installed as pip would."""
    information = tmp_path / "npu_kind-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: npu_kind\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[opsmith.devices]\nnpu = npu_kind:Npu\ncuda = npu_kind:Npu\n")
    (tmp_path / "npu_kind.py").write_text(NPU)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


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


# ---------------------------------------------------------------- choosing one


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


# ---------------------------------------------------------------- isolation


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


# ---------------------------------------------------------------- contexts and memory


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


# ---------------------------------------------------------------- the clock


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


# ---------------------------------------------------------------- ceilings


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


# ---------------------------------------------------------------- random numbers


def test_a_devices_random_state_is_seen(intel: None, apple: None) -> None:
    """A call that draws on the device changes it."""
    for name, state in (("xpu", 7), ("mps", 8)):
        host, own = random_state(torch.device(name))
        assert torch.equal(torch.get_rng_state(), host)
        assert torch.equal(torch.tensor([state]), own)
    assert 1 == len(random_state(torch.device("cpu")))


# ---------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("dsl", "runs"),
    [
        ("torch", {"cpu", "cuda", "mps", "xpu"}),
        ("triton", {"cuda", "xpu"}),
        ("cuda", {"cuda"}),
        ("tilelang", {"cuda"}),
        ("metal", {"cpu", "cuda", "mps"}),
    ],
)
def test_a_language_runs_where_it_has_a_launcher(dsl: str, runs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal declines by itself where there is no Apple GPU, as before there were kinds."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert runs == {name for name in ("cpu", "cuda", "mps", "xpu") if runs_on(_kernel(dsl, Path("mine")), name)}


def test_cudas_own_languages_do_not_run_on_rocm(rocm: Rocm) -> None:
    """Triton does."""
    assert [True, False] == [runs_on(_kernel(dsl, Path("mine")), "cuda") for dsl in ("triton", "cutedsl")]


def test_shipped_kernels_are_for_cuda() -> None:
    """They decline other tensors, each time."""
    assert ["cuda"] == [name for name in ("cuda", "mps", "xpu") if runs_on(_kernel("triton", SHIPPED_KERNELS), name)]


def _kernel(dsl: str, root: Path) -> Kernel:
    return Kernel(task="relu.default", backend="b", loader=Loader.FILE, entry="relu.py:relu", dsl=dsl, root=str(root))


@pytest.mark.parametrize(("device", "key"), [("xpu", "XPU"), ("mps", "MPS"), ("cuda", "CUDA")])
def test_what_is_forbidden_is_so_under_the_key_of_the_device(device: str, key: str) -> None:
    """Under that key kernels are registered, torch's and those that take their place."""
    assert ("CPU", key) == Supervision(torch.device(device), lambda _line, _offence: None)._devices


@pytest.mark.parametrize(("device", "waits"), [("xpu", True), ("mps", True), ("cuda", True), ("cpu", False)])
def test_a_trial_waits_for_any_device(device: str, *, waits: bool) -> None:
    """Else the time of a launch would be that of a call."""
    assert waits is _on_device(SimpleNamespace(device=torch.device(device)))  # type: ignore[arg-type]


def test_kernels_are_compiled_elsewhere_for_nvidias_gpus_alone(rocm: Rocm) -> None:
    """The processes that compile ahead write for NVIDIA's."""
    serving: Any = SimpleNamespace(device_type="cuda", record=_kernel("triton", SHIPPED_KERNELS))
    assert _readiness(serving, wait=False)("key", (), {})
