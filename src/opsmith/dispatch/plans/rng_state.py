"""What plans know of random numbers: the counter of Philox, which each call takes anew from its device's generator.

A kernel that draws takes seed and offset from ``torch.cuda.default_generators`` and moves the offset on. It passes them
to a Triton kernel as parameters of the names :data:`COUNTER`. A recording sees both; a plan holds how far the generator
is moved, and fills these parameters at each call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Parameters that are the lower and the upper 32 bits of the seed, and of the offset in steps of four words.
COUNTER = ("seed_low", "seed_high", "count_low", "count_high")
#: Torch counts an offset in words; a counter of Philox gives four.
_WORDS = 4
_HALF = (1 << 32) - 1

_drawing = threading.Lock()


def drawn(generator: Any, words: int) -> tuple[int, int, int, int]:
    """Values of :data:`COUNTER`; moves the generator on by so many words."""
    with _drawing:
        first = generator.get_offset()
        generator.set_offset(first + words)
    return _counter(generator.initial_seed(), first)


def _counter(seed: int, first: int) -> tuple[int, int, int, int]:
    count = first // _WORDS
    return seed & _HALF, seed >> 32 & _HALF, count & _HALF, count >> 32


class Draws:
    """What one call asked of its device's generator."""

    def __init__(self) -> None:
        self._asked: list[str] = []
        self._seed = self._first = self._end = 0

    def see(self, name: str, value: int) -> None:
        """Note that ``initial_seed`` or ``get_offset`` answered this, or that ``set_offset`` was told it."""
        self._asked.append(name)
        if name == "initial_seed":
            self._seed = value
        elif name == "get_offset":
            self._first = value
        else:
            self._end = value

    @property
    def counter(self) -> tuple[int, int, int, int] | None:
        """What :func:`drawn` would have given, or None if nothing was drawn in one go."""
        return _counter(self._seed, self._first) if self.words else None

    @property
    def words(self) -> int:
        """How many words were drawn; 0 for none, or if not in one go."""
        once = sorted(self._asked) == ["get_offset", "initial_seed", "set_offset"]
        words = self._end - self._first
        return words if once and words > 0 and self._first % _WORDS == words % _WORDS == 0 else 0

    @property
    def unknown(self) -> bool:
        """Whether the generator was asked for something that a plan does not do."""
        return bool(self._asked) and not self.words


class _Watched:
    """A generator that tells of what this thread asks it."""

    def __init__(self, generator: Any, draws: Draws) -> None:
        self._generator, self._draws, self._thread = generator, draws, threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._generator, name)
        if threading.get_ident() != self._thread or name == "device":
            return method

        def asked(*args: Any) -> Any:
            answer = method(*args)
            self._draws.see(name, args[0] if name == "set_offset" else answer)
            return answer

        return asked


@contextmanager
def watched_draws(draws: Draws) -> Iterator[None]:
    """Note in ``draws`` what this thread asks CUDA's own generators for; one at a time in a process."""
    generators = torch.cuda.default_generators
    watched: Any = tuple(_Watched(one, draws) for one in generators)
    torch.cuda.default_generators = watched
    try:
        yield
    finally:
        torch.cuda.default_generators = generators
