"""Makes a failing program small: steps, results and settings go while it keeps failing.

A program is data, so this takes a few dozen runs, where shrinking the choices that it was drawn from takes thousands:
a choice less there makes another program of all that follows. Programs that Hypothesis draws are shrunk by Hypothesis.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.differential.grammar import NAME, Program, Step

T = TypeVar("T")

_MADE = re.compile(r"^(v\d+) = (.*)$", re.DOTALL)


def shrunk(program: Program, fails: Callable[[Program], bool], *, seconds: float = 60.0) -> Program:
    """A smaller program that fails as well.

    Args:
        program: that fails.
        fails: whether another one does.
        seconds: after which the smallest one so far will do.
    """
    end = time.monotonic() + seconds
    before = None
    while before != program:
        before = program
        for ways in (_needed_alone, _simpler_settings, _fewer_steps, _fewer_results, _shorter_paths, _fewer_given):
            program = _while_it_fails(program, ways, fails, end)
    return program


def _while_it_fails(
    program: Program, ways: Callable[[Program], Iterator[Program]], fails: Callable[[Program], bool], end: float
) -> Program:
    smaller: Program | None = program
    while smaller is not None:
        program = smaller
        candidates = (one for one in ways(program) if _complete(one) and one != program)
        smaller = next((one for one in candidates if time.monotonic() < end and fails(one)), None)
    return program


def _needed_alone(program: Program) -> Iterator[Program]:
    """What one result is made of, and then only inputs that are read."""
    for result in dict.fromkeys(program.returned):
        needed, steps = {result}, []
        for step in reversed(program.steps):
            made = _MADE.match(step.text)
            names = NAME.findall(step.text)
            if (made[1] in needed) if made is not None else needed.intersection(names):
                needed.update(names)
                steps.append(step)
        form = "single" if program.form == "single" else "tuple"
        yield replace(program, steps=tuple(reversed(steps)), returned=(result,), form=form)
    texts = " ".join([*program.returned, *(one.text for one in program.steps), *(one.text for one in program.given)])
    read = set(NAME.findall(texts))
    yield replace(program, given=tuple(one for one in program.given if one.name in read))


def _fewer_results(program: Program) -> Iterator[Program]:
    for place in range(len(program.returned)):
        if len(program.returned) > 1:
            yield replace(program, returned=_without(program.returned, place, 1))


def _shorter_paths(program: Program) -> Iterator[Program]:
    for place, step in enumerate(program.steps):
        yield from _passed_by(program, place)
        if step.under:
            yield replace(program, steps=_with(program.steps, place, Step(step.text)))


def _fewer_given(program: Program) -> Iterator[Program]:
    for place, given in enumerate(program.given):
        yield replace(program, given=_without(program.given, place, 1))
        if given.needs_grad:
            yield replace(program, given=_with(program.given, place, replace(given, needs_grad=False)))


def _fewer_steps(program: Program) -> Iterator[Program]:
    count = len(program.steps)
    size = count
    while size:
        for place in range(count - size, -1, -1):
            yield replace(program, steps=_without(program.steps, place, size))
        size //= 2


def _simpler_settings(program: Program) -> Iterator[Program]:
    if program.dynamic is not False:
        yield replace(program, dynamic=False, resized=False)
    if program.resized:
        yield replace(program, resized=False)
    if program.autocast:
        yield replace(program, autocast=False)
    if program.mode != "no_grad":
        yield replace(program, mode="no_grad")
    if program.form not in {"single", "tuple"}:
        yield replace(program, form="tuple")
    if len(program.returned) == 1 and program.form != "single":
        yield replace(program, form="single")


def _passed_by(program: Program, place: int) -> Iterator[Program]:
    """Without a step, whose operand is read where its result was."""
    made = _MADE.match(program.steps[place].text)
    if made is None:
        return
    name = re.compile(rf"\b{made[1]}\b")
    for operand in dict.fromkeys(NAME.findall(made[2])):
        steps = [replace(one, text=name.sub(operand, one.text)) for one in _without(program.steps, place, 1)]
        returned = tuple(name.sub(operand, one) for one in program.returned)
        yield replace(program, steps=tuple(steps), returned=returned)


def _complete(program: Program) -> bool:
    """Whether every name is made before it is read, and steps or results are left."""
    known: set[str] = set()
    for given in program.given:
        if not set(NAME.findall(given.text)) <= known:
            return False
        known.add(given.name)
    for step in program.steps:
        made = _MADE.match(step.text)
        if not set(NAME.findall(step.text if made is None else made[2])) <= known:
            return False
        if made is not None:
            known.add(made[1])
    return set(program.returned) <= known


def _without(items: Sequence[T], place: int, count: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + count :])


def _with(items: Sequence[T], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])
