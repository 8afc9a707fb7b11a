"""Budgets over many simulated campaigns: random prices, sizes, delays, kills, resumes and numbers of workers.

``make campaigns`` runs 2,000 of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign

from opsmith.core.kernel import Kernel
from opsmith.core.seeds import derive_seed
from opsmith.errors import BadInput
from opsmith.generate.advisor.counsel import AdvisorOptions
from opsmith.generate.attempt import Outcome
from opsmith.generate.budget import Amount, Budget, Prices
from opsmith.generate.campaign import CampaignOptions, TaskHistory
from opsmith.generate.chat import NoReply, Reply, Request, Usage
from opsmith.generate.journal import AskedAs, Journal, State
from opsmith.session import Judged

CAMPAIGNS = int(os.environ.get("OPSMITH_SIMULATED_CAMPAIGNS", "24"))
MOST_JUDGING_S = 5.0


class Killed(Exception):
    """The process of a campaign is gone."""


class MortalJournal(Journal):
    """A journal whose process dies at one of its transactions: before it, or after it; nothing is written then."""

    def __init__(self, path: Path, dies_at: float, *, after: bool) -> None:
        self._left, self._after = dies_at, after
        super().__init__(path)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._after):
            self._left = 0
            raise Killed
        with super()._transaction():
            yield
        if self._left == 0:
            raise Killed


class Author:
    """A model whose replies follow from the questions; counts what it charges.

    Args:
        name: of the model.
        plan: what is drawn for all of its replies.
        no_reply: questions that get none, and are charged for.
        key_is_good: else every question is refused.
    """

    def __init__(
        self, name: str, plan: Plan, *, no_reply: frozenset[str] = frozenset(), key_is_good: bool = True
    ) -> None:
        self.name, self._plan, self._no_reply, self._key_is_good = name, plan, no_reply, key_is_good
        self.asked: list[str] = []
        self.charged: list[Usage] = []
        self._lock = threading.Lock()

    def ask(self, request: Request) -> Reply:
        """The reply that the question's key decides on."""
        if not self._key_is_good:
            raise BadInput("the key is refused")
        chance = random.Random(derive_seed(self._plan.number, request.key))
        time.sleep(chance.choice([0.0, 0.0, 0.0005, 0.002]))
        used = Usage(chance.randint(1, request.most_input_tokens), chance.randint(0, request.max_tokens))
        kind = chance.random()
        with self._lock:
            self.asked.append(request.key)
            if kind >= 0.05:
                self.charged.append(used)
        if request.key in self._no_reply:
            raise NoReply("lost", may_have_cost=True)
        if kind < 0.1:
            raise NoReply("gone", may_have_cost=kind >= 0.05)
        op = request.messages[1].text.partition("kernel for `")[2].partition("`")[0]
        word = chance.choice(["right", "wrong 1", "wrong 2", f"wrong {request.key}", "cheat"])
        text = "I cannot." if kind < 0.2 else reply(op, word)
        return Reply(text=text, usage=None if kind > 0.9 else used)

    def close(self) -> None:
        """Nothing to free."""


class Judge(ReadingSession):
    """Takes as long as the kernel's hash says, up to what it may."""

    def judge_kernel(self, task: str, kernel: Kernel, *, most_s: float, **watch: Any) -> Judged:
        """The verdict of the source, after a while that is not waited for."""
        took_s = random.Random(kernel.content_hash).uniform(0.0, most_s)
        return msgspec.structs.replace(super().judge_kernel(task, kernel, most_s=most_s), device_s=took_s)


