"""Trials of ways to make a call: what is timed, what is not, and the book that keeps them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.trials import turns
from opsmith.trials.book import Trial, TrialBook
from opsmith.trials.turns import hold_trial


class Clock:
    """Seconds that pass only when a call says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def way(self, us: float, answer: Callable[[], object]) -> Callable[[], object]:
        """A way of making a call that takes so many microseconds."""

        def call() -> object:
            self.now += us * 1e-6
            return answer()

        return call


def _held(ways: Mapping[str, tuple[float, Callable[[], object]]], **settings: Any) -> Trial:
    clock = Clock()
    given = {name: clock.way(us, answer) for name, (us, answer) in ways.items()}
    return hold_trial("mm(f32[2, 2])", given, synchronise=lambda: None, clock=clock, **settings)


def test_each_way_gets_its_time() -> None:
    """And 5 % less is enough to be taken."""
    ones = torch.ones(2, 2)
    trial = _held({"library": (100, lambda: ones), "kernel": (95, lambda: ones + 1e-7), "slow": (96, lambda: ones)})
    assert trial.us == pytest.approx({"library": 100, "kernel": 95, "slow": 96})
    assert [True, False] == [trial.is_faster(way, "library", 0.951) for way in ("kernel", "slow")]
    assert "mm(f32[2, 2]): library 100.0 us, kernel 95.0 us, slow 96.0 us" == trial.line()


@pytest.mark.parametrize("seed", range(5))
def test_what_others_do_on_the_device_is_nobodys_time(seed: int) -> None:
    """Four of five rounds are longer for it, by as much as they are long or by twenty times that."""
    chance = random.Random(seed)
    clock = Clock()

    def way(us: float) -> Callable[[], object]:
        def call() -> object:
            clock.now += us * 1e-6 * (chance.uniform(1, 20) if chance.random() < 0.2 else 1)
            return 1

        return call

    trial = hold_trial("mm", {"library": way(100), "kernel": way(80)}, synchronise=lambda: None, clock=clock)
    assert trial.us == pytest.approx({"library": 100, "kernel": 80}, rel=0.02)


def test_rounds_come_to_an_end() -> None:
    """Where no time is ever reached twice."""
    clock = Clock()
    calls: list[None] = []

    def slower() -> object:
        calls.append(None)
        clock.now += 1e-3 * 1.2 ** len(calls)
        return 1

    hold_trial("mm", {"library": slower}, synchronise=lambda: None, clock=clock)
    # Twice: alone, and with the others that there might be; of two calls a round, and two to count them by.
    assert len(calls) <= 1 + 2 * 2 * (turns.MOST_ROUNDS + 1)


def _raise(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (_raise(NotImplementedError("no complex numbers")), "declined: no complex numbers"),
        (_raise(RuntimeError("out of\nmemory")), "RuntimeError: out of memory"),
        (lambda: torch.full((2, 3), 1.001), "a result is off by 0.001"),
        (lambda: torch.full((2, 3), torch.nan), "a result is off by nan"),
        (lambda: torch.ones(3, 2).T, "strides (1, 2) instead of (3, 1)"),
        (lambda: torch.ones(2, 3, dtype=torch.float64), "another shape or dtype"),
        (lambda: None, "another structure"),
    ],
)
def test_a_way_that_gives_something_else_is_not_timed(answer: Callable[[], object], note: str) -> None:
    """However fast it is; the note says why."""
    trial = _held({"library": (100, lambda: torch.ones(2, 3)), "kernel": (1, answer)})
    assert (["library"], {"kernel": note}) == ([*trial.us], trial.notes)
    assert not trial.is_faster("kernel", "library")


def test_layouts_may_differ_where_that_is_what_is_tried() -> None:
    """Values may not."""
    given = {"as they are": (3.0, lambda: torch.ones(2, 3)), "turned": (1.0, lambda: torch.ones(3, 2).T)}
    assert _held(given, same_strides=False).is_faster("turned", "as they are")


def test_places_of_equal_numbers_may_differ() -> None:
    """Of integers only shape, dtype and strides are compared."""
    given = {"library": (3.0, lambda: torch.tensor([0, 1])), "kernel": (1.0, lambda: torch.tensor([1, 0]))}
    assert _held(given).is_faster("kernel", "library")


