"""``opsmith book build`` as a user runs it, without a GPU: the real compiler, the real judge, Triton's interpreter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opsmith.cli.main import app
from opsmith.generate.book.files import read_book


@pytest.mark.slow
@pytest.mark.corpus
def test_a_book_holds_what_the_judge_accepted(tmp_path: Path) -> None:
    """Of three problems one is a library's, and two are pairs; the second build asks nobody."""
    out = tmp_path / "book.parquet"
    words = ["book", "build", "--ops", "L1/2_*,L1/25_*,L1/36_*", "--device", "cpu", "--json", "-o", str(out)]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    assert 0 == result.return_value, result.output
    summary = json.loads(result.stdout)
    assert {"problems": 3, "pairs": 2, "validated": 2, "validated_on": "interpreter"}.items() <= summary.items()
    pairs = read_book(out)
    assert ["L1/25_LayerNorm", "L1/36_Softmax_over_channels"] == [pair.task for pair in pairs]
    assert all("@triton.jit" in pair.triton and "torch._inductor" not in pair.triton for pair in pairs)
    assert {("small", "BSD-3-Clause", None)} == {(pair.sizes, pair.license, pair.problem) for pair in pairs}


def test_the_problems_of_others_need_a_licence(tmp_path: Path) -> None:
    """Nobody may train on what has none."""
    words = ["book", "build", str(tmp_path), "-o", str(tmp_path / "book.jsonl")]
    result = CliRunner().invoke(app, words, standalone_mode=False)
    assert 2 in (result.exit_code, result.return_value)
    assert "--license" in result.stderr
