"""The environment of OpenEnv, played by a scripted policy that cheats, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.benches import ReadingBench, source

pytest.importorskip("openenv.core", reason="needs the extra openenv")

from fastapi.testclient import TestClient

from opsmith.agents.episodes import NOTHING, Episodes
from opsmith.agents.openenv_env import KernelAction, KernelEnvironment, make_app
from opsmith.errors import BadInput


def reply(comment: str) -> str:
    """What a model says whose kernel is worth what the comment tells the judge."""
    return f"```python\n{source(comment)}```\n"


@pytest.fixture
def episodes(tmp_path: Path) -> Iterator[Episodes]:
    """Of two turns."""
    with ReadingBench(["relu.default"], tmp_path) as bench:
        yield Episodes(bench, turns=2, test_share=0.0)


def test_a_policy_that_learns_is_rewarded(episodes: Episodes) -> None:
    """Once the episode is over."""
    environment = KernelEnvironment(episodes)
    first = environment.reset(seed=1)
    assert "relu__default_kernel_impl" in first.text
    wrong, right = (environment.step(KernelAction(reply=reply(words))) for words in ("wrong", "right speed=2"))
    assert (False, 0.0) == (wrong.done, wrong.reward)
    assert "WRONG_VALUE it is" in wrong.text
    assert (True, 2.0, 1.0, 2.0) == (right.done, right.reward, right.parts["right"], right.parts["k"])
    assert ("relu.default", 2) == (environment.state.task, environment.state.step_count)


def test_a_policy_that_cheats_is_not(episodes: Episodes) -> None:
    """And its episode is over."""
    environment = KernelEnvironment(episodes)
    environment.reset(task="relu.default")
    cheat = environment.step(KernelAction(reply=reply("cheat speed=9")))
    assert (True, 0.0, NOTHING) == (cheat.done, cheat.reward, cheat.parts)


def test_mistakes_are_told(episodes: Episodes) -> None:
    """An empty split, and a step before a reset."""
    with pytest.raises(BadInput, match="split 'test' has no task"):
        KernelEnvironment(episodes).reset(split="test")
    with pytest.raises(BadInput, match="reset the environment"):
        KernelEnvironment(episodes).step(KernelAction(reply=""))


def test_the_server_keeps_an_episode_for_each_connection(episodes: Episodes) -> None:
    """Clients of OpenEnv speak to it over a web socket."""
    with TestClient(make_app(episodes)) as client, client.websocket_connect("/ws") as socket:

        def say(kind: str, data: dict[str, object]) -> dict[str, object]:
            socket.send_json({"type": kind, "data": data})
            answer: dict[str, object] = socket.receive_json()["data"]
            return answer

        assert "relu__default_kernel_impl" in str(say("reset", {"task": "relu.default"}))
        assert not say("step", {"reply": reply("wrong")})["done"]
        last = say("step", {"reply": reply("right speed=2")})
        assert (True, 2.0) == (last["done"], last["reward"])
