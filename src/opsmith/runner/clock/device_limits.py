"""What a run's device can reach: by its datasheet, and by what it was measured to."""

from __future__ import annotations

import msgspec

from opsmith.core.timing import Ceilings, Timing, Work
from opsmith.evaluation.roofline.datasheets import Datasheet, datasheet_of
from opsmith.evaluation.roofline.limits import Plausibility, TimeJudgement, bound_us, judge_time

#: A device without a data sheet may have been measured while others used it: a CPU's memory above all.
MEASURED_ALLOWANCE = 2.0


class DeviceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds times against the device.

    Attributes:
        ceilings: what it was measured to reach.
        datasheet: what its maker says; None for a device that is in no table: nothing is impossible there.
    """

    ceilings: Ceilings
    datasheet: Datasheet | None

    @classmethod
    def of(cls, ceilings: Ceilings) -> DeviceLimits:
        """The limits of the device that was measured."""
        return cls(ceilings=ceilings, datasheet=datasheet_of(ceilings.device))

    def percent_of_floor(self, timing: Timing, work: Work) -> float | None:
        """The least time that the device needs for some work, over the candidate's, times 100; None: not known."""
        node_us = timing.node_us if timing.candidate_nodes is not None else None
        least_us = bound_us(work, self.ceilings, node_us)
        return None if least_us is None else 100 * least_us / timing.candidate_us

    def judge(self, call_us: float, work: Work, *, calls: int) -> TimeJudgement:
        """Whether a call can take so long, in a block of so many."""
        return judge_time(call_us, work, datasheet=self.datasheet, ceilings=self.ceilings, sets=calls)

    def wrong_clock(self, timing: Timing, work: Work) -> str:
        """By what the reference exceeds what the device can reach, so that no time of the pair is one; else empty.

        Without a data sheet the limit is what the device was measured to reach, with a generous allowance.
        """
        call_us, calls = timing.reference_us, timing.calls_per_block
        found = self.judge(call_us, work, calls=calls)
        if found.plausibility is Plausibility.IMPOSSIBLE:
            return found.evidence
        is_limit = self.datasheet is None
        allowed = self.judge(MEASURED_ALLOWANCE * call_us, work, calls=calls)
        return found.evidence if is_limit and allowed.plausibility is Plausibility.SUSPECT else ""
