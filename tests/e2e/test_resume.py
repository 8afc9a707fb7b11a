"""A run that is killed continues where it was, and ends as if nothing had happened."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.hostile_runs import processes_with_environment

from opsmith.core.run import RunDirectory

#: Folder of a smoke op -> the body of its kernel; slow enough that a kill meets it at work.
KERNELS = {
    "relu__default": "os.fork() or daemon(); time.sleep(0.2); return torch.ops.aten.relu.default(*args)",
    "gelu__default": "time.sleep(0.2); os._exit(0)",
    "exp__default": "raise ValueError",
    "mul__Tensor": "time.sleep(0.2); return torch.ops.aten.mul.Tensor(*args)",
    "where__self": "time.sleep(0.2); return torch.ops.aten.where.self(*args).double()",
    "clamp__default": "time.sleep(60)",
}
#: What a kernel leaves behind: a process in a session of its own that ignores its parent's end.
DAEMON = "def daemon(): os.setsid(); time.sleep(600); os._exit(0)"
#: An op whose kernel hangs while it is imported.
HANGING = "cat__default"

#: The run, as a process that can be killed. Arguments: the kernels, the run directory, more arguments of ``evaluate``.
JUDGE = """
import json, sys
from pathlib import Path
from opsmith.core.run import Options
from opsmith.pipeline import evaluate
from opsmith.runner.processes.worker_link import Limits

options = Options(suite="smoke", backend=sys.argv[1], device="cpu", dtypes=("f32",))
evaluate(options, Path(sys.argv[2]), jobs=2, limits=Limits(load_s=1.0, call_s=2.0), **json.loads(sys.argv[3]))
"""

MAX_WAIT_S = 120.0


@dataclass(frozen=True)
class Killed:
    """The same run twice: once in peace, once killed again and again.

    Attributes:
        undisturbed: the run directory of the first.
        resumed: of the second.
        half_way: a copy of the second after one of its kills.
        prefixes: its verdicts file after each kill.
        survivors: after each kill, the processes that lived on.
    """

    undisturbed: RunDirectory
    resumed: RunDirectory
    half_way: Path
    prefixes: list[bytes]
    survivors: list[list[str]]


def start(kernels: Path, out: Path, **arguments: object) -> subprocess.Popen[bytes]:
    """Start a judge whose processes can be told by the name of ``kernels``' parent in their environment."""
    return subprocess.Popen(
        [sys.executable, "-c", JUDGE, str(kernels), str(out), msgspec.json.encode(arguments).decode()],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(kernels.parent), "HOME": str(kernels.parent)},
    )


def kill_after(judge: subprocess.Popen[bytes], path: Path, lines: int) -> None:
    """SIGKILL the judge as soon as ``path`` exists with so many lines."""
    deadline = time.monotonic() + MAX_WAIT_S
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert judge.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    judge.kill()
    assert -signal.SIGKILL == judge.wait()


