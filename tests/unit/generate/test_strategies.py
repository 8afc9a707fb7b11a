"""Strategies: who is asked what next, and that a swarm is worth at least its best member."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign

from opsmith.errors import UnknownName
from opsmith.generate.attempt import Attempt, best
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import Reply, Request, Usage
from opsmith.generate.strategies import STRATEGIES, strategy_named

TASKS = [f"op{number}.default" for number in range(40)]


class Specialist:
    """A model that is right on some tasks only, sooner or later, and takes up a faster kernel that it is shown."""

    def __init__(self, number: int) -> None:
        self.name = f"openai:member{number}"
        self._number = number

    def ask(self, request: Request) -> Reply:
        """Write a kernel as good as this member is at that task."""
        text = "".join(message.text for message in request.messages)
        op = text.partition("kernel for `")[2].partition("`")[0]
        task = int(op[2:].partition(".")[0])
        strength = (task * 7 + self._number * 3) % 11
        if "What another engineer wrote" in text and "right" in text and strength > 2:
            comment = f"right speed={1 + strength / 10 + 0.5:.2f}"
        elif request.number >= strength % 4 and strength > 3:
            comment = f"right speed={1 + strength / 10:.2f}"
        else:
            comment = f"wrong {self._number} {request.number}"
        return Reply(text=reply(op, comment), usage=Usage(100, 50))

    def close(self) -> None:
        """Nothing to free."""


def campaign(out: Path, members: list[int], strategy: str, attempts: int = 4) -> list[TaskHistory]:
    """Run members on all tasks."""
    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(
        models=tuple(f"openai:member{number}" for number in members),
        strategy=strategy,
        attempts=attempts,
        judging=judging,
    )
    return run_campaign(out, options, [Specialist(n) for n in members], ReadingSession(TASKS, timing="quick"))


def worth(history: TaskHistory) -> float:
    """The best speed-up that was reached; 0 without a right kernel."""
    top: Attempt | None = best(history.attempts)
    return (top.judged.speedup or 0.0) if top is not None and top.judged is not None and top.accepted else 0.0


@pytest.mark.slow
def test_a_swarm_is_worth_at_least_its_best_member_on_every_task(tmp_path: Path) -> None:
    """Five models of different strengths, forty tasks."""
    swarm = campaign(tmp_path / "swarm", [0, 1, 2, 3, 4], "swarm")
    alone = [campaign(tmp_path / str(member), [member], "refine") for member in range(5)]
    gains = 0
    for number, history in enumerate(swarm):
        top = max(worth(histories[number]) for histories in alone)
        assert worth(history) >= top
        gains += worth(history) > top
    assert gains > len(TASKS) / 2


@pytest.mark.slow
def test_best_of_n_asks_every_member_as_often_and_shows_nothing(tmp_path: Path) -> None:
    """Independent draws, for the curves that assume them."""
    [history, *_] = campaign(tmp_path, [0, 1], "best-of-n", attempts=3)
    assert [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)] == [
        (attempt.move.member, attempt.move.number) for attempt in history.attempts
    ]
    assert not any(attempt.move.shown for attempt in history.attempts)


@pytest.mark.slow
def test_a_beam_improves_its_best_kernels(tmp_path: Path) -> None:
    """Each of the three best is shown to each member, in every round."""
    histories = campaign(tmp_path, [1, 2], "beam", attempts=3)
    longest = max(histories, key=lambda history: len(history.attempts))
    rounds = [[a for a in longest.attempts if a.round == number] for number in range(3)]
    assert [6, 6, 6] == list(map(len, rounds))
    for number in (1, 2):
        before = [attempt for earlier in rounds[:number] for attempt in earlier]
        # Of equal kernels the first stands highest, and is written last.
        distinct = {attempt.source: attempt for attempt in sorted(before, key=lambda attempt: attempt.rank)}
        kept = sorted(distinct.values(), key=lambda attempt: attempt.rank, reverse=True)[:3]
        assert {attempt.move.shown for attempt in rounds[number]} == {(attempt.index,) for attempt in kept}


@pytest.mark.parametrize("strategy", ["refine", "swarm", "beam", "evolve"])
def test_nobody_goes_on_near_the_floor(tmp_path: Path, strategy: str) -> None:
    """A kernel at 95 % of what the device can do is good enough."""

    class Perfect(Specialist):
        def ask(self, request: Request) -> Reply:
            return Reply(text=reply("op0.default", "right speed=2 floor=95"))

    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(strategy=strategy, attempts=5, judging=judging)
    session = ReadingSession(["op0.default"], timing="quick")
    [history] = run_campaign(tmp_path, options, [Perfect(0)], session)
    assert {0} == {attempt.round for attempt in history.attempts}


def test_an_unknown_strategy_is_named() -> None:
    """With the ones that there are."""
    with pytest.raises(UnknownName, match="swarm"):
        strategy_named("swarms", members=1, attempts=1, timed=False)
    assert {"best-of-n", "refine", "beam", "swarm", "evolve"} == set(STRATEGIES)
