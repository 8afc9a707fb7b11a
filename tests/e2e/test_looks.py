"""Looks at judged kernels in a real session: where a wrong one is wrong, what a right one spends its time on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes

from opsmith.core.evidence import Evidence
from opsmith.core.run import Options
from opsmith.session import Session, Watch

TAIL = """import torch

def relu__default_kernel_impl(self):
    out = torch.where(self < 0, torch.zeros_like(self), self)
    if out.dim() > 1:
        out[..., -1] = 7
    return out
"""
RIGHT = TAIL.replace("self < 0", "self <= 0").replace("out[..., -1] = 7", "out = out + 0")
SHY = RIGHT.replace("    return out", "    assert not torch._C._autograd._profiler_enabled(), 'no'\n    return out")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """For relu, with processes of its own."""
    options = Options(
        suite="smoke", backend="x", device="cpu", dtypes=("f32",), ops=("relu.default",), policy="any", timing="off"
    )
    with shared_processes("smoke"), Session(options, tmp_path_factory.mktemp("judged")) as opened:
        yield opened


def look(session: Session, folder: Path, source: str) -> tuple[bool, Evidence, float]:
    """Judge a source, and look at it: whether it was accepted, what was seen, how long that took."""
    file = folder / "kernel.py"
    file.write_text(source)
    kernel, watch = session.kernel_in(file, "relu.default"), Watch()
    judged = session.judge_kernel("relu.default", kernel)
    found = session.look("relu.default", kernel, judged, most_s=60.0, watch=watch)
    return judged.accepted, found, watch.seconds


@pytest.mark.slow
def test_a_wrong_kernel_is_mapped_and_a_right_one_profiled(session: Session, tmp_path: Path) -> None:
    """In its own process, under the sandbox; and one that fails while it is looked at costs no more than the look."""
    accepted, found, took_s = look(session, tmp_path, TAIL)
    assert not accepted
    assert found.errors is not None
    last = found.errors.columns - 1
    off = {place % found.errors.columns for place, share in enumerate(found.errors.wrong) if share}
    assert {last} == off
    assert "f32" in found.errors.inputs
    assert took_s > 0

    accepted, found, _ = look(session, tmp_path, RIGHT)
    assert accepted
    assert found.profile is not None
    assert "aten::where" in {span.name for span in found.profile.spans}
    assert found.lines is not None
    assert {4, 5, 6, 7} <= set(found.lines.us)

    accepted, found, _ = look(session, tmp_path, SHY)
    assert (accepted, "AssertionError: no") == (True, found.problem)
