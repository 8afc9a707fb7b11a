"""Work is done again after a loss, what was found stays found, and a third loss is the work's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.unit.runner.fleet_stand_ins import job

from opsmith.core.verdict import Status, Verdict
from opsmith.errors import MachineFailed, ProcessLost
from opsmith.runner.judge.losses import MOST_LOSSES, again, given_up, rest_to_judge, through_losses
from opsmith.runner.judge.verdicts import make_verdict
from opsmith.runner.protocol.job import Job


class Losing:
    """Judges jobs, and loses a process before the case of each number that it is given."""

    def __init__(self, *losses: int, error: type[Exception] = ProcessLost) -> None:
        self.mended = 0
        self._losses = list(losses)
        self._error = error
        self._done = 0

    def judge(self, family: Sequence[Job]) -> Iterator[Verdict]:
        for each in family:
            for case in each.cases:
                if self._losses and self._done == self._losses[0]:
                    del self._losses[0]
                    raise self._error
                self._done += 1
                yield make_verdict(each, case, Status.PASSED)

    def mend(self) -> None:
        self.mended += 1

    def found(self, family: Sequence[Job]) -> list[tuple[str, Status]]:
        verdicts = through_losses(family, self.judge, rest=rest_to_judge, give_up=given_up, mend=self.mend)
        return [(verdict.case, verdict.status) for verdict in verdicts]


@pytest.fixture
def family() -> list[Job]:
    """One job of four cases."""
    return [job("relu", 4)]


@pytest.mark.parametrize("losses", [(0,), (2,), (1, 1), (0, 3), ()])
def test_every_case_has_one_verdict_whatever_is_lost_on_the_way(family: list[Job], losses: tuple[int, ...]) -> None:
    """A run with losses ends as one without."""
    judge = Losing(*losses)
    assert Losing().found(family) == judge.found(family)
    assert len(losses) == judge.mended


def test_a_job_that_costs_three_losses_is_failed_by_name(family: list[Job]) -> None:
    """Its other cases keep their verdicts, and the run goes on."""
    found = Losing(*[1] * MOST_LOSSES).found(family)
    assert [Status.PASSED] + [Status.NOT_RUN] * 3 == [status for _, status in found]
    (verdict, *_) = given_up(family)
    assert verdict.detail == "not run: this kernel took the judge's processes with it too often"


def test_a_machine_that_gives_no_process_ends_the_run(family: list[Job]) -> None:
    """No kernel is blamed for that."""
    with pytest.raises(MachineFailed):
        Losing(1, error=MachineFailed).found(family)


def test_an_answer_is_asked_for_again() -> None:
    """The third loss is told."""
    answers: list[object] = [ProcessLost(), ProcessLost(), "an answer"]

    def ask() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert again(ask) == "an answer"
    answers[:] = [ProcessLost()] * MOST_LOSSES
    with pytest.raises(ProcessLost):
        again(ask)
