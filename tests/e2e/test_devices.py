"""The same verdicts on one device and on several, also when one of them is lost on the way."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from opsmith.core.run import Options, RunDirectory, Summary
from opsmith.core.verdict import Status
from opsmith.pipeline import Silent, evaluate
from opsmith.runner.protocol.limits import Limits

#: Folder of a smoke op -> the body of its kernel; each ends in its own way.
KERNELS = {
    "relu__default": "return torch.ops.aten.relu.default(*args)",
    "gelu__default": "os._exit(0)",
    "exp__default": "raise ValueError('as it was told to')",
    "mul__Tensor": "return torch.ops.aten.mul.Tensor(*args).double()",
    "clamp__default": "time.sleep(60)",
}
OPS = ("relu.default", "gelu.default", "exp.default", "mul.Tensor", "clamp.default")


def write_kernels(folder: Path) -> None:
    """One folder an op."""
    for name, body in KERNELS.items():
        file = folder / name / f"{name}_implementation_v1.py"
        file.parent.mkdir(parents=True)
        file.write_text(f"import os, time\nimport torch\n\n\ndef {name}_kernel_impl(*args, **kwargs):\n    {body}\n")


class KillsOne(Silent):
    """Kills a lane's process as soon as there are verdicts."""

    def __init__(self) -> None:
        self.killed: int | None = None
        self._judging = False

    def stage(self, name: str, total: int) -> None:
        self._judging = name == "judging"

    def advance(self, done: int, note: str = "") -> None:
        if self._judging and self.killed is None:
            self.killed = lane_processes()[-1]
            os.kill(self.killed, signal.SIGKILL)


def lane_processes() -> list[int]:
    """The processes with a judge of their own that this one has started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"lane_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def statuses(run: Path) -> Counter[tuple[str, str, Status]]:
    """What was found, as often as it was."""
    return Counter((verdict.op, verdict.case, verdict.status) for verdict in RunDirectory(run).verdicts())


@pytest.mark.slow
def test_a_lost_device_changes_no_verdict(tmp_path: Path) -> None:
    """What it had is judged by the other one, and nothing twice."""
    write_kernels(tmp_path / "kernels")
    options = Options(
        suite="smoke", backend=str(tmp_path / "kernels"), device="cpu", dtypes=("f32",), ops=OPS, policy="any"
    )
    limits = Limits(load_s=30.0, call_s=1.0)
    alone = evaluate(options, tmp_path / "alone", seed=1, limits=limits)
    kills = KillsOne()
    together: Summary = evaluate(options, tmp_path / "together", seed=1, limits=limits, devices="2", progress=kills)
    assert alone == together
    assert statuses(tmp_path / "alone") == statuses(tmp_path / "together")
    assert {Status.PASSED, Status.CRASHED, Status.ERROR, Status.TIMEOUT, Status.WRONG_DTYPE} <= {
        status for _, _, status in statuses(tmp_path / "alone")
    }
    assert [False, True] == [device.lost for device in RunDirectory(tmp_path / "together").manifest().devices]
    assert [] == lane_processes()
