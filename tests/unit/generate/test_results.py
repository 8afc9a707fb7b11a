"""What a campaign leaves: kernels with their provenance, figures that compare models, and the page."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, judged_last, reply, run_campaign

from opsmith.backends.manifest import read
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import Reply, Request, Usage
from opsmith.generate.curves import author_figures
from opsmith.generate.journal import Journal
from opsmith.generate.page import campaign_page
from opsmith.generate.results import (
    CampaignSummary,
    attempt_kinds,
    summarise_campaign,
    write_kernels,
    write_unjudged,
)

TASKS = ["relu.default", "exp.default", "abs.default"]
#: What each model writes for each task, attempt by attempt.
WORKS = {
    "openai:slow": {
        "relu.default": ["wrong", "right speed=1.2"],
        "exp.default": ["right speed=0.7"] * 2,
        "abs.default": ["a", "b"],
    },
    "openai:<b>": {
        "relu.default": ["right speed=1.6", "cheat"],
        "exp.default": ["wrong 1", "wrong 2"],
        "abs.default": ["c", "d"],
    },
}


class Writer:
    """A model with a list of works."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ask(self, request: Request) -> Reply:
        """The next work of the list."""
        op = request.messages[1].text.partition("kernel for `")[2].partition("`")[0]
        return Reply(text=reply(op, WORKS[self.name][op][request.number]), usage=Usage(100, 10))

    def close(self) -> None:
        """Nothing to free."""


def campaign(out: Path, refused: Collection[str] = ()) -> tuple[CampaignSummary, list[TaskHistory]]:
    """A small campaign and its figures.

    Args:
        out: its directory.
        refused: comments of the kernels that the last judging refuses.
    """
    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(models=tuple(WORKS), strategy="best-of-n", attempts=2, judging=judging)
    session = ReadingSession(TASKS, timing="quick")
    histories = run_campaign(out, options, [Writer(name) for name in WORKS], session)
    with closing(Journal(out / "journal.sqlite")) as journal:
        last = judged_last(histories, journal, refused)
        write_kernels(out / "kernels", out, session.tasks, last)
        return summarise_campaign(options, histories, last, journal), histories


def test_the_best_right_kernels_are_a_kernel_directory(tmp_path: Path) -> None:
    """With who wrote them; a task without one has no folder."""
    _, histories = campaign(tmp_path)
    entries = read(tmp_path / "kernels").kernels
    assert {"relu.default", "exp.default"} == set(entries)
    relu = entries["relu.default"]
    [exchange] = [a.exchange for a in histories[TASKS.index("relu.default")].attempts if a.index + 1 == relu.best]
    assert ("openai:<b>", exchange) == (relu.provenance.model, relu.provenance.prompt_hash)
    file = tmp_path / "kernels" / "relu__default" / f"relu__default_implementation_v{relu.best}.py"
    assert "speed=1.6" in file.read_text()


def test_figures_compare_the_models(tmp_path: Path) -> None:
    """Solved, won, after how many attempts, and how fast."""
    found, _ = campaign(tmp_path)
    slow, other, together = (found.by_model[name] for name in ("openai:slow", "openai:<b>", "all"))
    assert (2, 1, 2) == (slow.solved, other.solved, together.solved)
    assert (1, 1, 2) == (slow.wins, other.wins, together.wins)
    assert (1 / 3, 2 / 3) == slow.solved_after
    assert (1 / 3, 1 / 3) == other.solved_after
    assert {"0": 2 / 3, "0.5": 2 / 3, "0.8": 1 / 3, "1": 1 / 3, "1.5": 1 / 3, "2": 0.0} == together.fast_p
    assert {"accepted": 4, "WRONG_VALUE": 7, "DISHONEST": 1} == found.attempts


def test_spending_goes_up_to_what_was_spent(tmp_path: Path) -> None:
    """One point for each exchange."""
    found, _ = campaign(tmp_path)
    assert 12 == len(found.spending)
    assert found.spent.tokens == found.spending[-1].tokens == 12 * 110
    assert 2 == found.spending[-1].solved
    assert found.spending[-1].speedup is not None
    assert abs(found.spending[-1].speedup - (1.6 * 0.7) ** 0.5) < 1e-9


def test_what_is_refused_last_is_nowhere(tmp_path: Path) -> None:
    """The next best kernel takes its place, in the folder and in every figure; without one the task is not solved."""
    found, _ = campaign(tmp_path, refused=["right speed=1.6", "right speed=0.7"])
    relu, exp = found.tasks["relu.default"], found.tasks["exp.default"]
    assert ("openai:slow", True, None) == (relu.model, relu.accepted, relu.reason)
    assert (None, False) == (exp.model, exp.accepted)
    assert "refused when judged again" in (exp.reason or "")
    assert {"relu.default"} == set(read(tmp_path / "kernels").kernels)
    assert 1 == found.accepted == found.by_model["all"].solved == found.by_model["all"].wins
    assert 1 == found.spending[-1].solved
    assert (1 / 3, 0.0) == (found.by_model["all"].fast_p["1"], found.by_model["openai:<b>"].fast_p["0"])
    assert {"accepted": 1, "refused in run/": 3, "WRONG_VALUE": 7, "DISHONEST": 1} == found.attempts


def test_a_speedup_counts_with_all_of_its_interval(tmp_path: Path) -> None:
    """Between 0.52 and 1.45 nobody is faster."""
    found, histories = campaign(tmp_path)
    [best] = [a for a in histories[TASKS.index("relu.default")].attempts if a.source and "speed=1.6" in a.source]
    assert best.judged is not None
    assert 1 / 3 == found.by_model["all"].fast_p["1.5"]
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        last = judged_last(histories, journal, (), low=0.52)
    assert 0.0 == author_figures(histories, last, None).fast_p["1"]
    assert 2 / 3 == author_figures(histories, last, None).fast_p["0.5"]


@pytest.mark.slow
def test_names_of_models_are_text_on_the_page(tmp_path: Path) -> None:
    """Equal campaigns give equal pages."""
    found, histories = campaign(tmp_path)
    kinds = {history.task: attempt_kinds(history, {}) for history in histories}
    page = campaign_page(found, kinds)
    assert "<b>openai" not in page
    assert "openai:<b>" not in page
    assert "openai:&lt;b&gt;" in page
    assert page == campaign_page(msgspec.json.decode(msgspec.json.encode(found), type=CampaignSummary), kinds)
    assert json.loads(msgspec.json.encode(found))["tasks"].keys() == set(TASKS)


def test_kernels_that_cannot_be_judged_here_are_kept_apart(tmp_path: Path) -> None:
    """Nobody runs Metal here: one kernel a task is written, none is judged, none counts as accepted."""
    session = ReadingSession(TASKS)
    options = campaign_options(models=tuple(WORKS), dsl="metal")
    histories = run_campaign(tmp_path, options, [Writer(name) for name in WORKS], session)
    assert [] == session.judged
    assert [["not judged"] * 2] * 3 == [[a.outcome for a in history.attempts] for history in histories]
    assert [] == write_kernels(tmp_path / "kernels", tmp_path, session.tasks, {})
    assert TASKS == write_unjudged(tmp_path / "unjudged", tmp_path, session.tasks, histories)
    assert set(TASKS) == set(read(tmp_path / "unjudged").kernels)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        found = summarise_campaign(options, histories, {}, journal)
    assert (0, {"not judged": 6}) == (found.accepted, found.attempts)
    assert all("Metal runs on a Mac" in (task.not_judged or "") for task in found.tasks.values())
    assert "not judged" in campaign_page(found, {history.task: attempt_kinds(history, {}) for history in histories})
