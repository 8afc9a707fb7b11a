"""Episodes as an environment of OpenEnv (``pip install 'opsmith[openenv]'``).

::

    with Workbench(options, Path("bench"), dsl="triton", jobs=8) as bench:
        uvicorn.run(make_app(Episodes(bench)), port=8000)

A client resets with the name of a task, or with ``split`` and a seed that draws one, and steps with replies.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

import opsmith
from opsmith.agents.episodes import Episode, Episodes
from opsmith.errors import BadInput

#: Episodes that one server has open at a time.
MOST_EPISODES = 64


class KernelAction(Action):
    """A model's reply."""

    reply: str = Field(description="A Python file in a code block, with what a model says around it.")


class KernelObservation(Observation):
    """What a model reads next; ``reward`` is 0 until the episode is over."""

    text: str = Field(description="The task, or what was found about the last kernel.")
    parts: dict[str, float] = Field(
        default_factory=dict, description="right, honest, k, e, roofline: what the reward is made of."
    )


class KernelState(State):
    """Which task is worked on."""

    task: str = ""


class KernelEnvironment(Environment[KernelAction, KernelObservation, KernelState]):
    """One episode at a time; many environments share the judge.

    Args:
        episodes: of an open workbench.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, episodes: Episodes) -> None:
        super().__init__()
        self._episodes = episodes
        self._episode: Episode | None = None
        self._state = KernelState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str = "train",
        **_: Any,
    ) -> KernelObservation:
        """Begin an episode.

        Args:
            seed: draws the task of a split.
            episode_id: what the client calls it.
            task: its name; drawn if None.
            split: ``train`` or ``test``.

        Raises:
            BadInput: there is no such split, or it is empty.
            UnknownName: there is no such task.
        """
        if task is None:
            names = {"train": self._episodes.train, "test": self._episodes.test}.get(split)
            if not names:
                raise BadInput(f"the split {split!r} has no task; it is train or test")
            task = random.Random(seed).choice(names)  # noqa: S311 - which task, no secret
        self._episode = self._episodes.begin(task)
        self._state = KernelState(episode_id=episode_id or uuid.uuid4().hex, step_count=0, task=task)
        return KernelObservation(text=self._episode.prompt, done=False, reward=None)

    def step(self, action: KernelAction, timeout_s: float | None = None, **_: Any) -> KernelObservation:  # noqa: ARG002 - a kernel has the time limits of the judge
        """Judge the kernel of a reply.

        Raises:
            BadInput: no episode has begun, or it is over.
        """
        if self._episode is None:
            raise BadInput("no episode has begun; reset the environment first")
        step = self._episode.step(action.reply)
        self._state.step_count += 1
        return KernelObservation(text=step.observation, done=step.done, reward=step.reward, parts=dict(step.parts))

    @property
    def state(self) -> KernelState:
        """Which task is worked on, and for how many steps."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """What this environment is."""
        return EnvironmentMetadata(
            name="opsmith",
            description="Write kernels for PyTorch, which a judge tests for being right, honest and fast.",
            version=opsmith.__version__,
        )


def make_app(episodes: Episodes, *, most_episodes: int = MOST_EPISODES) -> Any:
    """The server of OpenEnv, an ASGI application."""
    return create_fastapi_app(
        lambda: KernelEnvironment(episodes), KernelAction, KernelObservation, max_concurrent_envs=most_episodes
    )
