"""Shrinking: from a drawn call that a kernel fails on to the smallest one that it fails on in the same way.

The referee proposes calls (Hypothesis draws them, eager has answered them), the judge has each of them
judged like any case and tells whether it failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.run import Options
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.processes.failures import RefereeDied
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.referee_messages import Feedback, Proposal, Shrink
from opsmith.suites.traits import traits_of

MAX_EXECUTIONS = 100
MAX_SHRINKING_S = 10.0
#: Failures that say something about the call. A time-out would cost as much with every proposal.
SHRINKABLE = frozenset(
    {
        *(Status.WRONG_VALUE, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.WRONG_STRIDE, Status.WRONG_DEVICE),
        *(Status.WRONG_STRUCTURE, Status.MUTATED_INPUT, Status.ALIASED_OUTPUT, Status.ERROR, Status.CRASHED),
    }
)


class Shrinking:
    """Shrinks the first failure of each dtype of one op.

    Args:
        referee: draws.
        options: of the run.
        seed: of the run's values.
        judge: judges one case by itself.
    """

    def __init__(self, referee: RefereeLink, options: Options, seed: int, judge: Callable[[CaseRef], Verdict]) -> None:
        self._referee = referee
        self._options = options
        self._seed = seed
        self._judge = judge
        self._done: set[str] = set()

    def explain(self, verdict: Verdict, case: CaseRef) -> Verdict:
        """The verdict; a first failure comes with the smallest failing call as its first line of evidence."""
        address = case.address
        can_be_redrawn = address.source == traits_of(address.suite).redrawn_source
        if not can_be_redrawn or verdict.status not in SHRINKABLE or address.dtype in self._done:
            return verdict
        self._done.add(address.dtype)
        try:
            smallest = self._smallest(verdict, case)
        except (RefereeDied, RefereeFailed):
            return verdict  # Eager itself fails next to this call; the call at hand has to do.
        line = f"smallest failing call: {verdict.op}{smallest or verdict.inputs}"
        return msgspec.structs.replace(verdict, evidence=(line, *verdict.evidence))

    def _smallest(self, verdict: Verdict, case: CaseRef) -> str | None:
        """The smallest call found in the time that there is, or None if every smaller one passes."""
        address = case.address
        start = Shrink(
            address.suite,
            address.entry,
            address.dtype,
            self._options.device,
            self._seed,
            failing=address.sample,
            limit_s=MAX_SHRINKING_S,
        )
        deadline = time.monotonic() + MAX_SHRINKING_S
        smallest = None
        proposal = self._ask(start)
        for executed in range(1, MAX_EXECUTIONS + 1):
            if proposal.case is None:
                return smallest
            failed = self._judge(proposal.case).status is verdict.status
            if failed:
                # What fails and is not smaller is never proposed after what fails and is.
                smallest = proposal.text
            enough = executed == MAX_EXECUTIONS or time.monotonic() > deadline
            proposal = self._ask(Feedback(None if enough else failed))
        return smallest

    def _ask(self, request: Shrink | Feedback) -> Proposal:
        proposal = self._referee.ask(request, Proposal)
        assert isinstance(proposal, Proposal)
        return proposal
