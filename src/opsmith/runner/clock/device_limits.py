"""What a run's device can reach: by its datasheet, and by what it was measured to."""

from __future__ import annotations

import msgspec

from opsmith.core.timing import Ceilings, Timing, Work
from opsmith.evaluation.roofline.datasheets import Datasheet, datasheet_of
from opsmith.evaluation.roofline.limits import TimeJudgement, bound_us, judge_time


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

    def judge(self, timing: Timing, work: Work) -> TimeJudgement:
        """Whether K can be."""
        return judge_time(
            timing.candidate_us,
            work,
            datasheet=self.datasheet,
            ceilings=self.ceilings,
            sets=timing.calls_per_block,
        )