def test_a_short_call_costs_no_compilation() -> None:
    """The other ways are not even called."""
    trial = _held({"library": (39, lambda: None), "kernel": (1, _raise(AssertionError()))}, least_us=40)
    assert {"kernel": "a call takes less than 40 us"} == trial.notes


def test_what_is_dear_is_not_called_where_little_is_left_to_gain() -> None:
    """A kernel takes a second to compile; half of the library's time is as good as it gets."""
    kernel = (40.0, _raise(AssertionError()))
    trial = _held({"library": (100, list), "kernel": kernel, "other": (50, list)}, dear={"kernel"})
    assert ({"library": 100, "other": 50}, {"kernel": "another way takes half of the time"}) == (trial.us, trial.notes)
    trial = _held({"library": (100, list), "kernel": (40, list), "other": (51, list)}, dear={"kernel"})
    assert {"library": 100, "kernel": 40, "other": 51} == pytest.approx(trial.us)


def test_what_the_library_cannot_do_here_is_not_tried() -> None:
    """Out of memory, for one: the graph may still have room when it runs."""
    trial = _held({"library": (1, _raise(RuntimeError("CUDA out of memory"))), "kernel": (1, lambda: None)})
    assert ({}, ["library", "kernel"]) == (trial.us, [*trial.notes])


def _kept(us: float) -> Trial:
    return Trial(call="mm", us={"library": us})


def test_a_trial_is_held_once_on_a_machine(tmp_path: Path) -> None:
    """Whichever process held it."""
    file = tmp_path / "made" / "trials.jsonl"
    held = []

    def hold() -> Trial:
        held.append(1)
        return _kept(7.0)

    first, second = TrialBook(file), TrialBook(file)
    assert [_kept(7.0)] * 3 == [book.find_or_hold("key", hold) for book in (first, first, second)]
    assert 1 == len(held)
    second.find_or_hold("other", hold)
    assert [_kept(7.0)] == [first.find_or_hold("other", _raise(AssertionError()))]
    assert 2 == len(held)


def test_a_line_that_was_cut_off_is_tried_again(tmp_path: Path) -> None:
    """A full disk or a kill costs one trial, not the book."""
    file = tmp_path / "trials.jsonl"
    TrialBook(file).find_or_hold("one", lambda: _kept(1.0))
    TrialBook(file).find_or_hold("two", lambda: _kept(2.0))
    file.write_bytes(b"{}\n" + file.read_bytes()[:-9])
    book = TrialBook(file)
    assert _kept(1.0) == book.find_or_hold("one", _raise(AssertionError()))
    assert _kept(3.0) == book.find_or_hold("two", lambda: _kept(3.0))
    assert _kept(3.0) == TrialBook(file).find_or_hold("two", _raise(AssertionError()))


@pytest.mark.parametrize(
    "trial",
    [Trial(call="mm", us={}), Trial(call="mm", us={"library": 1.0}, notes={"kernel": "OutOfMemoryError: 3 GiB"})],
)
def test_what_hung_on_free_memory_is_tried_again_by_the_next_process(tmp_path: Path, trial: Trial) -> None:
    """Not by this one, which would try it for every graph."""
    file = tmp_path / "trials.jsonl"
    book = TrialBook(file)
    assert [trial, trial] == [
        book.find_or_hold("key", lambda: trial),
        book.find_or_hold("key", _raise(AssertionError())),
    ]
    assert _kept(2.0) == TrialBook(file).find_or_hold("key", lambda: _kept(2.0))


def test_ways_are_timed_alone_and_compiled_beside_others() -> None:
    """A second of Triton's compiler is no reason for everybody else to wait."""
    held: list[bool] = []
    inside = False

    @contextmanager
    def alone() -> Iterator[None]:
        nonlocal inside
        inside = True
        yield
        inside = False

    def kernel() -> None:
        held.append(inside)

    _held({"library": (100, lambda: None), "kernel": (50, kernel)}, alone=alone)
    assert [False, True] == [held[0], all(held[1:])]
    assert len(held) > 2
