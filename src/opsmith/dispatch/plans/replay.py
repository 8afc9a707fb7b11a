"""Carries out launch plans in Python: allocates, launches and returns as the plan says.

A :class:`Replay` is made once for a plan and run at each call that the plan serves. What runs at each call is written
for speed: some 2.5 us beside the allocator and the driver.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opsmith.dispatch.plans.cuda_driver import Driver, packed, running
from opsmith.dispatch.plans.encoding import Words
from opsmith.dispatch.plans.fp32_precision import in_force
from opsmith.dispatch.plans.plan import Copy, Form, HostScalar, Launch, LaunchPlan, Number, Reach, Result
from opsmith.dispatch.plans.rng_state import COUNTER, drawn

#: The tensors of a call, then what is allocated; and the first bytes of each.
Tensors = Sequence[Tensor]
Addresses = Sequence[int]
#: Carries out a plan for the tensors of a call, at their addresses.
Run = Callable[[Tensors, Addresses], Any]
#: A step of a plan, of given tensors and addresses, on a stream.
Step = Callable[[Tensors, Addresses, int], None]
#: A launch with its parameters packed, on a stream.
Packed = Callable[[int], None]
#: Packs the launches of a plan for tensors at some addresses.
Packing = Callable[[Addresses], tuple[Packed, ...]]


class Replay:
    """A plan, ready to be carried out.

    Args:
        plan: what to do.
        driver: of the device that the plan was recorded on.

    Attributes:
        plan, driver: as given.
        words: the plan as C++ reads it, once C++ has been told of it.
        fast_path: serves calls like one that the plan served, once one has been made (:mod:`.inline_cache`).
        run: carries out the plan for a call with its signature that it fits.
        always: it fits every call with its signature.
        result: what is returned, given all tensors.
    """

    __slots__ = ("_current_device", "_steps", "always", "driver", "fast_path", "plan", "result", "run", "words")

    def __init__(self, plan: LaunchPlan, driver: Driver) -> None:
        self.plan, self.driver = plan, driver
        self.words: Words | None = None
        self.fast_path: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None
        self._current_device = driver.current_device if driver.device_count() > 1 else None
        count = plan.tensors + len(plan.allocations) + (len(COUNTER) if plan.draws else 0)
        self._steps = [
            _launch_step(step, driver, count) if isinstance(step, Launch) else _copy_step(step) for step in plan.steps
        ]
        self.result = _collecting(plan)
        self.run: Run = self._run_steps
        if is_one_launch(plan):
            self.run = _one_launch(plan, driver)
        elif _is_one_launch_in_place(plan):
            self.run = _one_launch_in_place(plan, driver)
        self.always = not (plan.reaches or plan.precisions or plan.draws) and self._current_device is None

    def fits(self, addresses: Addresses) -> bool:
        """What a signature does not say: the current device, settings, captures, and whether arguments overlap."""
        if self.plan.reaches and not _are_apart(self.plan.reaches, addresses):
            return False
        return self.applies()

    def applies(self) -> bool:
        """As :meth:`fits`, of what does not depend on the arguments."""
        if self.plan.precisions and not in_force(self.plan.precisions):
            return False
        if self.plan.draws and self.driver.capturing():
            return False
        current_device = self._current_device
        return current_device is None or current_device() == self.plan.device

    def packing(self) -> Packing | None:
        """What packs the launches for tensors at some addresses, or None where the tensors themselves are needed."""
        plan, driver = self.plan, self.driver
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        if plan.allocations or plan.draws or len(launches) < len(plan.steps):
            return None
        several = [(launch, _parameters(launch, plan.tensors)) for launch in launches]
        return lambda addresses: tuple(
            [packed(driver, launch, parameters(addresses)) for launch, parameters in several]
        )

    def _run_steps(self, arguments: Tensors, their_addresses: Addresses) -> Any:
        driver, stream = self.driver, self.driver.stream(self.plan.device)
        made = [*itertools.starmap(driver.allocate, self.plan.allocations)]
        tensors, addresses = [*arguments, *made], [*their_addresses, *map(Tensor.data_ptr, made)]
        if self.plan.draws:
            addresses += drawn(driver.generator(self.plan.device), self.plan.draws)
        for step in self._steps:
            step(tensors, addresses, stream)
        return self.result(tensors)


def _are_apart(reaches: Sequence[Reach], addresses: Addresses) -> bool:
    """Whether no argument that is written to overlaps another one: by their first bytes, one after another."""
    if len(reaches) == 2:  # By far the most calls, in a third of the time.
        (one, one_bytes, _), (other, other_bytes, _) = reaches
        first, second = addresses[one], addresses[other]
        return first + one_bytes <= second or second + other_bytes <= first
    end = written_end = 0
    numbers, sizes, writes = zip(*reaches, strict=True)
    for first, size_bytes, written in sorted(zip(map(addresses.__getitem__, numbers), sizes, writes, strict=True)):
        if first < (end if written else written_end):
            return False
        last = first + size_bytes
        if last > end:  # noqa: PLR1730 - max takes three times as long, and lists have hundreds
            end = last
        if written:
            written_end = end
    return True


# ---------------------------------------------------------------- plans of one launch


class OneLaunch(NamedTuple):
    """What a plan of one launch needs at each call.

    Attributes:
        allocate: makes the result.
        run: launches with given parameters on a stream.
        pick: picks the parameters out of addresses and numbers.
        numbers: the parameters that are none of a tensor.
        stream: the current stream.
    """

    allocate: Callable[[], Tensor]
    run: Callable[[Sequence[int], int], None]
    pick: Callable[[tuple[int, ...]], Any]
    numbers: tuple[int, ...]
    stream: Callable[[], int]


def is_one_launch(plan: LaunchPlan) -> bool:
    """Whether one kernel writes the one result into the only memory that is allocated, as most do."""
    return (
        len(plan.allocations) == len(plan.steps) == 1
        and isinstance(plan.steps[0], Launch)
        and not any(pointer.offset_bytes for pointer in plan.steps[0].pointers)
        and plan.form is Form.TENSOR
        and not plan.draws
        and plan.results == (plan.tensors,)
    )


def one_launch(plan: LaunchPlan, driver: Driver) -> OneLaunch:
    """The parts of a plan for which :func:`is_one_launch` holds."""
    [memory], [launch] = plan.allocations, plan.steps
    assert isinstance(launch, Launch)  # Only such a plan is run so.
    allocate, stream = functools.partial(driver.allocate, *memory), functools.partial(driver.stream, plan.device)
    return OneLaunch(allocate, running(driver, launch), _picking(launch, plan.tensors + 1), tuple(launch.slots), stream)


def _one_launch(plan: LaunchPlan, driver: Driver) -> Run:
    """The same as the steps one by one, in two thirds of the time."""
    allocate, launch, pick, numbers, stream = one_launch(plan, driver)

    def run(_: Tensors, addresses: Addresses) -> Any:
        made = allocate()
        launch(pick((*addresses, made.data_ptr(), *numbers)), stream())
        return made

    return run


def _is_one_launch_in_place(plan: LaunchPlan) -> bool:
    """Whether one kernel writes to an argument, which is returned, and nothing is allocated."""
    return (
        not plan.allocations
        and len(plan.steps) == 1
        and isinstance(plan.steps[0], Launch)
        and not any(pointer.offset_bytes for pointer in plan.steps[0].pointers)
        and plan.form is Form.TENSOR
        and not plan.draws
        and isinstance(plan.results[0], int)
    )


def _one_launch_in_place(plan: LaunchPlan, driver: Driver) -> Run:
    """As :func:`_one_launch`, where nothing is allocated."""
    [step], [written] = plan.steps, plan.results
    assert isinstance(step, Launch)  # Only such a plan is run so.
    assert isinstance(written, int)
    launch, pick, numbers = running(driver, step), _picking(step, plan.tensors), tuple(step.slots)
    stream, device = driver.stream, plan.device

    def run(tensors: Tensors, addresses: Addresses) -> Any:
        launch(pick((*addresses, *numbers)), stream(device))
        return tensors[written]

    return run


# ---------------------------------------------------------------- steps and results


def _launch_step(launch: Launch, driver: Driver, count: int) -> Step:
    """The function that launches a kernel, given the addresses of ``count`` tensors, what is drawn among them."""
    parameters, run = _parameters(launch, count), running(driver, launch)

    def step(_: Tensors, addresses: Addresses, stream: int) -> None:
        run(parameters(addresses), stream)

    return step


def _parameters(launch: Launch, count: int) -> Callable[[Addresses], Any]:
    """The function from the addresses of ``count`` tensors to a launch's parameters."""
    pick, numbers, moved = _picking(launch, count), tuple(launch.slots), _moved(launch)
    if not moved:
        return lambda addresses: pick((*addresses, *numbers))
    return lambda addresses: pick((*addresses, *[addresses[number] + offset for number, offset in moved], *numbers))