class Plan:
    """One campaign, drawn from its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.chance = chance = random.Random(number)
        self.tasks = [f"op{n}.default" for n in range(chance.randint(1, 5))]
        self.models = ("openai:a", "openai:b")[: chance.randint(1, 2)]
        self.advisor = "openai:advisor" if chance.random() < 0.5 else None
        self.everybody = (*self.models, *([self.advisor] if self.advisor else []))
        self.prices = {name: (chance.uniform(0, 5), chance.uniform(0, 20)) for name in self.everybody}
        rough = 3_000 * len(self.tasks) * 3
        budget = Budget(
            usd=chance.choice([None, chance.uniform(0, 4e-6 * rough)]),
            tokens=chance.choice([None, chance.randint(0, rough)]),
            device_s=chance.choice([None, chance.uniform(MOST_JUDGING_S, 8 * MOST_JUDGING_S)]),
        )
        self.options: CampaignOptions = campaign_options(
            models=self.models,
            strategy=chance.choice(["best-of-n", "refine", "beam", "swarm", "evolve"]),
            attempts=chance.randint(1, 4),
            max_tokens=chance.randint(1, 2000),
            budget=budget,
            most_judging_s=MOST_JUDGING_S,
            advisor=AdvisorOptions(model=self.advisor, share=chance.uniform(0.1, 1)) if self.advisor else None,
        )

    def run(self, out: Path, authors: list[Author], workers: int, **how: Any) -> list[TaskHistory]:
        """Run it, or take it up again."""
        out.mkdir(exist_ok=True)
        own = out / "prices.json"
        own.write_bytes(msgspec.json.encode({name: {"input": i, "output": o} for name, (i, o) in self.prices.items()}))
        writers, advisor = authors[: len(self.models)], authors[-1] if self.advisor else None
        session = Judge(self.tasks)
        return run_campaign(
            out, self.options, writers, session, prices=Prices(own), exchanges_at_a_time=workers, advisor=advisor, **how
        )

    def charged(self, authors: list[Author]) -> tuple[float, int]:
        """US dollars and tokens that the models charged."""
        usd = tokens = 0.0
        for author in authors:
            dollars = self.prices[author.name]
            usd += sum(u.input_tokens * dollars[0] + u.output_tokens * dollars[1] for u in author.charged) / 1e6
            tokens += sum(u.input_tokens + u.output_tokens for u in author.charged)
        return usd, int(tokens)


def outcomes(histories: list[TaskHistory]) -> list[Any]:
    """What became of every attempt; whether a reply was lost or never came is the same to a campaign."""
    same = {Outcome.LOST: Outcome.NO_REPLY}
    return [
        (
            history.task,
            history.stopped,
            [
                (a.index, a.round, a.model, a.exchange, same.get(a.outcome, a.outcome), a.judged)
                for a in history.attempts
            ],
        )
        for history in histories
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_simulated_campaigns_keep_their_budgets_and_results() -> None:
    """Spending stays within the limits, every paid reply is judged, and kills and resumes change nothing."""
    kills = lost = stopped = asked_in_all = cut_off = 0
    for number in range(CAMPAIGNS):
        plan = Plan(number)
        chance = plan.chance
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            out, everyone = Path(folder) / "c", []
            if chance.random() < 0.3:
                with pytest.raises(BadInput) if _asks(plan, Path(folder)) else contextlib.nullcontext():
                    plan.run(
                        out, [Author(name, plan, key_is_good=False) for name in plan.everybody], chance.randint(1, 8)
                    )
            histories = None
            while histories is None:
                authors = [Author(name, plan) for name in plan.everybody]
                everyone += authors
                dies_at = chance.randint(2, 16) if chance.random() < 0.8 else float("inf")
                after = chance.random() < 0.5
                with contextlib.suppress(Killed):
                    histories = plan.run(
                        out,
                        authors,
                        chance.randint(1, 8),
                        open_journal=lambda path, at=dies_at, after=after: MortalJournal(path, at, after=after),
                    )
                kills += histories is None
            with closing(Journal(out / "journal.sqlite")) as journal:
                spent, exchanges = journal.spent, journal.exchanges()
                advised = journal.spent_as(AskedAs.ADVISOR)
            gone = frozenset(e.request.key for e in exchanges if e.state is State.LOST)
            _within(plan, plan.charged(everyone), (spent.usd, spent.tokens), spent.device_s)
            _within_share(plan, advised)
            made = {a.exchange: a for history in histories for a in history.attempts}
            for exchange in exchanges:
                if exchange.state is State.ANSWERED and exchange.request.model != plan.advisor:
                    assert made[exchange.request.key].outcome in (Outcome.JUDGED, Outcome.NO_CODE)
            asked = [key for author in everyone for key in author.asked]
            assert len(asked) == len(set(asked)), "nothing is asked twice"

            authors = [Author(name, plan, no_reply=gone) for name in plan.everybody]
            undisturbed = plan.run(Path(folder) / "undisturbed", authors, 1)
            assert outcomes(undisturbed) == outcomes(histories), f"campaign {number}"
            nobody = [Author(name, plan) for name in plan.everybody]
            assert outcomes(histories) == outcomes(plan.run(out, nobody, chance.randint(1, 8)))
            assert not any(author.asked for author in nobody)
            lost += len(gone)
            asked_in_all += len(asked)
            cut_off += spent.lost_judgements
            stopped += any(history.stopped for history in histories)
    if path := os.environ.get("OPSMITH_CAMPAIGNS_RECORD"):
        figures = {
            "campaigns": CAMPAIGNS, "kills": kills, "exchanges": asked_in_all, "exchanges_lost": lost,
            "judgements_cut_off": cut_off, "campaigns_stopped_by_budget": stopped,
        }  # fmt: skip
        Path(path).write_text(json.dumps(figures, indent=2) + "\n")
    assert kills >= CAMPAIGNS // 2
    assert lost
    assert cut_off
    assert CAMPAIGNS // 5 < stopped < CAMPAIGNS


def _asks(plan: Plan, folder: Path) -> bool:
    """Whether the campaign asks anything at all."""
    authors = [Author(name, plan) for name in plan.everybody]
    plan.run(folder / "asks", authors, 1)
    return any(author.asked for author in authors)


def _within(plan: Plan, charged: tuple[float, int], booked: tuple[float, int], device_s: float) -> None:
    budget = plan.options.budget
    for usd, tokens in (charged, booked):
        assert budget.usd is None or usd <= budget.usd * (1 + 1e-9)
        assert budget.tokens is None or tokens <= budget.tokens
    assert charged[0] <= booked[0] * (1 + 1e-9)
    assert charged[1] <= booked[1]
    assert budget.device_s is None or device_s <= budget.device_s


def _within_share(plan: Plan, advised: Amount) -> None:
    if plan.options.advisor is None:
        assert advised == Amount(0.0, 0)
        return
    allowed = plan.options.advisor.allowance(plan.options.budget)
    assert allowed.usd is None or (advised.usd or 0.0) <= allowed.usd * (1 + 1e-9)
    assert allowed.tokens is None or advised.tokens <= allowed.tokens
