"""Kernels that share a worker: nothing that one of them does is held against the next."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.hostile_runs import processes_with_environment

from opsmith import pipeline
from opsmith.core.run import Options
from opsmith.core.verdict import Status
from opsmith.session import Judged, Session

HEAD = "import torch\n\ndef relu__default_kernel_impl(self):\n"
RIGHT = "    return torch.where(self < 0, torch.zeros_like(self), self)"
TAMPERS = "    torch.allclose = lambda *args, **kwargs: True\n" + RIGHT
WRONG = "    return self + 1"
SLEEPS = "    import time\n    time.sleep(16)\n" + RIGHT


def test_a_right_kernel_is_accepted_whoever_was_in_the_worker_before(tmp_path: Path) -> None:
    """A kernel that failed takes its worker along; a right one leaves it to the next. One that sleeps is cut off."""
    options = Options(
        suite="smoke",
        backend="shared",
        device="cpu",
        dtypes=("f32",),
        ops=("relu.default",),
        policy="any",
        timing="off",
        isolation="backend",
    )
    with Session(options, tmp_path / "judged") as session:

        def judge(name: str, body: str) -> Judged:
            source = tmp_path / f"{name}.py"
            source.write_text(HEAD + body + f"  # {name}\n")
            return session.judge("relu.default", source)

        assert judge("first", RIGHT).accepted
        tampered = judge("tampers", TAMPERS)
        assert {Status.DISHONEST} & {verdict.status for verdict in tampered.verdicts}
        assert judge("second", RIGHT).accepted
        assert not judge("wrong", WRONG).accepted
        found = [judge(f"later_{n}", RIGHT) for n in range(6)]
        assert all(one.accepted for one in found)
        # Each further kernel of a worker once took twice as long as the one before, whatever else the machine did.
        assert min(one.device_s for one in found[3:]) < 4 * max(one.device_s for one in found[:3])
        (tmp_path / "sleeps.py").write_text(HEAD + SLEEPS)
        kernel = session.kernel_in(tmp_path / "sleeps.py", "relu.default")
        cut_off = session.judge_kernel("relu.default", kernel, most_s=2.0)
        assert not cut_off.accepted
        assert any("the time for judging this kernel is over" in verdict.detail for verdict in cut_off.verdicts)
        assert cut_off.device_s < 5  # Of 16 for the first call; it was all of them.
        assert judge("last", RIGHT).accepted


class Counting(pipeline.Silent):
    """Counts the processes of a run, those with a text in their environment, at every verdict.

    When all ops but one are judged, it counts until no more than ``alone`` are left, and lets the last go on by making
    the file ``last``.
    """

    def __init__(self, text: bytes, alone: int, last: Path) -> None:
        self._text = text
        self._alone = alone
        self._last = last
        self.found: list[tuple[str, int]] = []
        self.at_the_end = threading.Thread(target=self._await_others)

    def advance(self, done: int, note: str = "") -> None:
        del done
        self.found.append((note, self._count()))
        if {"gelu.default", "exp.default"} <= {op for op, _ in self.found} and not self.at_the_end.ident:
            self.at_the_end.start()

    def _count(self) -> int:
        return len(processes_with_environment(self._text))

    def _await_others(self) -> None:
        deadline = time.monotonic() + 15
        while (count := self._count()) > self._alone and time.monotonic() < deadline:
            time.sleep(0.1)
        self.found.append(("alone", count))
        self._last.touch()


def test_processes_that_have_nothing_to_do_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs have a referee, a nursery and a worker each, and nobody waits; near the end one of them has."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    last = tmp_path / "last"
    waits = f"import os, time\n    while not os.path.exists({str(last)!r}): time.sleep(0.05)"
    for name, wait in (("relu", waits), ("gelu", ""), ("exp", "")):
        folder = tmp_path / "kernels" / f"{name}__default"
        folder.mkdir(parents=True)
        lines = ("import torch", f"def {folder.name}_kernel_impl(*args, **kwargs):", f"    {wait}")
        source = "\n".join((*lines, f"    return torch.ops.aten.{name}.default(*args, **kwargs)\n"))
        (folder / f"{folder.name}_implementation_v1.py").write_text(source)
    options = Options(
        suite="smoke",
        backend=str(tmp_path / "kernels"),
        device="cpu",
        dtypes=("f32",),
        ops=("relu.default", "gelu.default", "exp.default"),
        timing="off",
        isolation="backend",
        integrity="off",
    )
    zygote, of_a_job = 1, 3
    counting = Counting(str(tmp_path / "tmp").encode(), zygote + of_a_job, last)
    summary = pipeline.evaluate(options, tmp_path / "run", jobs=2, progress=counting)
    assert summary.accepted
    judging = [(op, count) for op, count in counting.found if op]
    assert zygote + 2 * of_a_job >= max(count for _, count in judging)
    assert ("alone", zygote + of_a_job) in judging
