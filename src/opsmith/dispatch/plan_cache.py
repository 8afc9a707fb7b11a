"""The plans of a kernel by signature, and how Python carries them out.

A signature is noted at its first call and recorded at its second: what is called once needs no plan. Where there is a
launcher in C++, it asks Python for what it has no plan for, and is told of the plan that there is here.

What runs at each call is written for speed: some 2.5 us beside the allocator and the driver.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.dispatch.drivers import Driver
from opsmith.dispatch.launcher import Table, Words
from opsmith.dispatch.plans import Copy, Launch, Memory, Number, Plan, Refusal
from opsmith.dispatch.precisions import in_force

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
    """The signature of a call, or None where there are no tensors, or an argument of a type that no plan knows.

    Args:
        args: by position.
        kwargs: by name.
        tensors: empty; gets those of the call in the order of its arguments, those in lists included.
        addresses: empty; gets theirs.
    """
    words: list[Any] = [torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()]
    if not _read(args, words, tensors, addresses) or not tensors:
        return None
    if kwargs:
        words += kwargs
        if not _read(kwargs.values(), words, tensors, addresses):
            return None
    if len({*addresses}) < len(addresses):
        # Perhaps an argument is given twice, which is another call than two arguments.
        names = [*map(id, tensors)]
        words += map(names.index, names)
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
    """

    __slots__ = ("_current_device", "_driver", "_last_call", "_result", "_steps", "answer", "plan", "words")

    def __init__(self, plan: Plan, driver: Driver) -> None:
        self.plan = plan
        self.words: Words | None = None
        self._driver = driver
        self._current_device = driver.current_device if driver.device_count() > 1 else None
        self._last_call: LastCall | None = None
        count = plan.tensors + len(plan.allocations)
        self._steps = [
            _launching(step, driver, count) if isinstance(step, Launch) else _copying(step) for step in plan.steps
        ]
        self._result = _returning(plan)
        self.answer: Callable[[Sequence[Tensor], Sequence[int]], Any] = self._in_steps
        if _is_one_launch(plan):
            self.answer = _answering_at_once(plan.allocations[0], self._steps[0], driver)

    def fits(self, tensors: Tensors, addresses: Addresses) -> bool:
        """What a signature does not say: the current device, whether arguments overlap, and settings that were read."""
        for one, one_bytes, other, other_bytes in self.plan.apart:
            first, second = addresses[one], addresses[other]
            if first < second + other_bytes and second < first + one_bytes:
                return False
        if self.plan.precisions and not in_force(self.plan.precisions):
            return False
        current_device = self._current_device
        return current_device is None or current_device() == tensors[0].get_device()

    def last_call(self, args: tuple[Any, ...], addresses: Addresses) -> LastCall | None:
        """What tells the same call again, or None where that takes the signature and :meth:`fits`."""
        if (
            self._last_call is None
            and not self.plan.apart
            and not self.plan.precisions
            and self._current_device is None
            and len({*map(id, args)}) == len(args) == self.plan.tensors
            and all(type(arg) is Tensor for arg in args)
            and all(address % 16 == 0 for address in addresses)
        ):
            self._last_call = LastCall(args, self)
        return self._last_call

    def _in_steps(self, arguments: Sequence[Tensor], their_addresses: Sequence[int]) -> Any:
        tensors, addresses, driver = [*arguments], [*their_addresses], self._driver
        allocate, stream = driver.allocate, driver.stream(tensors[0].get_device())
        for memory in self.plan.allocations:
            made = allocate(*memory)
            tensors.append(made)
            addresses.append(made.data_ptr())
        for step in self._steps:
            step(tensors, addresses, stream)
        return self._result(tensors)


