"""One run, ended again and again at random moments, has to end as one that nobody disturbed.

    python -m benchmarks.chaos.runs --seed 1 --kills 50 --interrupts 20 --losses 10 -o FOLDER

The run judges honest kernels, wrong ones and hostile ones on the smoke suite. It is made once in peace. Then it is
resumed until each fault, in an order drawn from the seed, has happened: SIGKILL of the judge, Ctrl-C (SIGINT), and
SIGKILL of the zygote below it, after which the judge has to go on by itself. Each comes at a random moment of its
start. Beside every start but those, a second process is started on the same directory, which has to be refused or to
end as the first. In the end the summary has to be the one of the run in peace, byte for byte, no case may have two
verdicts, and nothing may be left: no process, no file in the temporary folder, nothing in shared memory. FOLDER gets
``record.jsonl`` with a line for each start, ``record.json`` and ``run.json``. Exit status 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.record import write_record

from opsmith.core.run import RunDirectory
from opsmith.errors import BadInput
from opsmith.runner.machine.process_times import children_of

#: Folder of a smoke op -> the body of its kernel; slow enough that a fault meets them at work.
KERNELS = {
    "relu__default": "time.sleep(0.1); return torch.ops.aten.relu.default(*args)",
    "mul__Tensor": "os.fork() or daemon(); return torch.ops.aten.mul.Tensor(*args)",
    "where__self": "time.sleep(0.1); return torch.ops.aten.where.self(*args).double()",
    "exp__default": "raise ValueError",
    "gelu__default": "time.sleep(0.1); os._exit(0)",
    "clamp__default": "bomb()",
}
HEAD = """
import os, time, torch

def daemon():
    os.setsid()
    time.sleep(600)
    os._exit(0)

def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
#: A start that nothing ends takes no longer.
MOST_S = 600.0
#: What processes get to end after their judge.
ENDING_S = 10.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is looked at

#: A second process on the directory of a run is refused by one of these, unless it comes when the first has ended.
REFUSED = ("another process writes to", "is a finished run", "is not a run directory")


