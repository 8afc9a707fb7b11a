"""Timing ways of making a call against each other: in turns, each with the least of its rounds.

Others may use the device meanwhile, which makes a round longer by whatever they take: of 14 processes that compiled at
the same time some found 2,000 us for a call of 100. What disturbs is hardly the same twice, so a least time counts once
another round has come near it.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.utils._pytree import tree_leaves

from opsmith.trials.book import Trial

Way = Callable[[], object]
Around = Callable[[str], AbstractContextManager[object]]

#: A round of timing lasts this long or this many calls, whatever is reached first.
ROUND_S, ROUND_CALLS = 1e-3, 20
#: Rounds at least and at most; between them, until the two least times of each way differ by so much.
ROUNDS, MOST_ROUNDS, NEAR = 5, 40, 1.03
#: So much of the first way's time leaves nothing to gain by ways that are dear to try: the shipped products and
#: convolutions in float32 have taken 0.36 to 2.9 of the libraries' time on an H200, one of 14 less than half.
TWICE = 0.5
#: Results of two ways may differ by so much of the largest: what roundings and the order of sums make of it.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def hold_trial(
    call: str,
    ways: Mapping[str, Way],
    *,
    synchronise: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
    least_us: float = 0.0,
    same_strides: bool = True,
    dear: Collection[str] = (),
    alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    rounds: tuple[int, int] = (ROUNDS, MOST_ROUNDS),
    around: Around = lambda _way: nullcontext(),
) -> Trial:
    """Time each way that gives what the first one gives.

    Args:
        call: what is called, for people.
        ways: name -> makes the call. The first one is right by definition; if it takes less than ``least_us``, the
            others are not even called.
        synchronise: waits for the device.
        clock: seconds.
        least_us: microseconds.
        same_strides: whether results have to lie in memory as the first one's do.
        dear: ways whose first call takes long. They are not called if another one is twice as fast as the first.
        alone: held while ways are timed, not while they are compiled.
        rounds: how many there are at least and at most.
        around: what is held, by the way's name, while calls of it are made; not while results are compared.
    """
    first = next(iter(ways))

    def time_in_turns(ways: Iterable[str]) -> dict[str, float]:
        with alone():
            return _times(ways, seconds, rounds)

    def seconds(name: str, calls: int) -> float:
        """Of one call in a row of calls."""
        with around(name):
            synchronise()
            started = clock()
            for _ in range(calls):
                ways[name]()
            synchronise()
            return (clock() - started) / calls

    def result(name: str) -> list[object]:
        with around(name):
            return tree_leaves(ways[name]())

    try:
        expected = result(first)
        us = time_in_turns([first])
    except Exception as exc:  # noqa: BLE001 - out of memory, or arguments that only a model can make
        return Trial(call=call, us={}, notes=dict.fromkeys(ways, _one_line(exc)))
    if us[first] < least_us:
        notes = dict.fromkeys([*ways][1:], f"a call takes less than {least_us:g} us")
        return Trial(call=call, us=us, notes=notes)
    notes = {}
    for group in ([name for name in ways if name not in dear], [name for name in ways if name in dear]):
        for name in group:
            if name in dear and min(us.values()) <= TWICE * us[first]:
                notes[name] = "another way takes half of the time"
            elif name != first and (
                complaint := _complaint(expected, functools.partial(result, name), same_strides=same_strides)
            ):
                notes[name] = complaint
        if any(name not in notes for name in group):
            us |= time_in_turns([name for name in ways if name in {*us, *group} - notes.keys()])
    return Trial(call=call, us={name: us[name] for name in ways if name in us}, notes=notes)


def _complaint(expected: Sequence[object], result: Callable[[], list[object]], *, same_strides: bool) -> str | None:
    """Why a way is not timed."""
    try:
        return _difference(expected, result(), same_strides=same_strides)
    except NotImplementedError as exc:
        return f"declined: {exc}"
    except Exception as exc:  # noqa: BLE001 - Triton, a library or the device may raise anything
        return _one_line(exc)


def _times(ways: Iterable[str], seconds: Callable[[str, int], float], rounds: tuple[int, int]) -> dict[str, float]:
    """Microseconds of a call of each way, the least of rounds that take turns.

    Args:
        ways: their names.
        seconds: of one call, by the way's name and the number of calls.
        rounds: how many at least and at most.
    """
    repeats = {name: _repeats(seconds(name, 1)) for name in ways}
    us: dict[str, list[float]] = {name: [] for name in ways}
    least, most = rounds
    for done in range(1, most + 1):
        for name, times in us.items():
            times.append(seconds(name, repeats[name]) * 1e6)
        if done >= least and all(second <= NEAR * first for first, second, *_ in map(sorted, us.values())):
            break
    return {name: round(min(times), 2) for name, times in us.items()}


def _repeats(one_s: float) -> int:
    """Calls of a round; the second call counts, since the first may compile or tune."""
    return max(2, min(ROUND_CALLS, math.ceil(ROUND_S / max(one_s, 1e-7))))


def _difference(expected: Sequence[object], found: Sequence[object], *, same_strides: bool) -> str | None:
    """How results differ, in words; None where they are the same but for roundings."""
    for one, other in zip(expected, found, strict=True):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            if type(one) is not type(other):
                return "another structure"
            continue
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return "another shape or dtype"
        if same_strides and one.stride() != other.stride():
            return f"strides {other.stride()} instead of {one.stride()}"
        # Indices of equal numbers may differ.
        if one.dtype in TOLERANCE and one.numel():
            distance = (one - other).abs().max().item()
            if not distance <= TOLERANCE[one.dtype] * one.abs().max().item():
                return f"a result is off by {distance:.2g}"
    return None


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
