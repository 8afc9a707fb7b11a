"""Episodes: findings as observations, and rewards that only right and honest kernels earn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.benches import ReadingBench, source

from opsmith.agents.episodes import NOTHING, Episodes, Step, split
from opsmith.errors import BadInput


def reply(comment: str) -> str:
    """What a model says whose kernel is worth what the comment tells the judge."""
    return f"Here it is.\n```python\n{source(comment)}```\n"


@pytest.fixture
def episodes(tmp_path: Path) -> Iterator[Episodes]:
    """Of three turns."""
    with ReadingBench(["relu.default"], tmp_path) as bench:
        yield Episodes(bench, turns=3, test_share=0.0)


def play(episodes: Episodes, *comments: str) -> Step:
    """The last step of an episode with these kernels."""
    episode = episodes.begin("relu.default")
    steps = [episode.step(reply(comment)) for comment in comments]
    assert [False] * (len(steps) - 1) == [step.done for step in steps[:-1]]
    assert [0.0] * (len(steps) - 1) == [step.reward for step in steps[:-1]]
    return steps[-1]


def test_the_best_kernel_of_an_episode_is_rewarded(episodes: Episodes) -> None:
    """Not the last one."""
    step = play(episodes, "wrong", "right speed=4 floor=60", "right speed=2")
    assert (True, 4.0) == (step.done, step.reward)
    assert {"right": 1.0, "honest": 1.0, "k": 4.0, "e": 0.0, "roofline": 0.6} == step.parts


def test_findings_are_observations(episodes: Episodes) -> None:
    """A model learns within an episode from what was found."""
    episode = episodes.begin("relu.default")
    assert "one ```python code block" in episode.prompt
    assert "WRONG_VALUE it is" in episode.step(reply("wrong")).observation
    assert "no kernel in the reply" in episode.step("I cannot.").observation
    assert "The kernel is right" in episode.step(reply("right speed=2")).observation


def test_a_cheat_ends_the_episode_and_earns_nothing(episodes: Episodes) -> None:
    """Nor does the honest kernel before it: trying must not pay."""
    for comments in (("cheat speed=9",), ("right speed=4", "cheat speed=9")):
        step = play(episodes, *comments)
        assert (True, 0.0, NOTHING) == (step.done, step.reward, step.parts)
        assert "DISHONEST it is" in step.observation


def test_wrong_kernels_earn_nothing(episodes: Episodes) -> None:
    """However fast; they are honest, which is a part of its own."""
    step = play(episodes, "wrong speed=9", "compose speed=9", "wrong speed=9")
    assert (True, 0.0, {**NOTHING, "honest": 1.0}) == (step.done, step.reward, step.parts)


def test_an_episode_that_is_over_takes_no_replies(episodes: Episodes) -> None:
    """A program that goes on has a defect."""
    episode = episodes.begin("relu.default")
    episode.step(reply("cheat"))
    with pytest.raises(BadInput, match="is over"):
        episode.step(reply("right"))


def test_an_episode_that_is_cut_short_keeps_what_it_has(episodes: Episodes) -> None:
    """A model may run out of tokens before its turns are used up."""
    episode = episodes.begin("relu.default")
    episode.step(reply("right speed=2"))
    assert (True, 2.0) == (episode.end().done, 2.0)


def test_without_timing_a_right_kernel_is_enough(tmp_path: Path) -> None:
    """There is nothing to improve."""
    with ReadingBench(["relu.default"], tmp_path, timing="off") as bench:
        step = Episodes(bench, turns=3).begin("relu.default").step(reply("right"))
    assert (True, 1.0) == (step.done, step.reward)


def test_tasks_are_split_by_the_seed_and_families_stay_together() -> None:
    """A test set that holds the gradient of an op that was trained on tests little."""
    names = [f"{op}{form}" for op in "abcdefghijklmnop" for form in (".default", "_.default", "_backward.grad_input")]
    train, test = split(names, seed=1, test_share=0.3)
    assert sorted(names) == sorted((*train, *test))
    assert not {name[0] for name in train} & {name[0] for name in test}
    assert 0 < len(test) < len(train)
    assert (train, test) == split(reversed(names), seed=1, test_share=0.3)
    assert test != split(names, seed=2, test_share=0.3)[1]
    assert (tuple(sorted(names)), ()) == split(names, seed=1, test_share=0)
    with pytest.raises(BadInput, match="between 0 and 1"):
        split(names, seed=1, test_share=2)
