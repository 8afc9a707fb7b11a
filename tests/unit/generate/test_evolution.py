"""Evolution: islands, elites of each kind, crossings; and kernels that are tuned without a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.unit.generate.test_campaign import Scripted

from opsmith.core.case import digest
from opsmith.errors import BadInput
from opsmith.generate.attempt import Outcome
from opsmith.generate.budget import Budget
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import KernelAuthor, NoReply, Reply, Request, TaskAuthor, Usage
from opsmith.generate.evolution import Evolve, elites, features
from opsmith.generate.providers import full_names
from opsmith.generate.providers.inductor import InductorAuthor
from opsmith.generate.providers.tuner import TuningAuthor

RELU = "relu.default"
TRITON = """import torch, triton
import triton.language as tl

@triton.jit
def double(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


def relu__default_kernel_impl(self):
    out = torch.empty_like(self)  # right speed={speed}
    double[(triton.cdiv(self.numel(), 1024),)](self, out, self.numel(), BLOCK=1024, num_warps=4)
    return out
"""


def evolved(out: Path, models: list[Any], attempts: int, **changes: Any) -> TaskHistory:
    """One task, by evolution."""
    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(
        **({"judging": judging, "strategy": "evolve", "attempts": attempts, "models": tuple(m.name for m in models)})
        | changes
    )
    [history] = run_campaign(out, options, models, ReadingSession([RELU], timing="quick"))
    return history


def climber(name: str) -> Scripted:
    """A model whose kernels are a little faster than the fastest that it is shown, and of different kinds."""

    def say(request: Request) -> str:
        text = "".join(message.text for message in request.messages)
        shown = [float(word.partition("speed=")[2]) for word in text.split() if word.startswith("speed=")]
        loops = "\n".join("    for _ in (): pass" for _ in range(request.number % 3))
        comment = f"right speed={max(shown, default=1.0) + 0.1:.1f}\n{loops}"
        return reply(RELU, comment)

    return Scripted(name, say)


def test_every_member_makes_as_many_attempts_as_in_the_other_strategies(tmp_path: Path) -> None:
    """One a round, on one island after another; so budgets and curves compare."""
    history = evolved(tmp_path, [climber("openai:a"), climber("openai:b")], 6)
    assert 12 == len(history.attempts)
    assert [6, 6] == [sum(a.move.member == member for a in history.attempts) for member in (0, 1)]
    island = [(a.move.member + a.round) % 3 for a in history.attempts]
    assert {0, 1, 2} == set(island)
    for attempt in history.attempts:
        place = island[attempt.index]
        migrates = attempt.round % 3 == 0
        near = {place, (place + 1) % 3} if migrates else {place}
        assert all(island[shown] in near and shown < attempt.index for shown in attempt.move.shown)


def test_two_kernels_are_crossed_by_the_prompt(tmp_path: Path) -> None:
    """Both are shown, and one is asked for."""
    model = climber("openai:a")
    history = evolved(tmp_path, [model], 20)
    crossed = [attempt for attempt in history.attempts if attempt.move.crosses]
    assert crossed
    assert all(2 == len(set(attempt.move.shown)) for attempt in crossed)
    asked = {request.key: request for request in model.asked}
    said = asked[crossed[0].exchange].messages[-1].text
    assert "Make one kernel of those above" in said
    plain = next(attempt for attempt in history.attempts if len(attempt.move.shown) == 1)
    assert "Make it faster" in asked[plain.exchange].messages[-1].text


def test_a_slow_kernel_of_another_kind_is_kept(tmp_path: Path) -> None:
    """The best of each kind of code and band of speed; no cheat among them."""
    words = ["right speed=3", "right speed=1.5\n    for _ in (): pass", "right speed=2.9", "wrong", "cheat"]
    model = Scripted("openai:m", lambda request: reply(RELU, words[request.number]))
    history = evolved(tmp_path, [model], 5, strategy="best-of-n")
    assert [0, 1] == [attempt.index for attempt in elites(history.attempts).values()]
    assert [3] == [attempt.index for attempt in elites(history.attempts[3:]).values()]
    assert features("for x in y: f[3](x)")[:2] == (1, 1)
    assert features("not Python (") == (0, 0, 0)


def test_it_is_a_function_of_the_attempts(tmp_path: Path) -> None:
    """So that a resumed campaign asks what it asked."""
    history = evolved(tmp_path, [climber("openai:a"), climber("openai:b")], 6)
    strategy, made = Evolve(2, 6, timed=True), list(history.attempts)
    for number in range(6):
        before = [attempt for attempt in made if attempt.round < number]
        assert [a.move for a in made if a.round == number] == list(strategy.moves(before))
    assert not strategy.moves(made)
    nobody = Scripted("openai:a", lambda _: AssertionError()), Scripted("openai:b", lambda _: AssertionError())
    assert history == evolved(tmp_path, list(nobody), 6)


class Compiler:
    """Stands in for torch's compiler."""

    name = "inductor"

    def write(self, *_task: object, number: int, **_how: object) -> Reply:
        if number:
            raise NoReply("the compiler writes the same kernel again", may_have_cost=False)
        return Reply(text=f"~~~~python\n{TRITON.replace('{speed}', '1.1')}~~~~\n", usage=Usage(0, 0))

    def close(self) -> None: ...


class Tunable(ReadingSession):
    """Kernels in wide tiles with eight warps are fast; tiles of more than 4,096 are wrong."""

    def calls(self, _task: str) -> list[Any]:
        return []

    def judge_kernel(self, task: str, kernel: Any, **how: Any) -> Any:
        path = Path(kernel.root) / kernel.entry.partition(":")[0]
        source = path.read_text()
        tile, warps = (int(found) for found in re.findall(r"(?:BLOCK|num_warps)=(\d+)", source))
        speed = 1.1 + (tile == 4096) * 0.5 + (warps == 8) * 0.5
        path.write_text(source.replace("speed=1.1", f"speed={speed}") if tile <= 4096 else source.replace("right", ""))
        judged = super().judge_kernel(task, kernel, **how)
        path.write_text(source)
        return judged


@pytest.mark.parametrize("strategy", ["evolve", "swarm"])
@pytest.mark.slow
def test_a_swarm_without_a_key_beats_its_best_member(tmp_path: Path, strategy: str) -> None:
    """The compiler writes, the tuner varies what it wrote; no question costs anything, and none is asked twice."""
    judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
    options = campaign_options(
        judging=judging,
        strategy=strategy,
        attempts=24,
        dsl="triton",
        models=("inductor", "tuner"),
        budget=Budget(tokens=0),
    )
    session = Tunable([RELU], timing="quick")
    [history] = run_campaign(tmp_path, options, [Compiler(), TuningAuthor("")], session)
    speeds = {a.index: a.judged.speedup or 0.0 for a in history.attempts if a.accepted and a.judged}
    top = history.attempts[max(speeds, key=lambda index: speeds[index])]
    assert "tuner" == top.model
    assert pytest.approx(2.1) == speeds[top.index]
    written = [attempt.source for attempt in history.attempts if attempt.outcome is Outcome.JUDGED]
    assert len(written) == len(set(written)) > 10
    assert history.attempts[1].problem == "there is no right kernel yet that could be tuned"
    again = run_campaign(tmp_path, options, [Compiler(), TuningAuthor("")], Tunable([RELU], timing="quick"))
    assert [history] == again


def test_a_tuner_alone_begins_with_a_reference(tmp_path: Path) -> None:
    """A kernel directory of the user's, by ``--references``."""
    folder = tmp_path / "kernels" / "relu__default"
    folder.mkdir(parents=True)
    (folder / "relu__default_implementation_v1.py").write_text(TRITON.replace("{speed}", "1.3"))
    options = campaign_options(attempts=3, dsl="triton", models=("tuner",), references=str(tmp_path / "kernels"))
    session = ReadingSession([RELU])
    [history] = run_campaign(tmp_path / "out", options, [TuningAuthor("")], session)
    assert history.attempts[0].accepted
    assert TRITON.replace("{speed}", "1.3") != history.attempts[0].source


@pytest.mark.parametrize(
    ("source", "tried", "dsl", "why"),
    [
        (TRITON, "", "cpp", "not in cpp"),
        ("x = 1", "", "triton", "no constant"),
        ("not Python (", "", "triton", "no constant"),
    ],
)
def test_what_it_cannot_tune_costs_nothing(source: str, tried: str, dsl: str, why: str) -> None:
    """And says why, in the attempt."""
    with pytest.raises(NoReply, match=why) as raised:
        TuningAuthor("").vary(source, tried, dsl=dsl, number=0)
    assert not raised.value.may_have_cost


def test_a_tuner_ends_when_all_was_tried() -> None:
    """Of a kernel with one constant, whose values are few."""
    source = TRITON.replace("(self, out, self.numel(), BLOCK=1024, num_warps=4)", "(self, out, 8, **how)")
    source = source.replace("1024", "n").replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 16384")
    tried: set[str] = {digest(source.encode())}
    tuner = TuningAuthor("")
    for _ in range(5):
        text = tuner.vary(source, tried, dsl="triton", number=0).text
        tried.add(digest(text.removeprefix("~~~~python\n").removesuffix("~~~~\n").encode()))
    assert 6 == len(tried)
    with pytest.raises(NoReply, match="every variation"):
        tuner.vary(source, tried, dsl="triton", number=0)


def test_keyless_members_are_named_with_a_comma() -> None:
    """``--provider inductor,tuner``; or each as a model, beside others."""
    assert isinstance(TuningAuthor(""), KernelAuthor)
    made = InductorAuthor("")
    assert isinstance(made, TaskAuthor)
    assert not isinstance(made, KernelAuthor)
    made.close()
    assert ("inductor", "command") == full_names("inductor,command", ())
    assert ("inductor", "openai:m") == full_names(None, ["inductor", "openai:m"])
    with pytest.raises(BadInput, match="names one twice"):
        full_names("inductor,inductor", ())
    with pytest.raises(BadInput, match="PROVIDER:MODEL"):
        full_names("inductor,openai", ["m"])
    with pytest.raises(BadInput, match="has no models"):
        TuningAuthor("big")
