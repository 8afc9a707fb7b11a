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

from opsmith.dispatch.draws import COUNTER, drawn
from opsmith.dispatch.drivers import MOST_PARAMETERS, Driver, launch_by_config
from opsmith.dispatch.launcher import Table, Words
from opsmith.dispatch.plans import Copy, Form, HostScalar, Launch, Number, Plan, Reach, Refusal, Result
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
    """

    __slots__ = ("_again", "_current_device", "_driver", "_result", "_steps", "answer", "plan", "words")

    def __init__(self, plan: Plan, driver: Driver) -> None:
        self.plan = plan
        self.words: Words | None = None
        self._driver = driver
        self._current_device = driver.current_device if driver.device_count() > 1 else None
        self._again: Again | None = None
        count = plan.tensors + len(plan.allocations) + (len(COUNTER) if plan.draws else 0)
        self._steps = [
            _launching(step, driver, count) if isinstance(step, Launch) else _copying(step) for step in plan.steps
        ]
        self._result = _returning(plan)
        self.answer: Callable[[Sequence[Tensor], Sequence[int]], Any] = self._in_steps
        if _is_one_launch(plan):
            self.answer = _answering_at_once(plan, driver)

    def fits(self, tensors: Tensors, addresses: Addresses) -> bool:
        """What a signature does not say: the current device, settings, captures, and whether arguments overlap."""
        if self.plan.reaches and not _are_apart(self.plan.reaches, addresses):
            return False
        if self.plan.precisions and not in_force(self.plan.precisions):
            return False
        if self.plan.draws and self._driver.capturing():
            return False
        current_device = self._current_device
        return current_device is None or current_device() == tensors[0].get_device()

    def again(self, args: tuple[Any, ...], addresses: Addresses) -> Again | None:
        """What answers the same call again, or None where telling it takes the signature and :meth:`fits`."""
        if (
            self._again is None
            and not self.plan.reaches
            and not self.plan.precisions
            and not self.plan.draws
            and self._current_device is None
            and len({*map(id, args)}) == len(args) == self.plan.tensors
            and all(type(arg) is Tensor for arg in args)
            and all(address % 16 == 0 for address in addresses)
        ):
            self._again = _answering_again(args, self.plan, self.answer, self._driver)
        return self._again

    def _in_steps(self, arguments: Sequence[Tensor], their_addresses: Sequence[int]) -> Any:
        tensors, addresses, driver = [*arguments], [*their_addresses], self._driver
        allocate, stream = driver.allocate, driver.stream(self.plan.device)
        for memory in self.plan.allocations:
            made = allocate(*memory)
            tensors.append(made)
            addresses.append(made.data_ptr())
        if self.plan.draws:
            addresses += drawn(driver.generator(self.plan.device), self.plan.draws)
        for step in self._steps:
            step(tensors, addresses, stream)
        return self._result(tensors)


Step = Callable[[Sequence[Tensor], Sequence[int], int], None]
#: Answers a call by its arguments; None where it is another call.
Again = Callable[[tuple[Any, ...]], Any]


def _are_apart(reaches: Sequence[Reach], addresses: Addresses) -> bool:
    """Whether no argument that is written to overlaps another one: by their first bytes, one after another."""
    if len(reaches) == 2:  # By far the most calls, in a third of the time.
        (one, one_bytes, _), (other, other_bytes, _) = reaches
        first, second = addresses[one], addresses[other]
        return first + one_bytes <= second or second + other_bytes <= first
    end = written_end = 0
    for first, size_bytes, written in sorted([(addresses[number], size, written) for number, size, written in reaches]):
        if first < (end if written else written_end):
            return False
        end = max(end, first + size_bytes)
        if written:
            written_end = end
    return True


def _is_one_launch(plan: Plan) -> bool:
    """Whether one kernel writes the one result into the only memory that is allocated, as most do."""
    return (
        len(plan.allocations) == len(plan.steps) == 1
        and isinstance(plan.steps[0], Launch)
        and not any(pointer.offset_bytes for pointer in plan.steps[0].pointers)
        and plan.form is Form.TENSOR
        and not plan.draws
        and plan.results == (plan.tensors,)
    )


def _answering_at_once(plan: Plan, driver: Driver) -> Callable[[Sequence[Tensor], Sequence[int]], Any]:
    """The same as the steps one by one, in two thirds of the time."""
    allocate, run, pick, numbers, stream = _parts(plan, driver)

    def answer(_: Sequence[Tensor], addresses: Sequence[int]) -> Any:
        made = allocate()
        run(pick((*addresses, made.data_ptr(), *numbers)), stream())
        return made

    return answer


def _answering_again(
    tensors: tuple[Tensor, ...], plan: Plan, answer: Callable[[Sequence[Tensor], Sequence[int]], Any], driver: Driver
) -> Again:
    """Answers a call whose arguments are tensors like these: the same one is known without its signature.

    A guard of torch's compiler looks at type, dtype, device, shape and strides, and that all are distinct, in a
    tenth of the time that the signature takes. The settings are those that a signature has.
    """
    same = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    default, deterministic = torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic, count = default(), deterministic(), len(tensors)

    def again(args: tuple[Any, ...]) -> Any:
        # The guard raises where there are more or fewer arguments, such as a number after the tensors.
        if len(args) != count or not same(*args) or default() is not dtype or deterministic() is not is_deterministic:
            return None
        addresses = tuple([tensor.data_ptr() for tensor in args])
        return None if any(address & 15 for address in addresses) else answer(args, addresses)

    if len(tensors) != 2 or not _is_one_launch(plan):
        return again
    allocate, run, pick, numbers, stream = _parts(plan, driver)

    def at_once(args: tuple[Any, ...]) -> Any:  # By far the most calls, without a step more than they need.
        if len(args) != 2 or not same(*args) or default() is not dtype or deterministic() is not is_deterministic:
            return None
        one, other = args
        first, second = one.data_ptr(), other.data_ptr()
        if (first | second) & 15:
            return None
        made = allocate()
        run(pick((first, second, made.data_ptr(), *numbers)), stream())
        return made

    return at_once


def _parts(plan: Plan, driver: Driver) -> tuple[Any, ...]:
    """Of a plan of one launch: what allocates, runs, picks the parameters, the numbers among them, and the stream."""
    [memory], [launch] = plan.allocations, plan.steps
    assert isinstance(launch, Launch)  # Only such a plan is answered so.
    allocate, stream = functools.partial(driver.allocate, *memory), functools.partial(driver.stream, plan.device)
    return allocate, _running(launch, driver), _picking(launch, plan.tensors + 1), tuple(launch.slots), stream


def _launching(launch: Launch, driver: Driver, count: int) -> Step:
    """The function that launches a kernel, given the addresses of ``count`` tensors, what is drawn among them."""
    pick, run, numbers = _picking(launch, count), _running(launch, driver), tuple(launch.slots)
    moved = _moved(launch)

    def plainly(_: Sequence[Tensor], addresses: Sequence[int], stream: int) -> None:
        run(pick((*addresses, *numbers)), stream)

    def with_offsets(_: Sequence[Tensor], addresses: Sequence[int], stream: int) -> None:
        run(pick((*addresses, *[addresses[number] + offset for number, offset in moved], *numbers)), stream)

    return with_offsets if moved else plainly


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


def _running(launch: Launch, driver: Driver) -> Callable[..., None]:
    """The launch but for its arguments and its stream.

    Kernels overlap in a CUDA graph. Calls one by one come later than the kernel before ends, and are launched in a
    third of the time by torch's launcher, which lets no kernel overlap.
    """
    by_config = functools.partial(launch_by_config, driver, launch)
    if len(launch.slots) > MOST_PARAMETERS:
        return by_config
    kinds = "K" * len(launch.slots)
    run = functools.partial(driver.launch, launch.function, *launch.grid, launch.warps, launch.shared_bytes, kinds)
    if not launch.overlaps:
        return run
    capturing = driver.capturing

    def either(slots: Sequence[int], stream: int) -> None:
        (by_config if capturing() else run)(slots, stream)

    return either


def _copying(copy: Copy) -> Step:
    def step(tensors: Sequence[Tensor], _: Sequence[int], __: int) -> None:
        tensors[copy.to].copy_(tensors[copy.source])

    return step


def _returning(plan: Plan) -> Callable[[Sequence[Tensor]], Any]:
    if plan.form is Form.NOTHING:
        return lambda _: None
    if plan.form is Form.TENSOR and isinstance(plan.results[0], int):
        return operator.itemgetter(plan.results[0])
    made_of = list if plan.form is Form.LIST else tuple

    def result(one: Result, tensors: Sequence[Tensor]) -> Any:
        if isinstance(one, HostScalar):
            return torch.empty((), dtype=one.dtype, device="cpu")
        return one.value if isinstance(one, Number) else None if one is None else tensors[one]

    return lambda tensors: made_of([result(one, tensors) for one in plan.results])


class PlanCache:
    """The plans of one kernel in use.

    Args:
        driver: of the device type that it serves.
        untold: whether a call of these tensors is none for plans though its signature may have one; None: never.

    Attributes:
        driver, untold: as given.
        replayed: how many calls were answered by plans here.
        refusals: how many signatures have no plan, and why.
        table: where C++ finds plans, once a front uses one.
        again: answers the last call again, while there is no table.
    """

    def __init__(self, driver: Driver, *, untold: Callable[[Tensors], bool] | None = None) -> None:
        self.driver, self.untold = driver, untold
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

    def find(self, signature: Signature | None, tensors: Tensors, addresses: Addresses) -> Replay | None:
        """The plan of a call, if there is one that fits; C++ is told of it, which had none."""
        if signature is None:
            return None
        for replay in self._replays.get(signature, ()):
            if replay.fits(tensors, addresses):
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
