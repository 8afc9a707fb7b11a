"""Whose kernels share a worker process unless somebody asks for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from opsmith.cli import run
from opsmith.core.run import Options


@pytest.mark.parametrize(
    ("asked", "backend", "expected"),
    [
        ("auto", "aten", "backend"),
        ("auto", "opsmith", "backend"),
        ("auto", "./opsmith", "kernel"),
        ("auto", "flag_gems", "kernel"),
        ("kernel", "aten", "kernel"),
        ("backend", "./mine", "backend"),
    ],
)
def test_only_opsmiths_own_kernels_share_a_worker_unasked(
    asked: Literal["auto", "kernel", "backend"], backend: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of somebody's that has a backend's name is somebody's."""
    seen: list[Options] = []
    monkeypatch.setattr(run, "check_backend", lambda _: None)

    def judge(options: Options, *_: object, **__: object) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(run, "judge", judge)
    run.run(backend, suite="smoke", dtype="f32", device="cpu", isolation=asked, out=Path("anywhere"))
    assert [expected] == [options.isolation for options in seen]
