"""Counsel: an advisor is asked before each round, for each kernel that is to be improved.

Its questions are exchanges like those to writers. Of the budget it may spend a share; where that is used up, writers go
on without advice. What was asked of a writer without advice stays so, whatever the budget of a resumed campaign.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opsmith.core.evidence import Evidence
from opsmith.errors import BadInput
from opsmith.generate.advisor.hints import hints_in
from opsmith.generate.advisor.question import question
from opsmith.generate.attempt import Advice, Attempt, Move
from opsmith.generate.budget import Budget
from opsmith.generate.chat import ChatModel, Picture, Request, TaskAuthor
from opsmith.generate.contexts import Setting
from opsmith.generate.journal import Exchange, Journal
from opsmith.generate.pictures import key_of, pictured
from opsmith.generate.pictures.canvas import require_pillow
from opsmith.generate.providers import author, full_names

SEES = ("text", "pictures")


class AdvisorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an advisor is asked.

    Attributes:
        model: by name.
        sees: ``text`` or ``pictures``.
        share: of each limit of the budget in money and tokens, at most.
    """

    model: str
    sees: str = "text"
    share: float = 0.25

    def allowance(self, budget: Budget) -> Budget:
        """What it may spend."""
        return Budget(
            usd=None if budget.usd is None else budget.usd * self.share,
            tokens=None if budget.tokens is None else int(budget.tokens * self.share),
        )


def parse_advisor(name: str | None, *, sees: str, share: float) -> AdvisorOptions | None:
    """What ``--advisor`` and its options say; None without an advisor.

    Raises:
        BadInput: it is named without a provider, or is none that answers questions.
        MissingDependency: pictures are wanted, and what draws them is not installed.
    """
    if name is None:
        return None
    try:
        [full] = full_names(None, [name])
    except BadInput as exc:
        raise BadInput(str(exc).replace("--model", "--advisor")) from exc
    if sees == "pictures":
        require_pillow()
    return AdvisorOptions(model=full, sees=sees, share=share)


def advisor_named(options: AdvisorOptions) -> ChatModel:
    """The model.

    Raises:
        UsageError: there is no such provider, it cannot be used here, or writes kernels and answers no questions.
    """
    made = author(options.model)
    if isinstance(made, TaskAuthor):
        raise BadInput(f"--advisor {options.model} writes kernels and answers no questions; name a language model")
    return made


def subject_of(move: Move) -> int | None:
    """Index of the attempt that a move is to improve; None where it begins anew."""
    return move.shown[-1] if move.shown else None


class Counsel:
    """An advisor's questions and what it answers; see the module's docstring.

    Args:
        options: of the advisor.
        model: that it is.
        journal: of the campaign.
        contexts: names of what writers are told.
        max_tokens: of its reply.
        temperature: of sampling.
    """

    def __init__(
        self,
        options: AdvisorOptions,
        model: ChatModel,
        journal: Journal,
        *,
        contexts: Sequence[str],
        max_tokens: int,
        temperature: float | None,
    ) -> None:
        self.model = model
        self._options = options
        self._journal = journal
        self._contexts = contexts
        self._max_tokens = max_tokens
        self._temperature = temperature

    def allowance(self, budget: Budget) -> Budget:
        """What all of its questions may cost."""
        return self._options.allowance(budget)

    def request(self, setting: Setting, subject: int | None, attempts: Sequence[Attempt]) -> Request:
        """The question before an attempt that is to improve another one, or is the first."""
        about = None if subject is None else attempts[subject]
        evidence = self._evidence(setting.task.name, about)
        pictures = self._pictures(setting, about, attempts, evidence) if self._options.sees == "pictures" else ()
        return Request(
            model=self.model.name,
            messages=question(setting, self._contexts, about, attempts, evidence, pictures),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            number=0,
            pictures=pictures,
        )

    def _evidence(self, task: str, about: Attempt | None) -> Evidence | None:
        if about is None or about.judged is None:
            return None
        return self._journal.evidence(task, about.judged.kernel_hash)

    def _pictures(
        self, setting: Setting, about: Attempt | None, attempts: Sequence[Attempt], evidence: Evidence | None
    ) -> tuple[Picture, ...]:
        subjects = pictured(setting.task.name, setting.background.timeline, about, attempts, evidence)
        return tuple([
            Picture(kind=each.kind, caption=each.caption, png=self._journal.drawing(key_of(each), each.draw))
            for each in subjects
        ])  # fmt: skip


def advice_in(exchange: Exchange) -> Advice | None:
    """What an exchange with an advisor came to; None without a hint."""
    hints = hints_in(exchange.reply.text) if exchange.reply is not None else ()
    return Advice(exchange=exchange.request.key, hints=hints) if hints else None
