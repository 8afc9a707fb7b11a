"""Calls from which eager itself does not come back cost their own verdicts, and the time that eager has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.endless_suite import CALLS, DEGREE, OP
from tests.hostile_runs import install_suite, processes_with_environment

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Status
from opsmith.runner.protocol.limits import Limits

KERNEL = f"""
import torch

def special_laguerre_polynomial_l__default_kernel_impl(x, n):
    return torch.zeros_like(x) if n.max() >= {DEGREE} else torch.ops.aten.special_laguerre_polynomial_l.default(x, n)
"""


def test_what_eager_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the reference nor its second opinion in float64 may hold up a run; one stood still over such a call."""
    install_suite(tmp_path, monkeypatch, name="endless", of="tests.endless_suite:Endless")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = tmp_path / "kernels" / "special_laguerre_polynomial_l__default"
    folder.mkdir(parents=True)
    (folder / "special_laguerre_polynomial_l__default_implementation_v1.py").write_text(KERNEL)
    options = Options(
        suite="endless",
        backend=str(tmp_path / "kernels"),
        device="cpu",
        dtypes=("f32",),
        ops=(OP,),
        timing="off",
        integrity="off",
    )
    started = time.monotonic()
    pipeline.evaluate(options, tmp_path / "run", jobs=1, limits=Limits(eager_s=2.0))
    assert 60 > time.monotonic() - started
    verdicts = list(RunDirectory(tmp_path / "run").verdicts())
    expected = [Status.REFERENCE_FAILED if degree == DEGREE else Status.PASSED for _, degree in CALLS]
    assert expected == [verdict.status for verdict in verdicts]
    details = {verdict.detail for verdict in verdicts if verdict.status is Status.REFERENCE_FAILED}
    assert {"eager gave no answer within 2 s"} == details
    assert [] == processes_with_environment(str(tmp_path / "tmp").encode())
