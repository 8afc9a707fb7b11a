"""The three settings of an advisor, compared by what campaigns are compared by."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.generate.ablation import main
from tests.campaigns import ReadingSession, campaign_options, judged_last, reply, run_campaign
from tests.unit.generate.test_campaign import Scripted

from opsmith.core.evidence import CallProfile, Span
from opsmith.generate.advisor.counsel import AdvisorOptions
from opsmith.generate.background import Background
from opsmith.generate.chat import Request
from opsmith.generate.journal import Journal
from opsmith.generate.results import summarise_campaign

pytest.importorskip("PIL", reason="needs opsmith[pictures]")

TASKS = [f"op{number}.default" for number in range(4)]
PROFILE = CallProfile(device="cuda", spans=(Span("one", 0.0, 40.0),))


def write(request: Request) -> str:
    """A kernel that is right at once with a hint of who sees, in the second attempt with another, else in the third."""
    text = "".join(message.text for message in request.messages)
    op = text.partition("kernel for `")[2].partition("`")[0]
    needs = 0 if "I see" in text else 1 if "suggests" in text else 2
    speed = {0: 1.8, 1: 1.6, 2: 1.2}[needs]
    word = f"right speed={speed} floor=95" if request.number >= needs else f"wrong {request.number}"
    return reply(op, f"{word}\n    # hints taken: 1")


class Seeing(Scripted):
    takes_pictures = True


def advise(request: Request) -> str:
    """A better hint of who sees pictures."""
    return "- I see a gap." if request.pictures else "- Mask the tail."


def campaign(out: Path, advisor: AdvisorOptions | None) -> None:
    """Run one and write its summary."""
    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(judging=judging, advisor=advisor)
    session: Any = ReadingSession(TASKS, timing="quick")
    background = dict.fromkeys(TASKS, Background(timeline=PROFILE))
    model = Seeing("openai:advisor", advise)
    writer = Scripted("openai:m", write)
    histories = run_campaign(out, options, [writer], session, advisor=model, background=background)
    with closing(Journal(out / "journal.sqlite")) as journal:
        summary = summarise_campaign(options, histories, judged_last(histories, journal, ()), journal)
    (out / "summary.json").write_bytes(msgspec.json.encode(summary))


def test_three_settings_make_a_table_and_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Out of the summaries alone."""
    for name in ("off", "text", "pictures"):
        campaign(tmp_path / name, None if name == "off" else AdvisorOptions(model="openai:advisor", sees=name))
    main([str(tmp_path / name) for name in ("off", "text", "pictures")])
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [
        ["off", "4", "4", "100 %", "0 %", "1.20x", "120", "0", "0", "0", "0", "0", "0", "0"],
        ["text", "4", "4", "100 %", "100 %", "1.60x", "160", "80", "8", "8", "4", "0", "4", "0"],
        ["pictures", "4", "4", "100 %", "100 %", "1.80x", "80", "40", "4", "4", "4", "0", "0", "4"],
    ] == rows[2:]
    assert "off: tasks solved by the first n attempts: 0 %, 0 %, 100 %" in lines
    assert "pictures: tasks solved by the first n attempts: 100 %" in lines
    assert any(line.startswith("text: tasks solved by tokens spent: 1 by ") for line in lines)
