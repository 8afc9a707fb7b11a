"""What the benchmark of device contexts counts, and what it hides."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from benchmarks.executors import contexts
from benchmarks.executors.contexts import forked, hide, known_devices, lives_of, measured

from opsmith.runner.sandbox import landlock

INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 41
GPU UUID: \t GPU-0b6781961
Bus Location: \t 0000:00:06.0
Device Minor: \t {minor}
"""


def test_a_device_has_the_file_that_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is the driver's, not the place of its bus."""
    for minor, bus in enumerate(("0000:00:07.0", "0000:00:06.0")):
        (tmp_path / bus).mkdir()
        text = INFORMATION.format(minor=minor).replace("0b67", f"{minor}b67")
        (tmp_path / bus / "information").write_text(text)
    monkeypatch.setattr(contexts, "DRIVER", tmp_path)
    assert {"GPU-0b6781961": ("NVIDIA H200", "/dev/nvidia0"), "GPU-1b6781961": ("NVIDIA H200", "/dev/nvidia1")} == (
        known_devices()
    )


@pytest.mark.skipif(not landlock.limits_files(), reason="needs Landlock")
def test_what_is_hidden_is_all_that_is(tmp_path: Path) -> None:
    """As another device's file is: it is there, and cannot be opened."""

    def look(write_end: int) -> None:
        hide({"/dev/zero"})
        hidden = not os.access("/dev/zero", os.F_OK)
        for path in ("/dev/zero", "/dev/full", str(tmp_path / "mine")):
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT))
            except PermissionError:
                os.write(write_end, f"{path} ".encode())
        os.write(write_end, f"hidden {hidden}".encode())

    pid, read_end = forked(look)
    os.waitpid(pid, 0)
    with open(read_end, "rb") as stream:  # noqa: PTH123 - a descriptor
        assert b"/dev/zero hidden False" == stream.read()


def test_lives_are_counted_over_all_makers() -> None:
    """As many as fit into the time, and none that was not finished."""
    row = measured("cpu", [None], 2, 0.3, {})
    assert 0 == row["makers that failed"]
    assert row["lives"] >= 2
    assert row["lives_per_s"] == pytest.approx(row["lives"] / 0.3, rel=0.5)
    assert {"driver_ms", "context_ms", "end_ms"} == row["median_ms"].keys()


def test_a_process_that_makes_no_context_is_no_life() -> None:
    """A device that is not there ends the maker."""
    with pytest.raises(RuntimeError, match="could not be made"):
        next(lives_of("nowhere", None, set(), time.monotonic() + 10))