class LastCall:
    """A call whose arguments are all tensors, and its plan: the same one again is known without its signature.

    A guard of torch's compiler looks at type, dtype, device, shape and strides, and that all are distinct, in a
    tenth of the time that the signature takes.

    Attributes:
        answer: that of the plan.
    """

    __slots__ = ("_deterministic", "_dtype", "_same", "answer")

    def __init__(self, tensors: tuple[Tensor, ...], replay: Replay) -> None:
        guards = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        self._same = guards.check
        self._dtype, self._deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
        self.answer = replay.answer

    def addresses_of(self, args: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The addresses of the arguments if they are like those of that call, and divisible by 16 as those were."""
        if (
            not self._same(*args)
            or torch.get_default_dtype() is not self._dtype
            or torch.are_deterministic_algorithms_enabled() is not self._deterministic
        ):
            return None
        if len(args) == 2:  # By far the most.
            one, other = args[0].data_ptr(), args[1].data_ptr()
            return None if (one | other) & 15 else (one, other)
        addresses = tuple([tensor.data_ptr() for tensor in args])
        return None if any(address & 15 for address in addresses) else addresses


Step = Callable[[Sequence[Tensor], Sequence[int], int], None]


def _is_one_launch(plan: Plan) -> bool:
    """Whether one kernel writes the one result into the only memory that is allocated, as most do."""
    return (
        len(plan.allocations) == len(plan.steps) == 1
        and isinstance(plan.steps[0], Launch)
        and plan.single
        and plan.results == (plan.tensors,)
    )


def _answering_at_once(memory: Memory, step: Step, driver: Driver) -> Callable[[Sequence[Tensor], Sequence[int]], Any]:
    """The same as the steps one by one, in two thirds of the time."""
    allocate, stream = functools.partial(driver.allocate, *memory), driver.stream

    def answer(tensors: Sequence[Tensor], addresses: Sequence[int]) -> Tensor:
        made = allocate()
        step(tensors, (*addresses, made.data_ptr()), stream(tensors[0].get_device()))
        return made

    return answer


def _launching(launch: Launch, driver: Driver, count: int) -> Step:
    """The function that launches a kernel, given the addresses of ``count`` tensors."""
    numbers = [*launch.slots]
    moved = [(pointer.number, pointer.offset_bytes) for pointer in launch.pointers if pointer.offset_bytes]
    # Addresses, moved addresses and numbers are put behind each other and picked out in the order of the slots.
    order = [count + len(moved) + slot for slot in range(len(numbers))]
    for pointer in launch.pointers:
        place = (pointer.number, pointer.offset_bytes)
        order[pointer.slot] = count + moved.index(place) if pointer.offset_bytes else pointer.number
    pick = operator.itemgetter(*order)
    run = functools.partial(
        driver.launch, launch.function, *launch.grid, launch.warps, launch.shared_bytes, "K" * len(numbers)
    )

    def plainly(_: Sequence[Tensor], addresses: Sequence[int], stream: int) -> None:
        run(pick((*addresses, *numbers)), stream)

    def with_offsets(_: Sequence[Tensor], addresses: Sequence[int], stream: int) -> None:
        run(pick((*addresses, *[addresses[number] + offset for number, offset in moved], *numbers)), stream)

    return with_offsets if moved else plainly


def _copying(copy: Copy) -> Step:
    def step(tensors: Sequence[Tensor], _: Sequence[int], __: int) -> None:
        tensors[copy.to].copy_(tensors[copy.source])

    return step


def _returning(plan: Plan) -> Callable[[Sequence[Tensor]], Any]:
    if plan.single and plan.results[0] is not None:
        return operator.itemgetter(plan.results[0])
    places = [one if isinstance(one, int) else None for one in plan.results]
    others = [one.value if isinstance(one, Number) else None for one in plan.results]
    return lambda tensors: tuple(
        other if place is None else tensors[place] for place, other in zip(places, others, strict=True)
    )


class PlanCache:
    """The plans of one kernel in use.

    Args:
        driver: of the device type that it serves.

    Attributes:
        driver: as given.
        replayed: how many calls were answered by plans here.
        refusals: how many signatures have no plan, and why.
        table: where C++ finds plans, once a front uses one.
        last: what was called last, while there is no table.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.replayed = 0
        self.refusals: dict[Refusal, int] = {}
        self.table: Table | None = None
        #: Several where settings that host code reads have changed; none where recording was refused.
        self._replays: dict[Signature, tuple[Replay, ...]] = {}
        self._seen: set[Signature] = set()
        self.last: LastCall | None = None

    @property
    def replayed_in_cpp(self) -> int:
        """How many calls were answered by plans in C++."""
        return 0 if self.table is None else self.table.replayed

    def table_in(self, library: ctypes.CDLL) -> Table:
        """Where C++ finds the plans; from now on it is told of them."""
        if self.table is None:
            self.table, self.last = Table(library), None
        return self.table

    def find(self, signature: Signature | None, tensors: Tensors, addresses: Addresses) -> Replay | None:
        """The plan of a call, if there is one that fits; C++ is told of it, which had none."""
        if signature is None:
            return None
        for replay in self._replays.get(signature, ()):
            if replay.fits(tensors, addresses):
                if self.table is not None:
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

    def keep(self, signature: Signature, plan: Plan | Refusal) -> None:
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
