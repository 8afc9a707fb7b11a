"""Bad input gets one clear line on stderr and exit status 2, and leaves nothing behind."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.report_runs import manifest, planned, verdict, write_run
from tests.shared_processes import shared_processes

from opsmith.cli import main
from opsmith.core.run import Options, RunDirectory

#: What a run that can be resumed was asked for; RESUME asks for the same.
OPTIONS = Options(suite="smoke", backend="aten", device="cpu", dtypes=("f32",), isolation="backend")
RESUME = ("run", "--backend", "aten", "--suite", "smoke", "--device", "cpu", "--timing", "off", "--resume", "-o", "run")

PROGRESS = re.compile(r"opsmith: \w+: \d+ of \d+")

Complaint = Callable[..., str]


@pytest.fixture
def complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Complaint:
    """Run the command line in an empty folder; the one line that it complains with.

    It ends with status 2, prints nothing on stdout, no traceback, and makes no file or folder.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments: str) -> str:
        before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
        monkeypatch.setattr(sys, "argv", ["opsmith", *arguments])
        with pytest.raises(SystemExit) as end:
            main.main()
        printed = capfd.readouterr()
        assert (2, "") == (end.value.code, printed.out)
        assert before == {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
        # On a slow machine the progress of what was started before stands above it.
        (line,) = [line for line in printed.err.splitlines() if not PROGRESS.match(line)]
        assert line.startswith("opsmith: ")
        return line

    return run


@pytest.fixture(scope="module")
def _shared() -> Iterator[None]:
    with shared_processes("smoke"):
        yield


def write_unfinished(path: Path) -> RunDirectory:
    """A run of OPTIONS that was killed after its second verdict."""
    verdicts = [verdict(number=number) for number in range(2)]
    run = write_run(
        path, [planned(cases=3)], verdicts, manifest(options=OPTIONS, finished_utc=None, seed=None, wall_s=None)
    )
    run.create(seed=7)
    return run


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--backend", "./nothing"), "there is no kernel directory nothing"),
        (("--backend", "nothing"), "no backend named 'nothing'"),
        (("--backend", "aten", "--device", "cpu", "--baseline", "cudagraphs"), "needs a CUDA device, not cpu"),
        (("--backend", "aten", "--suite", "opinfoo"), "did you mean opinfo?"),
        (("--backend", "aten", "--dtype", "bf17"), "no dtype named 'bf17'; did you mean bf16"),
        (("--backend", "aten", "--device", "my gpu"), "'my gpu' is not a torch device string"),
        (("--backend", "aten", "--device", "tpu"), "no device named 'tpu'; did you mean"),
        (("--backend", "aten", "--device", "meta"), "no device named 'meta'; there is: cpu, cuda, mps, xpu"),
        (("--backend", "aten", "--device", "mps"), "device mps cannot be used: judging needs Linux"),
        (("--backend", "not a module:thing"), "is not of the form package.module:attribute"),
        (("--backend", "aten", "--resume"), "--resume needs the run's directory"),
    ],
)
def test_a_name_that_does_not_exist_is_told_at_once(
    complaint: Complaint, arguments: tuple[str, ...], says: str
) -> None:
    """Before anything is started, with the closest names where there are any."""
    assert says in complaint("run", *arguments)


