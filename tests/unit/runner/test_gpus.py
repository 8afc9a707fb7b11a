"""Which GPUs' files a worker is kept from, and whether that can be."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsmith.core.run import Options
from opsmith.core.verdict import Status
from opsmith.errors import BadInput, RefereeFailed
from opsmith.runner.judge import device_lane
from opsmith.runner.judge.device_lane import DeviceLane, open_here
from opsmith.runner.machine import gpus
from opsmith.runner.machine.gpus import can_do_without, files_of_others, first_device, known_devices
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.lane import LaneWork
from opsmith.runner.sandbox import landlock
from opsmith.whole_models import judging
from opsmith.whole_models.judging import ModelJudge, ModelLimits
from opsmith.whole_models.processes import Unanswered

INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 41
GPU UUID: \t {uuid}
Bus Location: \t 0000:00:06.0
Device Minor: \t {minor}
"""
#: A driver that needs a file to start.
STAND_IN = """
#include <fcntl.h>
#include <stdlib.h>
int cuInit(unsigned flags) { return open(getenv("NEEDED"), O_RDWR) < 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
"""


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver says of two devices, whose numbers are not in the order of their buses."""
    for minor, bus in enumerate(("0000:00:07.0", "0000:00:06.0")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(INFORMATION.format(uuid=f"GPU-{minor}", minor=minor))
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)


def test_a_device_has_the_file_that_the_driver_names() -> None:
    """Its number is the driver's, not the place of its bus."""
    assert {"GPU-0": ("NVIDIA H200", "/dev/nvidia0"), "GPU-1": ("NVIDIA H200", "/dev/nvidia1")} == known_devices()


@pytest.mark.parametrize(
    ("visible", "others"),
    [
        ("GPU-0", {"/dev/nvidia1"}),
        ("GPU-1", {"/dev/nvidia0"}),
        ("GPU-0, GPU-1", set()),
        ("0", set()),
        ("MIG-0", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_only_uuids_say_which_devices_are_others(visible: str | None, others: set[str]) -> None:
    """A number counts the devices that the driver can open, and would mean another one when some are out of reach."""
    assert others == files_of_others(visible)


@pytest.mark.parametrize(
    ("device", "visible", "first"),
    [
        ("cuda", "GPU-1,GPU-0", "GPU-1"),
        ("cuda", "GPU-1", None),
        ("cuda", "", None),
        ("cuda:1", "GPU-1,GPU-0", None),
        ("cpu", "GPU-1,GPU-0", None),
    ],
)
def test_processes_of_one_device_see_the_first_that_is_visible(
    device: str, visible: str, first: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless there is no other one, or it was named by its number."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert first == first_device(device)


@pytest.mark.parametrize(("suite", "seen"), [("smoke", "GPU-1"), ("distributed", None)])
def test_a_lane_gets_one_device_but_for_ranks(
    suite: str, seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank has a device of its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-0")
    asked: dict[str, Any] = {}

    def start(_device: str, **options: Any) -> Any:
        asked.update(options)
        raise RefereeFailed("no device here")

    monkeypatch.setattr(device_lane, "start_processes", start)
    options = Options(suite=suite, backend="opsmith", device="cuda", dtypes=("f32",))
    with pytest.raises(RefereeFailed), open_here(LaneWork(options=options, seed=1)):
        pass
    assert seen == asked["visible"]


def test_whole_models_are_judged_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kernels are."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-0")
    asked: list[dict[str, str]] = []

    def refused(_log: Path, seen: dict[str, str]) -> Any:
        asked.append(seen)
        raise Unanswered(Status.CRASHED, "no device here")

    monkeypatch.setattr(judging, "process", refused)
    options = Options(suite="models", backend="inductor", device="cuda", dtypes=("f32",))
    with pytest.raises(BadInput, match="no device here"):
        ModelJudge(options, limits=ModelLimits())
    assert [{"CUDA_VISIBLE_DEVICES": "GPU-1"}] == asked


@pytest.mark.skipif(not landlock.limits_files(), reason="needs Landlock")
def test_a_driver_that_needs_what_is_hidden_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried out, with these files out of reach and no others."""
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text(STAND_IN)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for needed, starts in ((source, True), ("/dev/full", True), ("/dev/zero", False)):
        monkeypatch.setenv("NEEDED", str(needed))
        assert starts is can_do_without({"/dev/zero"})


def test_nothing_is_hidden_where_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial fails, as it does without Landlock; of one device there are no others."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    assert not can_do_without({"/dev/zero"})
    assert not can_do_without(())
    monkeypatch.setattr(gpus, "limits_files", lambda: False)
    assert not can_do_without({"/dev/zero"})


@pytest.mark.parametrize("starts", [True, False])
def test_workers_of_a_lane_are_kept_from_other_devices(
    *, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the driver starts nevertheless."""
    monkeypatch.setattr(device_lane, "can_do_without", lambda files: starts and {"/dev/nvidia0"} == files)
    options = Options(suite="smoke", backend="opsmith", device="cuda", dtypes=("f32",))
    processes: Any = SimpleNamespace(scratch=tmp_path, worker_limit=0, visible="GPU-1")
    lane = DeviceLane(processes, LaneWork(options=options, seed=1, jobs=2))
    for slot in lane._slots:
        assert isinstance(slot.worker, WorkerLink)
        assert (("/dev/nvidia0",) if starts else ()) == slot.worker.nursery._reach.hidden
