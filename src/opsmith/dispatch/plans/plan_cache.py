"""The plans of a kernel by signature, and how Python carries them out.

A signature is noted at its first call and recorded at its second: what is called once needs no plan. Where there is a
launcher in C++, it asks Python for what it has no plan for, and is told of the plan that there is here.

What runs at each call is written for speed: some 2.5 us beside the allocator and the driver.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.dispatch.plans.cuda_driver import Driver, packed, running
from opsmith.dispatch.plans.fp32_precision import in_force
from opsmith.dispatch.plans.inline_cache import ANOTHER_CALL, Again, Packing, answering_again
from opsmith.dispatch.plans.launcher import Table, Words
from opsmith.dispatch.plans.plan import Copy, Form, HostScalar, Launch, LaunchPlan, Number, Reach, Refusal, Result
from opsmith.dispatch.plans.rng_state import COUNTER, drawn

#: The tensors of a call and their first bytes; then what a replay allocates, and that.
Tensors = list[Tensor]
Addresses = list[int]
Signature = tuple[Any, ...]

#: Signatures kept for an op; a model with dynamic shapes brings a new one with each call.
_KEPT = 1024
#: Values of these types equal each other only where they are the same argument.
_PLAIN = frozenset({bool, int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})


def signature_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Tensors, addresses: Addresses
) -> Signature | None:
    """The signature of a call, or None where an argument is of a type that no plan knows.

    Args:
        args: by position.
        kwargs: by name.
        tensors: empty; gets those of the call in the order of its arguments, those in lists included.
        addresses: empty; gets theirs.
    """
    words: list[Any] = [torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()]
    if not _read(args, words, tensors, addresses):
        return None
    if kwargs:
        words += kwargs
        if not _read(kwargs.values(), words, tensors, addresses):
            return None
    if len({*addresses}) < len(addresses):
        # Perhaps an argument is given twice, which is another call than two arguments.
        firsts: dict[int, int] = {}
        words += [firsts.setdefault(id(tensor), n) for n, tensor in enumerate(tensors)]
    return tuple(words)


def _read(values: Iterable[Any], words: list[Any], tensors: Tensors, addresses: Addresses) -> bool:
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            address = value.data_ptr()
            words += (value.dtype, value.shape, value.stride(), value.get_device(), address & 15)
            tensors.append(value)
            addresses.append(address)
        elif kind in _PLAIN:
            words += (kind, value)
        elif kind is float:
            words += (kind, value or str(value))  # 0.0 equals -0.0.
        elif kind is list or kind is tuple:
            words += (list, len(value))
            if not _read(value, words, tensors, addresses):
                return False
        else:
            return False
    return True


class Replay:
    """A plan, ready to be carried out.

    Args:
        plan: what to do.
        driver: of the device that the plan was recorded on.

    Attributes:
        plan: as given.
        words: the plan as C++ reads it, once C++ has been told of it.
        answer: answers a call with the plan's signature, which it fits, given its tensors and their addresses.
        always: it fits every call with its signature.
        result: what is returned, given all tensors.
    """

    __slots__ = ("_again", "_current_device", "_driver", "_steps", "always", "answer", "plan", "result", "words")

    def __init__(self, plan: LaunchPlan, driver: Driver) -> None:
        self.plan = plan
        self.words: Words | None = None
        self._driver = driver
        self._current_device = driver.current_device if driver.device_count() > 1 else None
        self._again: Again | None = None
        count = plan.tensors + len(plan.allocations) + (len(COUNTER) if plan.draws else 0)
        self._steps = [
            _launching(step, driver, count) if isinstance(step, Launch) else _copying(step) for step in plan.steps
        ]
        self.result = _returning(plan)
        self.answer: Callable[[Sequence[Tensor], Sequence[int]], Any] = self._in_steps
        if _is_one_launch(plan):
            self.answer = _answering_at_once(plan, driver)
        elif _is_one_launch_in_place(plan):
            self.answer = _answering_in_place(plan, driver)
        self.always = not (plan.reaches or plan.precisions or plan.draws) and self._current_device is None

    def fits(self, addresses: Sequence[int]) -> bool:
        """What a signature does not say: the current device, settings, captures, and whether arguments overlap."""
        if self.plan.reaches and not _are_apart(self.plan.reaches, addresses):
            return False
        return self.applies()

    def applies(self) -> bool:
        """As :meth:`fits`, of what does not depend on the arguments."""
        if self.plan.precisions and not in_force(self.plan.precisions):
            return False
        if self.plan.draws and self._driver.capturing():
            return False
        current_device = self._current_device
        return current_device is None or current_device() == self.plan.device

    def again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Again:
        """What answers the same call again; it may take every call for another one."""
        if self._again is None:
            self._again = (
                _answering_two(args, kwargs, self.plan, self._driver, always=self.always)
                or answering_again(args, kwargs, self, self._driver)
                or _answering_none
            )
        return self._again

    def packing(self) -> Packing | None:
        """What packs the launches for tensors at some addresses, or None where the tensors themselves are needed."""
        plan, driver = self.plan, self._driver
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        if plan.allocations or plan.draws or len(launches) < len(plan.steps):
            return None
        several = [(launch, _parameters(launch, plan.tensors)) for launch in launches]
        return lambda addresses: tuple(
            [packed(driver, launch, parameters(addresses)) for launch, parameters in several]
        )

    def _in_steps(self, arguments: Sequence[Tensor], their_addresses: Sequence[int]) -> Any:
        driver, stream = self._driver, self._driver.stream(self.plan.device)
        made = [*itertools.starmap(driver.allocate, self.plan.allocations)]
        tensors, addresses = [*arguments, *made], [*their_addresses, *map(Tensor.data_ptr, made)]
        if self.plan.draws:
            addresses += drawn(driver.generator(self.plan.device), self.plan.draws)
        for step in self._steps:
            step(tensors, addresses, stream)
        return self.result(tensors)


Step = Callable[[Sequence[Tensor], Sequence[int], int], None]


def _are_apart(reaches: Sequence[Reach], addresses: Sequence[int]) -> bool:
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


def _is_one_launch(plan: LaunchPlan) -> bool:
    """Whether one kernel writes the one result into the only memory that is allocated, as most do."""
    return (
        len(plan.allocations) == len(plan.steps) == 1
        and isinstance(plan.steps[0], Launch)
        and not any(pointer.offset_bytes for pointer in plan.steps[0].pointers)
        and plan.form is Form.TENSOR
        and not plan.draws
        and plan.results == (plan.tensors,)
    )


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


def _answering_in_place(plan: LaunchPlan, driver: Driver) -> Callable[[Sequence[Tensor], Sequence[int]], Any]:
    """As :func:`_answering_at_once`, where nothing is allocated."""
    [launch], [written] = plan.steps, plan.results
    assert isinstance(launch, Launch)  # Only such a plan is answered so.
    assert isinstance(written, int)
    run, pick, numbers = running(driver, launch), _picking(launch, plan.tensors), tuple(launch.slots)
    stream, device = driver.stream, plan.device

    def answer(tensors: Sequence[Tensor], addresses: Sequence[int]) -> Any:
        run(pick((*addresses, *numbers)), stream(device))
        return tensors[written]

    return answer


def _answering_at_once(plan: LaunchPlan, driver: Driver) -> Callable[[Sequence[Tensor], Sequence[int]], Any]:
    """The same as the steps one by one, in two thirds of the time."""
    allocate, run, pick, numbers, stream = _parts(plan, driver)

    def answer(_: Sequence[Tensor], addresses: Sequence[int]) -> Any:
        made = allocate()
        run(pick((*addresses, made.data_ptr(), *numbers)), stream())
        return made

    return answer


def _answering_two(
    args: tuple[Any, ...], kwargs: dict[str, Any], plan: LaunchPlan, driver: Driver, *, always: bool
) -> Again | None:
    """As :func:`.answering_again`, of two tensors and nothing else: by far the most calls, without a step too much."""
    is_short = len(args) == 2 and not kwargs and all(type(arg) is Tensor and not arg.data_ptr() & 15 for arg in args)
    if not is_short or args[0] is args[1] or not _is_one_launch(plan):
        return None
    if not always:
        return None
    guards = torch._C._dynamo.guards.TensorGuards(*args, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    same, default, deterministic = guards.check, torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic = default(), deterministic()
    allocate, run, pick, numbers, stream = _parts(plan, driver)

    def again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The guard raises where there are more or fewer arguments, such as a number after the tensors.
        if kwargs or len(args) != 2 or not same(*args):
            return ANOTHER_CALL
        if default() is not dtype or deterministic() is not is_deterministic:
            return ANOTHER_CALL
        one, other = args
        first, second = one.data_ptr(), other.data_ptr()
        if (first | second) & 15:
            return ANOTHER_CALL
        made = allocate()
        run(pick((first, second, made.data_ptr(), *numbers)), stream())
        return made

    return again


def _answering_none(_: tuple[Any, ...], __: dict[str, Any]) -> Any:
    """Takes every call for another one."""
    return ANOTHER_CALL


def _parts(plan: LaunchPlan, driver: Driver) -> tuple[Any, ...]:
    """Of a plan of one launch: what allocates, runs, picks the parameters, the numbers among them, and the stream."""
    [memory], [launch] = plan.allocations, plan.steps
    assert isinstance(launch, Launch)  # Only such a plan is answered so.
    allocate, stream = functools.partial(driver.allocate, *memory), functools.partial(driver.stream, plan.device)
    return allocate, running(driver, launch), _picking(launch, plan.tensors + 1), tuple(launch.slots), stream


def _launching(launch: Launch, driver: Driver, count: int) -> Step:
    """The function that launches a kernel, given the addresses of ``count`` tensors, what is drawn among them."""
    parameters, run = _parameters(launch, count), running(driver, launch)

    def launching(_: Sequence[Tensor], addresses: Sequence[int], stream: int) -> None:
        run(parameters(addresses), stream)

    return launching


def _parameters(launch: Launch, count: int) -> Callable[[Sequence[int]], Any]:
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


def _copying(copy: Copy) -> Step:
    def step(tensors: Sequence[Tensor], _: Sequence[int], __: int) -> None:
        tensors[copy.to].copy_(tensors[copy.source])

    return step


def _returning(plan: LaunchPlan) -> Callable[[Sequence[Tensor]], Any]:
    if plan.form is Form.NOTHING:
        return lambda _: None
    if plan.form is Form.TENSOR and isinstance(plan.results[0], int):
        return operator.itemgetter(plan.results[0])
    made_of = list if plan.form is Form.LIST else tuple
    if len(plan.results) > 1 and all(isinstance(one, int) for one in plan.results):
        pick: Callable[[Sequence[Tensor]], Any] = operator.itemgetter(*plan.results)
        return pick if plan.form is Form.TUPLE else lambda tensors: [*pick(tensors)]

    def result(one: Result, tensors: Sequence[Tensor]) -> Any:
        if isinstance(one, HostScalar):
            return torch.empty((), dtype=one.dtype, device="cpu")
        return one.value if isinstance(one, Number) else None if one is None else tensors[one]

    return lambda tensors: made_of([result(one, tensors) for one in plan.results])


class PlanCache:
    """The plans of one kernel in use.

    Args:
        driver: of the device type that it serves.
        bypass: whether a call of these tensors is none for plans though its signature may have one; None: never.

    Attributes:
        driver, bypass: as given.
        replayed: how many calls were answered by plans here.
        refusals: how many signatures have no plan, and why.
        table: where C++ finds plans, once a front uses one.
        again: answers the last call again, while there is no table.
    """

    def __init__(self, driver: Driver, *, bypass: Callable[[Tensors], bool] | None = None) -> None:
        self.driver, self.bypass = driver, bypass
        self.replayed = 0
        self.refusals: dict[Refusal, int] = {}
        self.table: Table | None = None
        #: Several where settings that host code reads have changed; none where recording was refused.
        self._replays: dict[Signature, tuple[Replay, ...]] = {}
        self._seen: set[Signature] = set()
        self.again: Again | None = None

    @property
    def replayed_in_cpp(self) -> int:
        """How many calls were answered by plans in C++."""
        return 0 if self.table is None else self.table.replayed

    def table_in(self, library: ctypes.CDLL) -> Table:
        """Where C++ finds the plans; from now on it is told of them."""
        if self.table is None:
            self.table, self.again = Table(library), None
        return self.table

    def find(self, signature: Signature | None, addresses: Addresses) -> Replay | None:
        """The plan of a call, if there is one that fits; C++ is told of it, which had none."""
        if signature is None:
            return None
        for replay in self._replays.get(signature, ()):
            if replay.fits(addresses):
                if self.table is not None and not replay.plan.draws:
                    if replay.words is None:
                        replay.words = self.table.words(replay.plan)
                    self.table.learn(replay.words)
                return replay
        return None

    def wants(self, signature: Signature | None) -> bool:
        """Whether a call is to be recorded: its signature was seen before, and has no plan for settings as they are."""
        if signature is None:
            return False
        known = self._replays.get(signature)
        if known is not None:
            return known != () and not any(in_force(replay.plan.precisions) for replay in known)
        if signature in self._seen:
            return True
        if len(self._seen) >= _KEPT:
            self._seen.clear()
        self._seen.add(signature)
        return False

    def keep(self, signature: Signature, plan: LaunchPlan | Refusal) -> None:
        """What became of recording a call."""
        if len(self._replays) >= _KEPT:
            self._replays.clear()
            if self.table is not None:
                self.table.clear()
        if isinstance(plan, Refusal):
            self.refusals[plan] = self.refusals.get(plan, 0) + 1
            self._replays[signature] = ()
        else:
            known = self._replays.get(signature, ())
            others = (replay for replay in known if replay.plan.precisions != plan.precisions)
            self._replays[signature] = (*others, Replay(plan, self.driver))
        self._seen.discard(signature)