class Chaos:
    """The run and what disturbs it.

    Args:
        root: an empty folder, which all of it lies below.
        out: takes the record.
        seed: of the faults.
    """

    def __init__(self, root: Path, out: Path, *, seed: int) -> None:
        self._root, self._out = root, out
        self._rng = random.Random(seed)  # noqa: S311 - the same faults for a seed
        self._kernels = root / "kernels"
        for name, body in KERNELS.items():
            (self._kernels / name).mkdir(parents=True)
            source = f"{HEAD}\n\ndef {name}_kernel_impl(*args, **kwargs):\n    {body}\n"
            (self._kernels / name / f"{name}_implementation_v1.py").write_text(source)
        for name in ("tmp", "cache"):
            (root / name).mkdir()
        self._shared = {path.name for path in SHARED_MEMORY.iterdir()}
        self.broken: list[str] = []

    def run(self, kills: int, interrupts: int, losses: int, most_s: float) -> dict[str, Any]:
        """Make the run in peace, then with so many faults, none of which begins after ``most_s``; what was found."""
        began = time.monotonic()
        peace, seconds = self._peace()
        faults = ["kill"] * kills + ["interrupt"] * interrupts + ["lose the zygote"] * losses
        self._rng.shuffle(faults)
        met: Counter[str] = Counter()
        runs, number = 0, 0
        while faults and time.monotonic() - began < most_s:
            path = self._root / f"run-{runs}"
            fault = faults[-1]
            ended = self._start(path, fault, seconds, first=not path.exists())
            met[ended] += 1
            if ended == fault:  # It did not come too late.
                faults.pop()
            number += 1
            if self._is_finished(path):
                self._compare(peace, path)
                runs += 1
        path = self._root / f"run-{runs}"
        if path.exists():
            self._start(path, "none", seconds, first=False)
            self._compare(peace, path)
            runs += 1
        left = self._left()
        self.broken += [f"left: {one}" for one in left]
        return {
            "holds": not self.broken,
            "broken": self.broken,
            "starts": number,
            "runs": runs,
            "ended by": dict(met),
            "verdicts of each run": len(list(RunDirectory(peace).verdicts())),
            "seconds in peace": round(seconds, 1),
            "seconds": round(time.monotonic() - began, 1),
        }

    def _peace(self) -> tuple[Path, float]:
        path = self._root / "peace"
        began = time.monotonic()
        with self._judge(path, "--seed", "3") as judge:
            said = self._said(judge)
        if not self._is_finished(path):
            raise SystemExit(f"the run in peace did not end: {said}")
        return path, time.monotonic() - began

    def _judge(self, path: Path, *options: str) -> subprocess.Popen[str]:
        asked = ["--suite", "smoke", "--backend", str(self._kernels), "--dtype", "f32", "--device", "cpu"]
        asked += ["--timing", "off", "--jobs", "2", "-o", str(path), *options]
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-c", "from opsmith.cli.main import main; main()", "run", *asked],
            env={
                **os.environ,
                "TMPDIR": str(self._root / "tmp"),
                "XDG_CACHE_HOME": str(self._root / "cache"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _start(self, path: Path, fault: str, seconds: float, *, first: bool) -> str:
        """One start of the run with one fault; what ended it."""
        after_s = self._rng.uniform(0.0, seconds)
        options = ("--seed", "3") if first else ("--resume",)
        began = time.monotonic()
        with self._judge(path, *options) as judge:
            second = self._rng.random() < 0.3 and fault != "lose the zygote"
            other = self._judge(path, *options) if second else None
            happened = self._disturb(judge, fault, after_s)
            said = self._said(judge)
            if other is not None:
                self._check_second(other)
        ended = happened if judge.returncode not in (0, 1) or fault == "lose the zygote" else "its end"
        expected = {"kill": (-signal.SIGKILL, 0, 1), "interrupt": (130, 0, 1)}.get(fault, (0, 1))
        if other is not None:
            expected = (*expected, 2)  # The second one was first.
        line = {
            "fault": fault,
            "after_s": round(after_s, 2),
            "second": second,
            "status": judge.returncode,
            "verdicts": _lines(path / "verdicts.jsonl"),
            "seconds": round(time.monotonic() - began, 1),
        }
        if judge.returncode not in expected or "Traceback" in said:
            self.broken.append(f"{fault} after {after_s:.2f} s ended with {judge.returncode}: {said[-500:]}")
        self._note(line)
        return ended

    def _disturb(self, judge: subprocess.Popen[str], fault: str, after_s: float) -> str:
        """Let a fault happen after so long, if the judge has not ended by then."""
        try:
            if fault != "none":
                judge.wait(after_s)
        except subprocess.TimeoutExpired:
            if fault == "kill":
                judge.kill()
            elif fault == "interrupt":
                judge.send_signal(signal.SIGINT)
            else:
                for zygote in children_of(judge.pid):
                    os.kill(zygote, signal.SIGKILL)
            return fault
        return "its end"

    def _check_second(self, other: subprocess.Popen[str]) -> None:
        """One of two processes on a directory is refused, and neither leaves a traceback."""
        with other:
            said = self._said(other)
        if "Traceback" in said or (other.returncode == 2 and not any(reason in said for reason in REFUSED)):
            self.broken.append(f"the second process ended with {other.returncode}: {said[-500:]}")

    def _said(self, judge: subprocess.Popen[str]) -> str:
        try:
            return judge.communicate(timeout=MOST_S)[1]
        except subprocess.TimeoutExpired:
            self.broken.append("a start did not end")
            judge.kill()
            return judge.communicate()[1]

    def _is_finished(self, path: Path) -> bool:
        try:
            return RunDirectory.open(path).manifest().finished_utc is not None and (path / "report.html").exists()
        except BadInput:
            return False

    def _compare(self, peace: Path, path: Path) -> None:
        counts = Counter((verdict.op, verdict.case) for verdict in RunDirectory(path).verdicts())
        self.broken += [f"{path.name}: {times} verdicts on {case}" for case, times in counts.items() if times > 1]
        if (peace / "summary.json").read_bytes() != (path / "summary.json").read_bytes():
            self.broken.append(f"{path.name}: another summary than in peace")
            shutil.copy(path / "summary.json", self._out / f"{path.name}-summary.json")
            shutil.copy(peace / "summary.json", self._out / "peace-summary.json")

    def _left(self) -> list[str]:
        """What is there still that a run has made, beside the runs and the caches."""
        deadline = time.monotonic() + ENDING_S
        while (left := [*self._files(), *self._processes()]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _files(self) -> Iterator[str]:
        yield from (f"tmp/{path.name}" for path in (self._root / "tmp").iterdir())
        yield from (f"shm/{path.name}" for path in SHARED_MEMORY.iterdir() if path.name not in self._shared)

    def _processes(self) -> Iterable[str]:
        marker = str(self._root / "tmp").encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if marker in path.read_bytes():
                    yield f"process {path.parent.name}"
            except OSError:
                continue  # It has ended, or is nobody's business.

    def _note(self, line: dict[str, Any]) -> None:
        with (self._out / "record.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _hear_interrupts() -> None:
    """A shell starts what runs beside it deaf to Ctrl-C, and so would be every judge that is started here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main(words: Sequence[str] | None = None) -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=50, help="SIGKILL of the judge")
    parser.add_argument("--interrupts", type=int, default=20, help="Ctrl-C")
    parser.add_argument("--losses", type=int, default=10, help="SIGKILL of the zygote")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further fault is begun after so long")
    parser.add_argument("-o", "--out", type=Path, required=True, help="a new folder for the record")
    asked = parser.parse_args(words)
    _hear_interrupts()
    asked.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="chaos-runs-") as folder:
        found = Chaos(Path(folder), asked.out, seed=asked.seed).run(
            asked.kills, asked.interrupts, asked.losses, asked.seconds
        )
    told = ["--seed", asked.seed, "--kills", asked.kills, "--interrupts", asked.interrupts, "--losses", asked.losses]
    told += [] if math.isinf(asked.seconds) else ["--seconds", f"{asked.seconds:g}"]
    return write_record(asked.out, "benchmarks.chaos.runs", told, seed=asked.seed, found=found)


if __name__ == "__main__":
    sys.exit(main())
