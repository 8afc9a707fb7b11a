"""Kernels that share a worker: nothing that one of them does is held against the next."""

from __future__ import annotations

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
        # Each further kernel of a worker once took twice as long as the one before.
        assert max(one.device_s for one in found) < 5
        (tmp_path / "sleeps.py").write_text(HEAD + SLEEPS)
        kernel = session.kernel_in(tmp_path / "sleeps.py", "relu.default")
        cut_off = session.judge_kernel("relu.default", kernel, most_s=2.0)
        assert not cut_off.accepted
        assert any("the time for judging this kernel is over" in verdict.detail for verdict in cut_off.verdicts)
        assert cut_off.device_s < 5  # Of 16 for the first call; it was all of them.
        assert judge("last", RIGHT).accepted


class Counting(pipeline.Silent):
    """Counts the processes of a run, those with a text in their environment, at every verdict."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.found: list[tuple[str, int]] = []

    def advance(self, done: int, note: str = "") -> None:
        del done
        self.found.append((note, len(processes_with_environment(self._text))))


def test_processes_that_have_nothing_to_do_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs have a referee, a nursery and a worker each, and nobody waits; near the end one of them has."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name, wait in (("relu", "import time; time.sleep(1)"), ("gelu", ""), ("exp", "")):
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
    counting = Counting(str(tmp_path / "tmp").encode())
    summary = pipeline.evaluate(options, tmp_path / "run", jobs=2, progress=counting)
    assert summary.accepted
    zygote, of_a_job = 1, 3
    judging = [(op, count) for op, count in counting.found if op]
    assert zygote + 2 * of_a_job >= max(count for _, count in judging)
    assert ("relu.default", zygote + of_a_job) == judging[-1]
