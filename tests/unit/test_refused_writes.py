"""A full disk, a read-only folder and too many open files: one line that says what to do, and nothing is lost."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.unit.runner.fleet_stand_ins import job

from opsmith import pipeline
from opsmith.cli.main import _guarded
from opsmith.core import storage
from opsmith.core.run import Options, RunDirectory, TimedCase, write_atomically
from opsmith.core.storage import is_about_storage, wait_for_room
from opsmith.errors import BadInput, MachineFailed, NoDeviceMemory
from opsmith.runner.judge.slot import Slot

OPTIONS = Options(suite="smoke", backend="aten", device="cpu", dtypes=("f32",))
TIMED = TimedCase(op="relu.default", case="smoke:relu:f32", kernel="0", timings=())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/proc/x"), "No space left on device (disk /proc, "),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/proc/x"), "Disk quota exceeded (disk /proc, "),
        (OSError(errno.EROFS, "Read-only file system", "/proc/x"), "choose a folder that can be written to"),
        (PermissionError(errno.EACCES, "Permission denied", "/proc/x"), "choose a folder that can be written to"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit (`ulimit -n 65536`)"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room"),
    ],
)
def test_what_a_disk_refuses_is_one_line(error: OSError, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the file, the disk and what to do; a verb that resumes says so, and the status is 2."""

    def fails(*, resume: bool = False) -> int:
        raise error

    def starts_again() -> int:
        raise error

    for verb, ending in ((fails, "then continue with --resume and the same -o"), (starts_again, "repeat the command")):
        with pytest.raises(typer.Exit) as ended:
            _guarded(verb)()
        said = capsys.readouterr().err
        assert 2 == ended.value.exit_code
        assert says in said
        assert said.endswith(f"{ending}\n")
        assert 1 == said.count("\n")
        assert "Traceback" not in said
        assert ("/proc/x cannot be written" in said) is (error.filename is not None)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (
            MachineFailed("no process; see to its limits"),
            3,
            "no process; see to its limits, then continue with --resume",
        ),
        (NoDeviceMemory("cuda"), 2, "or ask for less with --jobs 1, then continue with --resume"),
    ],
)
def test_what_a_machine_lacks_ends_in_how_to_go_on(
    error: Exception, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a verb that can be resumed; a broken machine has status 3, one that others use 2."""

    def fails(*, resume: bool = False) -> int:
        raise error

    with pytest.raises(typer.Exit) as ended:
        _guarded(fails)()
    assert status == ended.value.exit_code
    assert says in capsys.readouterr().err


def test_a_record_that_does_not_fit_is_not_there_at_all(tmp_path: Path) -> None:
    """A part of a line would damage the next one."""
    run = RunDirectory(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with run.appender("timings.jsonl") as append:
        append(TIMED)
        whole = (tmp_path / "timings.jsonl").read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, before[1]))
        try:
            with pytest.raises(OSError, match=r"timings\.jsonl"):
                append(TIMED)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert whole == (tmp_path / "timings.jsonl").read_bytes()
        append(TIMED)
    assert [TIMED] * 2 == list(run.timed_cases())


def test_a_document_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's error does not say which file it was."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=r"run\.json") as caught:
        write_atomically(tmp_path / "run.json", b"{}")
    assert str(tmp_path / "run.json") == caught.value.filename
    assert not list(tmp_path.iterdir())


def test_a_run_that_did_not_get_to_its_first_document_is_resumed_from_the_start(tmp_path: Path) -> None:
    """As the line on a full disk says."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / ".seed").write_text("1")
    _, before, verdicts = pipeline.open_run(tmp_path, OPTIONS, resume=True)
    assert before is None
    assert not verdicts
    (tmp_path / "other").write_text("")
    with pytest.raises(BadInput, match="not a run directory"):
        pipeline.open_run(tmp_path, OPTIONS, resume=True)


@pytest.fixture
def slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A slot without processes, in folders of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    link = SimpleNamespace(retire=lambda: None, close=lambda: None)
    return Slot(link, link, SimpleNamespace(folder=tmp_path), OPTIONS, 0, None)  # type: ignore[arg-type]


def test_a_verdict_that_was_for_want_of_room_is_asked_again(slot: Slot, tmp_path: Path) -> None:
    """What the kernel has built is removed before: it may have filled the disk itself."""
    asked = job("relu", 1)
    built = tmp_path / "opsmith" / "builds" / asked.kernel.build_name
    built.mkdir(parents=True)
    assert not slot._waited_for_room(asked, "ValueError: no", "Traceback")
    assert built.exists()
    assert slot._waited_for_room(asked, "OSError", "OSError: [Errno 28] No space left on device: '/tmp/x'")
    assert not built.exists()


def test_no_verdict_is_made_of_a_full_disk(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the kernel nor eager is to blame; the run ends, and is resumed."""
    monkeypatch.setattr(storage, "PROBE_BYTES", 1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr("opsmith.runner.judge.slot.wait_for_room", lambda folders: wait_for_room(folders, patience_s=0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match=str(slot.spool.folder)):
            slot._waited_for_room(job("relu", 1), "No space left on device")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert is_about_storage("RuntimeError: Read-only file system")


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    """The second one says so, and changes nothing; when the first one is gone the run goes on."""
    run = RunDirectory(tmp_path / "run")
    run.create(1, anew=True)
    run.create(1)
    with run.claimed():
        with pytest.raises(BadInput, match="another process writes to"):
            run.create(2, anew=True)
        with pytest.raises(BadInput, match="another process writes to"), RunDirectory(run.path).claimed():
            pass
    with RunDirectory(run.path).claimed():
        assert 1 == run.stored_seed()
    (run.path / "run.json").write_text("{}")
    run.forget_seed()
    with pytest.raises(BadInput, match="another process writes to"):
        run.create(3, anew=True)
