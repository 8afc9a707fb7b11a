"""The advice before a campaign's rounds: which questions are asked, when, and what came of them.

With an advisor a round has two phases: all tasks' advice, then all tasks' kernels. So exchanges are admitted in one
order, and no task's writer waits for the advice on another task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial

from opsmith.generate.admission import Admission, Place
from opsmith.generate.advisor.counsel import Counsel, advice_in
from opsmith.generate.attempt import Advice, Attempt
from opsmith.generate.budget import Budget, Exhausted, Prices
from opsmith.generate.chat import Reply, Request, asked
from opsmith.generate.contexts import Setting
from opsmith.generate.journal import Exchange


class AdvisedRounds:
    """The rounds of a campaign, with or without an advisor.

    Args:
        counsel: the advisor; None without.
        admission: of the campaign.
        budget: of the campaign.
        prices: of the models.
        exchange: asks what was admitted, by what it is given for that, and settles it.
        asking: runs what is asked.
    """

    def __init__(
        self,
        counsel: Counsel | None,
        admission: Admission,
        budget: Budget,
        prices: Prices,
        exchange: Callable[[Request, Callable[[Request], Reply]], Exchange],
        asking: Executor,
    ) -> None:
        self._counsel = counsel
        self._admission = admission
        self._budget = budget
        self._prices = prices
        self._exchange = exchange
        self._asking = asking

    def writing(self, round_number: int) -> int:
        """The phase in which kernels of a round are asked for."""
        return round_number if self._counsel is None else 2 * round_number + 1

    def first(self, round_number: int) -> int:
        """The first phase of a round."""
        return round_number if self._counsel is None else 2 * round_number

    def advice(
        self,
        round_number: int,
        number: int,
        setting: Setting,
        subjects: Iterable[int | None],
        attempts: Sequence[Attempt],
    ) -> dict[int | None, Advice]:
        """What the advisor says before a round; nothing where its share of the budget is used up.

        Args:
            round_number: of the round.
            number: place of the task.
            setting: the task and what is known of it.
            subjects: indices of the attempts that are to be improved; None for a beginning.
            attempts: all that were made.

        Raises:
            Stopped: the campaign is ending.
            UsageError: the model cannot be used at all.
        """
        if self._counsel is None:
            return {}
        # Of two attempts without a kernel the question may be the same.
        requests = {subject: self._counsel.request(setting, subject, attempts) for subject in dict.fromkeys(subjects)}
        sent: dict[str, Future[Advice | None]] = {}
        try:
            for index, request in enumerate({request.key: request for request in requests.values()}.values()):
                place = (self.first(round_number), number, index)
                allowance = self._counsel.allowance(self._budget)
                try:
                    known = self._admission.enter(place, request, self._prices.most(request), allowance=allowance)
                except Exhausted:
                    break  # Writers go on without.
                sent[request.key] = self._asking.submit(self._answered, place, request, known)
            self._admission.expect((self.writing(round_number), number, 0))
        finally:
            wait(sent.values())
        found = {subject: sent[request.key].result() for subject, request in requests.items() if request.key in sent}
        return {subject: advice for subject, advice in found.items() if advice is not None}

    def _answered(self, place: Place, request: Request, known: Exchange | None) -> Advice | None:
        assert self._counsel is not None
        try:
            return advice_in(known or self._exchange(request, partial(asked, self._counsel.model)))
        finally:
            self._admission.leave_room(place)
