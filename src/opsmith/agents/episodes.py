"""Episodes for reinforcement learning: a model writes a kernel, reads what was found, and writes a better one.

::

    with Workbench(options, Path("bench"), dsl="triton", jobs=8) as bench:
        episodes = Episodes(bench, turns=4)
        episode = episodes.begin(episodes.train[0])
        step = episode.step(reply_to(episode.prompt))
        while not step.done:
            step = episode.step(reply_to(step.observation))
        step.reward, step.parts

Adapters for libraries of environments stand beside this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from opsmith.agents.workbench import Workbench
from opsmith.core.run import OpSummary
from opsmith.errors import BadInput
from opsmith.generate.feedback import judged_findings
from opsmith.generate.prompt import IN_A_REPLY, entry_point
from opsmith.generate.reply import NoCode, kernel_source
from opsmith.generate.reward import reward_of, why_not
from opsmith.session import Judged

DISHONEST = "This kernel is dishonest: {detail}. The episode is over, and nothing is earned."
NOTHING = {"right": 0.0, "honest": 0.0, "k": 0.0, "e": 0.0, "roofline": 0.0}
WRONG = {**NOTHING, "honest": 1.0}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a reply.

    Attributes:
        observation: what was found about the kernel, as a model reads it.
        done: the episode is over.
        reward: 0 until it is over. Then that of the best kernel that was accepted: its speedup, at most 10, or 1 where
            nothing is timed; judged again on values that no observation told of. 0 without one, or after a
            dishonest kernel.
        parts: what the reward is made of, for whoever weighs it otherwise: ``right`` and ``honest`` (0 or 1), ``k`` and
            ``e`` (speedups), ``roofline`` (share of what the device can do). All 0 after a dishonest kernel, and all
            but ``honest`` without an accepted one.
    """

    observation: str
    done: bool
    reward: float
    parts: Mapping[str, float]


class Episodes:
    """The tasks of a workbench, split into those to train on and those to test on.

    Args:
        bench: an open workbench.
        turns: kernels that a model may write for a task.
        seed: of the split.
        test_share: share of the ops that are in the test set.
    """

    def __init__(self, bench: Workbench, *, turns: int = 4, seed: int = 0, test_share: float = 0.2) -> None:
        if turns < 1:
            raise BadInput(f"an episode has at least one turn, not {turns}")
        self._bench = bench
        self._turns = turns
        self.train, self.test = split((task.name for task in bench.tasks()), seed=seed, test_share=test_share)

    def prompt(self, task: str) -> str:
        """What a model reads first.

        Raises:
            UnknownName: there is no such task.
        """
        return self._bench.statement(task, answer=IN_A_REPLY)

    def begin(self, task: str) -> Episode:
        """An episode.

        Raises:
            UnknownName: there is no such task.
        """
        return Episode(self._bench, task, self.prompt(task), turns=self._turns)


class Episode:
    """One model at one task; made by :meth:`Episodes.begin`.

    Attributes:
        task: its name.
        prompt: what the model reads first.
    """

    def __init__(self, bench: Workbench, task: str, prompt: str, *, turns: int) -> None:
        self.task = task
        self.prompt = prompt
        self._bench = bench
        self._turns = turns
        self._entry = entry_point(bench.session.tasks[task])
        self._best: tuple[float, str] | None = None
        self._over = False

    def step(self, reply: str) -> Step:
        """Judge the kernel in a reply.

        Args:
            reply: a model's, with a Python file in a code block.

        Raises:
            BadInput: the episode is over.
        """
        if self._over:
            raise BadInput(f"the episode of {self.task} is over; begin another one")
        self._turns -= 1
        timed = self._bench.options.timing != "off"
        try:
            source = kernel_source(reply, self._entry, complete=True)
            judged = (self._bench.time if timed else self._bench.check)(self.task, source)
        except (NoCode, BadInput) as exc:
            return self._next(f"There was no kernel in the reply: {exc}.")
        if judged.summary.dishonest:
            self._over = True
            text = DISHONEST.format(detail=why_not(judged.verdicts))
            return Step(observation=text, done=True, reward=0.0, parts=parts_of(judged.summary))
        if judged.accepted:
            speed = judged.speedup or 0.0
            if self._best is None or speed > self._best[0]:
                self._best = speed, source
        return self._next(judged_findings(judged), enough=judged.accepted and not timed)

    def end(self) -> Step:
        """End the episode before its turns are used up, as when a model has no tokens left."""
        self._turns = 0
        return self._next("")

    def _next(self, observation: str, *, enough: bool = False) -> Step:
        if self._turns > 0 and not enough:
            return Step(observation=observation, done=False, reward=0.0, parts=NOTHING)
        self._over = True
        if self._best is None:
            return Step(observation=observation, done=True, reward=0.0, parts=WRONG)
        last = self._bench.judge_again(self.task, self._best[1])
        return Step(
            observation=observation,
            done=True,
            reward=_value(last),
            parts=parts_of(last.summary),
        )


def _value(judged: Judged) -> float:
    return reward_of(judged.summary, "").value


def parts_of(summary: OpSummary) -> Mapping[str, float]:
    """What a kernel's reward is made of; see :class:`Step`."""
    if summary.dishonest:
        return NOTHING
    if not summary.accepted:
        return WRONG
    return {
        "right": 1.0,
        "honest": 1.0,
        "k": summary.speedup_k or 0.0,
        "e": summary.speedup_e or 0.0,
        "roofline": min(1.0, (summary.percent_of_floor or 0.0) / 100),
    }


def split(tasks: Iterable[str], *, seed: int, test_share: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tasks to train on and to test on, by a hash: a task stays where it is when others come.

    All overloads of an op, its in-place form and its gradient are on one side.

    Raises:
        BadInput: the share is not between 0 and 1.
    """
    if not 0 <= test_share <= 1:
        raise BadInput(f"the share of test tasks is between 0 and 1, not {test_share}")
    sides: tuple[list[str], list[str]] = ([], [])
    for task in sorted(tasks):
        drawn = hashlib.sha256(f"{seed} {_family(task)}".encode()).digest()
        sides[int.from_bytes(drawn[:8]) / 2**64 < test_share].append(task)
    return tuple(sides[0]), tuple(sides[1])


def _family(task: str) -> str:
    packet = task if "/" in task else task.rpartition(".")[0]
    return packet.partition("_backward")[0].strip("_")