def survivors(marker: Path) -> list[str]:
    """The processes with ``marker`` in their environment that do not end within two seconds."""
    deadline = time.monotonic() + 2
    while (alive := processes_with_environment(str(marker).encode())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """One run in peace; one that is killed at its start, twice half-way, and with a torn last line."""
    folder = tmp_path_factory.mktemp("resume")
    kernels = folder / "kernels"
    for name, body in (*KERNELS.items(), (HANGING, "")):
        (kernels / name).mkdir(parents=True)
        head = "while True: pass" if name == HANGING else f"import os, time, torch\n{DAEMON}"
        source = f"{head}\ndef {name}_kernel_impl(*args, **kwargs):\n    {body or 'pass'}\n"
        (kernels / name / f"{name}_implementation_v1.py").write_text(source)
    assert 0 == start(kernels, folder / "undisturbed", seed=3).wait(MAX_WAIT_S)

    out, verdicts = folder / "resumed", folder / "resumed" / "verdicts.jsonl"
    prefixes: list[bytes] = []
    alive: list[list[str]] = []
    for path, lines, resume in ((out / "run.json", 0, False), (verdicts, 2, True), (verdicts, 9, True)):
        kill_after(start(kernels, out, seed=3, resume=resume), path, lines)
        alive.append(survivors(folder))
        prefixes.append(verdicts.read_bytes() if verdicts.exists() else b"")
        with verdicts.open("ab") as stream:
            stream.write(b'{"op":"relu.defau')
    shutil.copytree(out, folder / "half_way")
    assert 0 == start(kernels, out, seed=3, resume=True).wait(MAX_WAIT_S)
    return Killed(RunDirectory(folder / "undisturbed"), RunDirectory(out), folder / "half_way", prefixes, alive)


@pytest.mark.corpus
def test_a_killed_run_resumes_to_the_identical_summary(killed: Killed) -> None:
    """Byte for byte, whatever the kernels did: pass, raise, crash, hang in a call or hang while loading."""
    expected = (killed.undisturbed.path / "summary.json").read_bytes()
    assert expected == (killed.resumed.path / "summary.json").read_bytes()
    assert {"POLICY", "WRONG_DTYPE", "ERROR", "CRASHED", "TIMEOUT", "NOT_RUN"} == set(killed.resumed.summary().statuses)


@pytest.mark.corpus
def test_nothing_is_judged_twice(killed: Killed) -> None:
    """What was found before a kill stays in the file as it was, and each case has one verdict."""
    final = killed.resumed.verdicts_path.read_bytes()
    for prefix in killed.prefixes:
        assert final.startswith(prefix[: prefix.rindex(b"\n") + 1] if prefix else b"")
    counts = Counter(verdict.case for verdict in killed.resumed.verdicts())
    assert {1} == set(counts.values())
    assert {verdict.case for verdict in killed.undisturbed.verdicts()} == set(counts)


@pytest.mark.corpus
def test_a_resumed_run_says_how_often_it_was_resumed(killed: Killed) -> None:
    """Its manifest counts the starts after the first; the seed is the first start's."""
    manifest = killed.resumed.manifest()
    assert (3, 3) == (manifest.resumed, manifest.seed)
    assert manifest.finished_utc is not None
    stages = {"starting", "importing the suite", "enumerating", "planning", "judging", "timing"}
    assert stages | {"writing the report"} == set(manifest.stages_s)


@pytest.mark.corpus
def test_no_process_survives_a_judge_that_is_killed(killed: Killed) -> None:
    """Zygotes, referees, workers and what they were running end with it, and take their scratch folder along."""
    assert [[], [], []] == killed.survivors
    assert [] == list(killed.half_way.parent.glob("opsmith-*"))


@pytest.mark.corpus
def test_a_torn_last_line_is_set_aside(killed: Killed) -> None:
    """A killed writer leaves half a line; it is no verdict, and no other line is glued to it."""
    asides = sorted(killed.resumed.path.glob("verdicts.damaged-*.jsonl"))
    assert [b'{"op":"relu.defau'] * 3 == [aside.read_bytes()[-17:] for aside in asides]


@pytest.mark.corpus
def test_a_damaged_line_keeps_what_is_before_it_and_sets_the_rest_aside(killed: Killed, tmp_path: Path) -> None:
    """Nothing is lost: the file and the side file together are what was there."""
    run = RunDirectory(Path(shutil.copytree(killed.half_way, tmp_path / "run")))
    lines = killed.prefixes[-1].splitlines(keepends=True)
    damaged = b"".join([*lines[:3], b"\x00garbage\xff\n", *lines[4:]])
    run.verdicts_path.write_bytes(damaged)
    kept, aside = run.recover()
    assert 3 == len(kept)
    assert b"".join(lines[:3]) == run.verdicts_path.read_bytes()
    assert aside is not None
    assert damaged == run.verdicts_path.read_bytes() + aside.read_bytes()


@pytest.mark.corpus
def test_a_finished_run_with_a_damaged_verdict_can_be_taken_up_again(killed: Killed, tmp_path: Path) -> None:
    """The cases from the damage on are judged again, with the same values and so to the same summary."""
    run = RunDirectory(Path(shutil.copytree(killed.undisturbed.path, tmp_path / "run")))
    expected = (run.path / "summary.json").read_bytes()
    lines = run.verdicts_path.read_bytes().splitlines(keepends=True)
    run.verdicts_path.write_bytes(b"".join([*lines[:8], b"garbage\n", *lines[9:]]))
    assert 0 == start(killed.undisturbed.path.parent / "kernels", run.path, resume=True).wait(MAX_WAIT_S)
    assert expected == (run.path / "summary.json").read_bytes()
    assert lines[:8] == run.verdicts_path.read_bytes().splitlines(keepends=True)[:8]