def _picking(launch: Launch, count: int) -> Callable[[tuple[int, ...]], Any]:
    """Picks a launch's arguments, in the order of the slots, out of addresses, moved addresses and numbers."""
    moved = _moved(launch)
    order = [count + len(moved) + slot for slot in range(len(launch.slots))]
    for pointer in launch.pointers:
        place = (pointer.number, pointer.offset_bytes)
        order[pointer.slot] = count + moved.index(place) if pointer.offset_bytes else pointer.number % count
    return operator.itemgetter(*order)


def _moved(launch: Launch) -> list[tuple[int, int]]:
    """Tensors of which a launch gets another address than their first, and how many bytes further that is."""
    return [(pointer.number, pointer.offset_bytes) for pointer in launch.pointers if pointer.offset_bytes]


def _copy_step(copy: Copy) -> Step:
    def step(tensors: Tensors, _: Addresses, __: int) -> None:
        tensors[copy.to].copy_(tensors[copy.source])

    return step


def _collecting(plan: LaunchPlan) -> Callable[[Tensors], Any]:
    """The function from all tensors to what the call returns."""
    if plan.form is Form.NOTHING:
        return lambda _: None
    if plan.form is Form.TENSOR and isinstance(plan.results[0], int):
        return operator.itemgetter(plan.results[0])
    made_of = list if plan.form is Form.LIST else tuple
    if len(plan.results) > 1 and all(isinstance(one, int) for one in plan.results):
        pick: Callable[[Tensors], Any] = operator.itemgetter(*plan.results)
        return pick if plan.form is Form.TUPLE else lambda tensors: [*pick(tensors)]

    def result(one: Result, tensors: Tensors) -> Any:
        if isinstance(one, HostScalar):
            return torch.empty((), dtype=one.dtype, device="cpu")
        return one.value if isinstance(one, Number) else None if one is None else tensors[one]

    return lambda tensors: made_of([result(one, tensors) for one in plan.results])
