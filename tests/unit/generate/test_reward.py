"""Rewards: a number that only right and honest kernels raise."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns import ReadingSession

from opsmith.core.op import folder_name
from opsmith.errors import UnknownName
from opsmith.generate.reward import MOST_SPEEDUP, Reward, Rewards


def kernel(comment: str, op: str = "relu.default") -> str:
    """A source that tells the judge what it is worth."""
    return f"def {folder_name(op)}_kernel_impl(self):\n    return self  # {comment}\n"


@pytest.fixture
def rewards(tmp_path: Path) -> Rewards:
    """Of a session that reads verdicts."""
    session = ReadingSession(["relu.default", "exp.default"], timing="quick")
    return Rewards(session, tmp_path / "sources")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("comment", "value"),
    [
        ("right speed=1.5", 1.5),
        ("right speed=0.4", 0.4),
        ("right speed=99", MOST_SPEEDUP),
        ("right", 1.0),
        ("wrong speed=9", 0.0),
        ("cheat right speed=9", 0.0),
        ("compose right speed=9", 0.0),
    ],
)
def test_only_right_and_honest_kernels_earn(rewards: Rewards, comment: str, value: float) -> None:
    """As much as they are faster, up to a limit."""
    assert value == rewards.of("relu.default", kernel(comment)).value


def test_what_earns_nothing_says_why(rewards: Rewards) -> None:
    """For whoever debugs a training run."""
    wrong, cheat, open_ = (rewards.of("relu.default", kernel(word)) for word in ("wrong", "cheat", "compose"))
    assert ("WRONG_VALUE: WRONG_VALUE it is", False) == (wrong.detail, wrong.dishonest)
    assert [(True, False), (False, True)] == [(each.dishonest, each.policy) for each in (cheat, open_)]
    assert "POLICY: POLICY it is" == open_.detail
    assert "defines no kernel" in rewards.of("relu.default", "def other(): pass\n").detail


def test_a_batch_keeps_its_order(rewards: Rewards) -> None:
    """Whatever is judged first."""
    speeds = [1 + number / 4 for number in range(30)]
    batch = [("relu.default", kernel(f"right speed={speed}")) for speed in speeds]
    found: list[Reward] = rewards.of_batch(batch)
    assert pytest.approx(speeds) == [reward.value for reward in found]


def test_an_unknown_task_is_an_error(rewards: Rewards) -> None:
    """It is the caller's, not the kernel's."""
    with pytest.raises(UnknownName):
        rewards.of("relu.other", kernel("right"))
