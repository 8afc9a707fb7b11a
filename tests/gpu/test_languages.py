"""Honest and dishonest kernels of each installed language, judged on a GPU under policy native."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from benchmarks.judging.languages import CHEATS, HONEST, LANGUAGES, judge, missing, write_index

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("name", [language.name for language in LANGUAGES])
def test_a_language_is_judged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five honest kernels are accepted, whatever compiles them; two that have others compute are found out."""
    language = next(each for each in LANGUAGES if each.name == name)
    if reason := missing(language, "cuda"):
        pytest.skip(reason)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_index("cuda")
    options = argparse.Namespace(device="cuda", timing="off", seed=1, jobs=2, limit_s=300, out=tmp_path)
    row = judge(language, options)
    assert not row.missing
    assert dict.fromkeys(HONEST, "accepted") | dict.fromkeys(CHEATS, "found out") == {
        op: outcome for op, (outcome, _) in row.kernels.items()
    }, row.kernels