@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--backend", "aten", "--ops", "relu.defualt"), "did you mean relu.default"),
        (("--backend", "aten", "--dtype", "i64"), "has no case for dtype i64"),
        (("--backend", "aten", "--device", "cuda:99"), "device cuda:99 cannot be used"),
        (("--backend", "aten", "--case", "relu"), "'relu' is not a case address"),
        (("--backend", "aten", "--case", "smoke:relu:f32:sample:99:0"), "copy the address from verdicts.jsonl"),
        (("--backend", "no.such.module:thing"), "No module named 'no'"),
    ],
)
def test_a_name_that_only_torch_knows_leaves_no_run_directory(
    complaint: Complaint, arguments: tuple[str, ...], says: str
) -> None:
    """Ops, numbers of devices and cases are looked up in the processes that hold torch, before the run begins."""
    assert says in complaint("run", "--suite", "smoke", "--device", "cpu", *arguments, "-o", "run")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "--backend", "aten", "--jobs", "0"),
        ("run", "--backend", "aten", "--timing", "often"),
        ("run", "--backend", "aten", "--seed", "seven"),
        ("run", "--backend", "aten", "--no-such-flag"),
        ("chekc",),
    ],
)
def test_a_wrong_flag_is_explained(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The parser of flags shows the usage too, so its complaint has more than one line."""
    monkeypatch.setattr(sys, "argv", ["opsmith", *arguments])
    with pytest.raises(SystemExit) as end:
        main.main()
    printed = capfd.readouterr()
    assert (2, "") == (end.value.code, printed.out)
    assert "Usage: " in printed.err
    assert "Traceback" not in printed.err


# ---------------------------------------------------------------- files


def test_a_file_is_no_kernel_directory(complaint: Complaint, tmp_path: Path) -> None:
    """The complaint names the verb that judges a file."""
    (tmp_path / "kernels.txt").touch()
    assert "use `opsmith check kernels.txt" in complaint("run", "--backend", "kernels.txt")


def test_a_damaged_manifest_is_told_with_its_place(complaint: Complaint, tmp_path: Path) -> None:
    """Line and column, as a person with an editor open wants it."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "manifest.json").write_text('{"kernels": {\n')
    assert "manifest.json is no JSON at line 2 column 1" in complaint("run", "--backend", "./kernels")


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None], ids=["a directory", "nothing"])
def test_a_kernel_file_that_cannot_be_read_is_named(
    complaint: Complaint, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """Before anything is started."""
    make(tmp_path / "kernel.py")
    assert "kernel.py cannot be read" in complaint("check", "kernel.py", "--task", "relu.default")


def test_a_run_directory_is_never_written_over(complaint: Complaint, tmp_path: Path) -> None:
    """Not even when it holds only somebody's notes."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    assert "run exists and is not empty" in complaint("run", "--backend", "aten", "-o", "run")


def test_a_run_directory_below_a_file_cannot_be_made(complaint: Complaint, tmp_path: Path) -> None:
    """The complaint names the directory."""
    (tmp_path / "file").touch()
    arguments = ("--backend", "aten", "--suite", "smoke", "--device", "cpu", "--ops", "relu")
    assert "file/run cannot be made" in complaint("run", *arguments, "-o", "file/run")


# ---------------------------------------------------------------- run directories


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("run.json", None, "is not a run directory"),
        ("run.json", b"{", "run.json is damaged"),
        ("run.json", b"\xff\xfe", "run.json is damaged"),
        ("plan.json", None, "plan.json is missing"),
        ("plan.json", b"[]", "plan.json is damaged"),
        ("verdicts.jsonl", b"{}\n", "verdicts.jsonl line 1 is damaged"),
        ("verdicts.jsonl", b"\xff\n", "verdicts.jsonl line 1 is damaged"),
    ],
)
def test_a_damaged_run_is_not_reported(
    complaint: Complaint, tmp_path: Path, file: str, content: bytes | None, says: str
) -> None:
    """The complaint names the file, the damage and how to go on."""
    run = write_run(tmp_path / "run", [planned()], [verdict()])
    if content is None:
        (run.path / file).unlink()
    else:
        (run.path / file).write_bytes(content)
    assert says in complaint("report", "run")


def test_a_file_of_the_run_that_cannot_be_read_is_named(complaint: Complaint, tmp_path: Path) -> None:
    """A directory stands where the verdicts should."""
    run = write_run(tmp_path / "run", [planned()], [])
    run.verdicts_path.unlink()
    run.verdicts_path.mkdir()
    assert "verdicts.jsonl cannot be read: Is a directory" in complaint("report", "run")


def test_a_finished_run_is_not_resumed(complaint: Complaint, tmp_path: Path) -> None:
    """There is nothing left to judge."""
    run = write_run(tmp_path / "run", [planned(cases=1)], [verdict()], manifest(options=OPTIONS))
    (run.path / "report.html").touch()
    assert "is a finished run" in complaint(*RESUME)


def test_a_run_is_resumed_with_its_own_options_only(complaint: Complaint, tmp_path: Path) -> None:
    """Verdicts of two questions never share a file."""
    write_unfinished(tmp_path / "run")
    assert "was started with other options" in complaint(*RESUME, "--dtype", "bf16")
    assert "was started with another seed" in complaint(*RESUME, "--seed", "8")


@pytest.mark.parametrize(("content", "says"), [(None, ".seed is missing"), ("seven", ".seed is damaged")])
def test_a_run_without_its_seed_is_not_resumed(
    complaint: Complaint, tmp_path: Path, content: str | None, says: str
) -> None:
    """Its other cases would have other values than those judged already."""
    run = write_unfinished(tmp_path / "run")
    run.forget_seed()
    if content is not None:
        (run.path / ".seed").write_text(content)
    assert says in complaint(*RESUME)


def test_a_directory_that_is_no_run_is_not_resumed(complaint: Complaint, tmp_path: Path) -> None:
    """Nor is one that does not exist."""
    assert "run is not a run directory" in complaint(*RESUME)
    (tmp_path / "run").mkdir()
    assert "run is not a run directory" in complaint(*RESUME)


def test_kernels_are_compiled_for_a_gpu_that_is_named_or_there(complaint: Complaint) -> None:
    """And for ops and dtypes that exist."""
    if not Path("/proc/driver/nvidia/version").exists():
        assert "--arch 90" in complaint("prewarm", "--ops", "relu")
    assert "no shipped kernel matches 'nothing'" in complaint("prewarm", "--ops", "nothing", "--arch", "90")
    assert "no dtype named 'f17'" in complaint("prewarm", "--dtype", "f17", "--arch", "90")
