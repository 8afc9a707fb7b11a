"""The environment of verifiers, played by scripted policies, one of which cheats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from tests.benches import ReadingBench, source

pytest.importorskip("verifiers.v1", reason="needs the extra verifiers")

import verifiers.v1 as vf

from opsmith.agents.episodes import NOTHING
from opsmith.agents.verifiers_env import KernelEnv, KernelEnvConfig, KernelTaskset, KernelTasksetConfig

TASKSET = "opsmith-verifiers"


class Interaction:
    """Stands in for a model with a harness: it says what it was told to say.

    Attributes:
        heard: what the judge answered.
    """

    def __init__(self, task: Any, replies: Sequence[str]) -> None:
        self.trace = vf.Trace.model_construct(rewards={}, metrics={})
        self.heard: list[str] = []
        self._replies = iter(replies)

    async def turn(self, message: str | None = None) -> Any:
        """The next reply; the run is over when there is none."""
        self.heard += [] if message is None else [message]
        reply = next(self._replies, None)
        return vf.Segment(messages=[], root_reply=reply, terminated=reply is None)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelEnv]:
    """Of two turns, over a judge that reads verdicts."""
    monkeypatch.setattr(KernelTaskset, "_workbench", lambda self, folder: ReadingBench(["relu.default"], folder))
    config = {"id": TASKSET, "test_share": 0.0, "turns": 2, "folder": tmp_path}
    made = vf.load_environment(vf.resolve_env_config({"taskset": config}))
    assert isinstance(made, KernelEnv)
    yield made
    anyio.run(made.stop)


def play(env: KernelEnv, *comments: str) -> Interaction:
    """What an episode with these kernels came to."""
    (task,) = env.taskset
    replies = [f"```python\n{source(comment)}```" for comment in comments]
    interaction = Interaction(task, replies)

    @asynccontextmanager
    async def interact(asked: Any) -> AsyncIterator[Interaction]:
        assert asked is task
        yield interaction

    anyio.run(env.run, task, SimpleNamespace(agent=SimpleNamespace(interaction=interact)))
    return interaction


def test_the_taskset_is_found_by_its_id(env: KernelEnv) -> None:
    """As a training run names it; each prompt is a statement."""
    (task,) = env.taskset
    assert "relu.default" == task.data.name
    assert "relu__default_kernel_impl" in str(task.data.prompt)
    assert KernelTasksetConfig is vf.taskset_config_type(TASKSET)
    assert KernelEnvConfig is vf.env_config_type(TASKSET)


def test_a_policy_that_learns_is_rewarded(env: KernelEnv) -> None:
    """It reads what was found between its turns; the parts are metrics."""
    played = play(env, "wrong", "right speed=2 floor=50")
    assert 2.0 == played.trace.rewards["kernel"].score
    assert {"right": 1.0, "honest": 1.0, "k": 2.0, "e": 0.0, "roofline": 0.5} == played.trace.metrics
    (heard,) = played.heard
    assert "WRONG_VALUE it is" in heard


def test_a_policy_that_cheats_is_not(env: KernelEnv) -> None:
    """Nothing is said to it any more."""
    played = play(env, "cheat speed=9", "right speed=2")
    assert (0.0, NOTHING, []) == (played.trace.rewards["kernel"].score, played.trace.metrics, played.heard)


def test_a_policy_that_stops_keeps_what_it_has(env: KernelEnv) -> None:
    """Its tokens may end before its turns do; who says nothing gets nothing."""
    assert 2.0 == play(env, "right speed=2").trace.rewards["kernel"].score
    silent = play(env)
    assert (0.0, NOTHING) == (silent.trace.rewards["kernel"].score, silent.trace.metrics)
