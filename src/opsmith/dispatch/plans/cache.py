"""The plans of one kernel by signature.

A signature is noted at its first call and recorded at its second: what is called once needs no plan. The launcher in
C++ asks Python for what it has no plan for, and :meth:`PlanCache.find` hands it the plan that there is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from opsmith.dispatch.plans.cuda_driver import Driver
from opsmith.dispatch.plans.encoding import Table
from opsmith.dispatch.plans.fp32_precision import in_force
from opsmith.dispatch.plans.inline_cache import FastPath
from opsmith.dispatch.plans.plan import LaunchPlan, Refusal
from opsmith.dispatch.plans.replay import Replay
from opsmith.dispatch.plans.signature import Addresses, Signature, Tensors

#: Signatures kept for an op; a model with dynamic shapes brings a new one with each call.
_KEPT = 1024


class PlanCache:
    """The plans of one kernel in use.

    Args:
        driver: of the device type that it serves.
        bypass: true if a call of these tensors must bypass the cache though its signature may have a plan; None if no
            call ever does.

    Attributes:
        driver, bypass: as given.
        replayed: how many calls were answered by plans here.
        refusals: how many signatures have no plan, and why.
        table: where C++ finds plans, once a front uses one.
        fast_path: serves calls like the last one, while there is no table.
    """

    def __init__(self, driver: Driver, *, bypass: Callable[[Tensors], bool] | None = None) -> None:
        self.driver, self.bypass = driver, bypass
        self.replayed = 0
        self.refusals: dict[Refusal, int] = {}
        self.table: Table | None = None
        #: Several where settings that host code reads have changed; none where recording was refused.
        self._replays: dict[Signature, tuple[Replay, ...]] = {}
        self._seen: set[Signature] = set()
        self.fast_path: FastPath | None = None

    @property
    def replayed_in_cpp(self) -> int:
        """How many calls were answered by plans in C++."""
        return 0 if self.table is None else self.table.replayed

    def table_in(self, library: ctypes.CDLL) -> Table:
        """Where C++ finds the plans; from now on it is told of them."""
        if self.table is None:
            self.table, self.fast_path = Table(library), None
        return self.table

    def find(self, signature: Signature | None, addresses: Addresses) -> Replay | None:
        """The plan of a call, if there is one that fits; C++ is told of it, which had none."""
        if signature is None:
            return None
        for replay in self._replays.get(signature, ()):
            if replay.fits(addresses):
                if self.table is not None and not replay.plan.draws:
                    if replay.words is None:
                        replay.words = self.table.words(replay.plan)
                    self.table.learn(replay.words)
                return replay
        return None

    def wants(self, signature: Signature | None) -> bool:
        """Whether a call is to be recorded: its signature was seen before, and has no plan for settings as they are."""
        if signature is None:
            return False
        known = self._replays.get(signature)
        if known is not None:
            return known != () and not any(in_force(replay.plan.precisions) for replay in known)
        if signature in self._seen:
            return True
        if len(self._seen) >= _KEPT:
            self._seen.clear()
        self._seen.add(signature)
        return False

    def keep(self, signature: Signature, plan: LaunchPlan | Refusal) -> None:
        """Keep what became of recording a call: its plan, or that there is none."""
        if len(self._replays) >= _KEPT:
            self._replays.clear()
            if self.table is not None:
                self.table.clear()
        if isinstance(plan, Refusal):
            self.refusals[plan] = self.refusals.get(plan, 0) + 1
            self._replays[signature] = ()
        else:
            known = self._replays.get(signature, ())
            others = (replay for replay in known if replay.plan.precisions != plan.precisions)
            self._replays[signature] = (*others, Replay(plan, self.driver))
        self._seen.discard(signature)
