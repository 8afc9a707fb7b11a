"""Episodes as a taskset and an environment of verifiers (``pip install 'opsmith[verifiers]'``).

The id of the taskset is ``opsmith-verifiers``::

    [env]
    taskset = { id = "opsmith-verifiers", ops = ["softmax*"], split = "train", device = "cuda" }

A task's prompt is its statement. The judge answers each reply as the user, and the trace of an episode ends with the
reward ``kernel`` and its parts as metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf

from opsmith.agents.episodes import NOTHING, Episodes, Step
from opsmith.agents.workbench import Workbench
from opsmith.core.run import Options
from opsmith.errors import BadInput

__all__ = ["KernelEnv", "KernelTaskset"]


class KernelTasksetConfig(vf.TasksetConfig):
    """What is asked, and how strictly; the fields of a run's options.

    Attributes:
        split: the tasks to train on, or those to test on.
        split_seed: of the split.
        test_share: share of the ops that are in the test set.
        turns: kernels that a model may write for a task.
        folder: of the workbench; a temporary one if None.
    """

    suite: str = "opinfo"
    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("f32",)
    device: str = "cuda"
    dsl: str = "triton"
    policy: Literal["native", "any"] = "native"
    timing: Literal["off", "quick", "full"] = "quick"
    jobs: int = 1
    split: Literal["train", "test"] = "train"
    split_seed: int = 0
    test_share: float = 0.2
    turns: int = 4
    folder: Path | None = None


class KernelData(vf.TaskData):
    """A task of opsmith's; its name is the overload."""


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """A kernel to be written; :class:`KernelEnv` judges it."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The tasks of one split. They are listed by a judge, which starts when they are first read."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        super().__init__(config)
        self._open = contextlib.ExitStack()
        self._episodes: Episodes | None = None

    @property
    def episodes(self) -> Episodes:
        """Of the judge, which is started if need be."""
        if self._episodes is None:
            config = self.config
            folder = config.folder or Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="opsmith-")))
            bench = self._open.enter_context(self._workbench(folder))
            self._episodes = Episodes(bench, turns=config.turns, seed=config.split_seed, test_share=config.test_share)
        return self._episodes

    def _workbench(self, folder: Path) -> Workbench:
        config = self.config
        options = Options(
            suite=config.suite,
            backend="verifiers",
            device=config.device,
            dtypes=config.dtypes,
            ops=config.ops,
            policy=config.policy,
            timing=config.timing,
        )
        return Workbench(options, folder, dsl=config.dsl, jobs=config.jobs)

    def load(self) -> Iterable[KernelTask]:
        """The tasks, with their statements as prompts."""
        episodes = self.episodes
        for name in episodes.train if self.config.split == "train" else episodes.test:
            yield KernelTask(KernelData(name=name, prompt=episodes.prompt(name)), self.config.task)

    def close(self) -> None:
        """End the judge."""
        self._episodes = None
        self._open.close()


class KernelEnvConfig(vf.EnvConfig):
    """The model that writes has the seat ``agent``. It gets no tools: the judge is its user."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"})


class KernelEnv(vf.Env[KernelEnvConfig]):
    """One model at one task, which the judge answers."""

    async def run(self, task: vf.Task[Any, Any, Any], agents: vf.Agents) -> None:
        """Play an episode, and record its reward and the parts of it."""
        taskset = self.taskset
        if not isinstance(taskset, KernelTaskset):
            raise BadInput(f"the environment judges kernels, and {type(taskset).__name__} has other tasks")
        episode = await asyncio.to_thread(taskset.episodes.begin, task.data.name or "")
        step: Step | None = None
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                step = await asyncio.to_thread(episode.step, segment.last_reply)
                if step.done:
                    break
                segment = await interaction.turn(step.observation)
        if step is not None and not step.done:
            step = await asyncio.to_thread(episode.end)
        trace = interaction.trace
        trace.record_reward("kernel", step.reward if step else 0.0)
        trace.record_metrics(step.parts if step else NOTHING)

    async def stop(self) -> None:
        """End the judge."""
        if isinstance(self.taskset, KernelTaskset):
            await asyncio.to_thread(self.taskset.close)
