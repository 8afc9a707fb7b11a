"""Rewards for reinforcement learning: a number for a kernel's source, that cheating does not raise.

::

    with Session(options, Path("judged"), jobs=8) as session:
        rewards = Rewards(session, Path("sources"))
        rewards.of("relu.default", source).value
        [reward.value for reward in rewards.of_batch([("relu.default", source), ...])]
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from opsmith.core.case import digest
from opsmith.core.run import OpSummary, write_atomically
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput
from opsmith.session import Judged, Session

#: A speed-up counts up to here: what lies beyond is mostly a reference that is slow for other reasons.
MOST_SPEEDUP = 10.0


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel is worth.

    Attributes:
        value: 0 unless the kernel is accepted; then its speed-up, at most :data:`MOST_SPEEDUP`, or 1 where nothing was
            timed. There is nothing for passing some of the cases, which is what constants are good at.
        accepted: right on all cases, by what the policy allows and honestly.
        policy: it composes, in the open, what the session's policy does not allow.
        dishonest: it hid what it does, or tampered with the judge.
        passed: share of the cases that passed, for shaping rewards of one's own.
        speedup: over the session's baseline; None where nothing was timed.
        percent_of_floor: of what the device can do; None where that is not known.
        detail: why it is not accepted, in one line; empty otherwise.
    """

    value: float
    accepted: bool
    policy: bool
    dishonest: bool
    passed: float
    speedup: float | None
    percent_of_floor: float | None
    detail: str


class Rewards:
    """Judges sources with a session.

    Args:
        session: an open one; its policy, tolerance and timing hold.
        folder: takes the sources as files; made if it does not exist.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def of(self, task: str, source: str) -> Reward:
        """The reward of one kernel; may be called from several threads.

        Args:
            task: a name of the session's tasks.
            source: of a Python file that defines ``<op>__<overload>_kernel_impl``, or ``ModelNew``.

        Raises:
            UnknownName: the session has no such task.
        """
        try:
            named = f"{task} {source}".encode()
        except UnicodeEncodeError as exc:
            return _nothing(f"the source is not text in UTF-8: {exc.reason}")
        folder = self._folder / digest(named)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "kernel.py", source.encode())
        try:
            return _reward(self._session.judge(task, folder / "kernel.py"))
        except BadInput as exc:
            return _nothing(str(exc))

    def of_batch(self, kernels: Iterable[tuple[str, str]], *, at_a_time: int = 16) -> list[Reward]:
        """The rewards of many (task, source) pairs, in their order."""
        with ThreadPoolExecutor(at_a_time, thread_name_prefix="reward") as pool:
            return list(pool.map(lambda pair: self.of(*pair), kernels))


def _reward(judged: Judged) -> Reward:
    return reward_of(judged.summary, why_not(judged.verdicts))


def why_not(verdicts: Iterable[Verdict]) -> str:
    """Why a kernel with these verdicts is not accepted, in one line; empty if nothing counts against it."""
    return next((f"{each.status}: {each.detail}" for each in verdicts if each.counts_against), "")


def reward_of(summary: OpSummary, detail: str) -> Reward:
    """The reward of a kernel that was judged.

    Args:
        summary: the scores of its task.
        detail: why it is not accepted.
    """
    speedup = summary.speedup_k if summary.speedup_k is not None else summary.speedup_e
    earned = 1.0 if speedup is None else min(speedup, MOST_SPEEDUP)
    return Reward(
        value=earned if summary.accepted else 0.0,
        accepted=summary.accepted,
        policy=bool(summary.policy),
        dishonest=bool(summary.dishonest),
        passed=summary.passed / summary.cases if summary.cases else 0.0,
        speedup=speedup,
        percent_of_floor=summary.percent_of_floor,
        detail=detail,
    )


def _nothing(detail: str) -> Reward:
    return Reward(
        value=0.0,
        accepted=False,
        policy=False,
        dishonest=False,
        passed=0.0,
        speedup=None,
        percent_of_floor=None,
        detail=detail,
    )
