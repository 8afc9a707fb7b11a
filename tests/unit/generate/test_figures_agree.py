"""The figures of page, summary, terminal, folder and `run/`, recomputed from the journal by a script of its own."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from tests.campaign_audit import disagreements
from tests.unit.generate.test_held_out import Last

from opsmith.cli.generate import ATTEMPTS, _print
from opsmith.core.run import write_atomically
from opsmith.generate.page import campaign_page
from opsmith.generate.results import attempt_kinds

WORDS = ["right", "right speed=1.3", "right speed=0.7", "right later", "right later speed=2", "wrong", "cheat"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_every_figure_follows_from_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    """Ten campaigns of two models, with kernels that the last judging refuses."""
    chance = random.Random(number)
    tasks = {f"op{n}.default": chance.choices(WORDS, k=6) for n in range(chance.randint(1, 5))}
    campaign = Last(tmp_path, tasks, models=("openai:a", "openai:b")[: chance.randint(1, 2)], timing="quick")
    last, summary = campaign.judge()
    write_atomically(tmp_path / "summary.json", msgspec.json.encode(summary))
    kinds = {history.task: attempt_kinds(history, last) for history in campaign.histories}
    write_atomically(tmp_path / "report.html", campaign_page(summary, kinds).encode())
    (tmp_path / ATTEMPTS).touch()
    _print(summary, tmp_path)
    assert [] == disagreements(tmp_path, capsys.readouterr().out)
