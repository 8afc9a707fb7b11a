"""Calls that are made again: the last call's plan is found without making a signature.

To make one in Python takes longer than all else: a microsecond for each tensor, of which a list has hundreds. A guard
of torch's compiler looks at type, dtype, device, shape and strides, and that all tensors are distinct, in a tenth of
that. Other arguments are compared with those of the last call, and so are the settings that a signature has.

Of long lists, the addresses that a plan was used with are kept, with its launches for them: whether they overlap and
how they are aligned need not be found out twice, nor hundreds of parameters be packed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.dispatch.plans.cuda_driver import Driver
from opsmith.dispatch.plans.plan import LaunchPlan

#: What is answered to another call than the one that is made again. None is an answer: that of ops in place.
ANOTHER_CALL: Any = object()
#: Answers a call by its arguments, given by position and by name, or with :data:`ANOTHER_CALL`.
Again = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Addresses = Sequence[int]
#: Launches what is packed, on a stream.
Packed = Callable[[int], None]
#: The launches for tensors at some addresses.
Packing = Callable[[Addresses], tuple[Packed, ...]]
Tensors = Sequence[Tensor]
#: Takes the tensors out of a call's arguments; None where these have another form.
Taking = Callable[[tuple[Any, ...]], Tensors | None]

#: More tensors are a long list, whose addresses are kept.
_FEW = 8
#: So many addresses are kept of a plan: an optimiser's tensors stay where they are, gradients alternate between places.
_KEPT = 32


class Repeatable(Protocol):
    """What is used of :class:`opsmith.dispatch.plans.plan_cache.Replay`."""

    plan: LaunchPlan
    answer: Callable[[Tensors, Addresses], Any]
    always: bool

    def fits(self, addresses: Addresses) -> bool:
        """What a signature does not say."""

    def applies(self) -> bool:
        """Of that, what does not depend on the arguments."""

    def packing(self) -> Packing | None:
        """What packs its launches, or None where the tensors themselves are needed."""

    def result(self, tensors: Tensors) -> Any:
        """What is returned, given all tensors."""


def answering_again(args: tuple[Any, ...], kwargs: dict[str, Any], replay: Repeatable, driver: Driver) -> Again | None:
    """Answers calls like this one, which ``replay`` answers, or None where telling them takes a signature.

    Args:
        args: by position.
        kwargs: by name.
        replay: fits the call.
        driver: of the device.
    """
    values = (*args, *kwargs.values())
    taking, places = _taking(values)
    tensors = None if taking is None else taking(values)
    if taking is None or tensors is None or len({*map(id, tensors)}) < len(tensors):
        return None
    same_tensors, same_values = _same_tensors(tensors), _same_values(values, places)
    default, deterministic = torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic, count, names = default(), deterministic(), len(args), [*kwargs]
    answer = (_answering_few if len(tensors) <= _FEW else _answering_many)(tensors, replay, driver)
    if len(tensors) == 1 and args and args[0] is tensors[0] and replay.always and not tensors[0].data_ptr() & 15:
        return _of_one_tensor(len(args), names, same_tensors, same_values, replay)

    def again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != count or ((kwargs or names) and [*kwargs] != names):
            return ANOTHER_CALL
        values = (*args, *kwargs.values()) if kwargs else args
        tensors = taking(values)
        if (
            tensors is None
            or not same_tensors(*tensors)
            or (same_values is not None and not same_values(values))
            or default() is not dtype
            or deterministic() is not is_deterministic
        ):
            return ANOTHER_CALL
        return answer(tensors, [*map(Tensor.data_ptr, tensors)])

    return again


def _of_one_tensor(
    count: int,
    names: list[str],
    same_tensors: Callable[..., bool],
    same_values: Callable[[tuple[Any, ...]], bool] | None,
    replay: Repeatable,
) -> Again:
    """Answers calls whose only tensor is the first argument, with fewer steps."""
    default, deterministic = torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic, answer = default(), deterministic(), replay.answer

    def again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != count or ((kwargs or names) and [*kwargs] != names):
            return ANOTHER_CALL
        tensors = args[:1]
        if (
            not tensors
            or not same_tensors(*tensors)
            or default() is not dtype
            or deterministic() is not is_deterministic
        ):
            return ANOTHER_CALL
        if same_values is not None and not same_values((*args, *kwargs.values()) if kwargs else args):
            return ANOTHER_CALL
        address = tensors[0].data_ptr()
        return ANOTHER_CALL if address & 15 else answer(tensors, (address,))

    return again


def _same_tensors(tensors: Tensors) -> Callable[..., bool]:
    """Whether as many tensors as these are like them. It raises where there are more or fewer."""
    if not tensors:
        return lambda: True
    guards = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check: Callable[..., bool] = guards.check
    return check


# ---------------------------------------------------------------- the arguments


def _taking(values: tuple[Any, ...]) -> tuple[Taking | None, list[int]]:
    """What takes the tensors out of arguments like these, in their order, and where the others are."""
    singles, lists, others = [], {}, []
    for place, value in enumerate(values):
        if _is_plain(value):
            singles.append(place)
        elif isinstance(value, (list, tuple)) and value and all(map(_is_plain, value)):
            lists[place] = len(value)
        elif isinstance(value, (list, tuple)) and any(isinstance(one, (Tensor, list, tuple)) for one in value):
            return None, []  # Tensors among others, such as indices.
        else:
            others.append(place)
    if lists:
        return _taking_lists([(place, lists.get(place)) for place in sorted([*singles, *lists])]), others
    if not others:
        return lambda values: values, others
    if len(singles) == 1:
        [place] = singles
        return lambda values: (values[place],), others
    return (operator.itemgetter(*singles) if singles else lambda _: ()), others


def _taking_lists(places: list[tuple[int, int | None]]) -> Taking:
    """Takes tensors, and those of lists that are as long as these."""

    def take(values: tuple[Any, ...]) -> Tensors | None:
        found: list[Tensor] = []
        for place, count in places:
            value = values[place]
            if count is None:
                found.append(value)
            elif (type(value) is not list and type(value) is not tuple) or len(value) != count:
                return None
            else:
                found += value
        return found

    return take


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor or type(value) is Parameter


def _same_values(values: tuple[Any, ...], places: list[int]) -> Callable[[tuple[Any, ...]], bool] | None:
    """Whether the arguments at these places are of the types and values that they have here; None: there are none."""
    if not places:
        return None
    numbers = [place for place in places if not isinstance(values[place], (list, tuple))]
    kept, kinds = [values[place] for place in numbers], [type(values[place]) for place in numbers]
    lists = [(place, [*values[place]], [*map(type, values[place])]) for place in places if place not in numbers]
    # 0.0 equals -0.0.
    signed = any(_is_zero(one) for value in (kept, *(entries for _, entries, _ in lists)) for one in value)
    signs = [_signs(kept), *(_signs(entries) for _, entries, _ in lists)] if signed else []

    def same(values: tuple[Any, ...]) -> bool:
        given = [values[place] for place in numbers]
        # Types first: a tensor is not to be compared with a number.
        if [*map(type, given)] != kinds or given != kept:
            return False
        for place, entries, kinds_of in lists:
            value = values[place]
            if type(value) is not list and type(value) is not tuple:
                return False
            if [*map(type, value)] != kinds_of or [*value] != entries:
                return False
        return not signed or [_signs(given), *(_signs(values[place]) for place, _, _ in lists)] == signs

    return same


def _is_zero(value: Any) -> bool:
    return type(value) is float and value == 0


def _signs(values: Sequence[Any]) -> list[float]:
    return [math.copysign(1.0, value) for value in values if type(value) is float]


# ---------------------------------------------------------------- the answer


def _answering_few(tensors: Tensors, replay: Repeatable, _: Driver) -> Callable[[Tensors, Addresses], Any]:
    rests = [address & 15 for address in map(Tensor.data_ptr, tensors)]
    answer, fits, always = replay.answer, replay.fits, replay.always
    if not any(rests):

        def answer_aligned(tensors: Tensors, addresses: Addresses) -> Any:
            for address in addresses:
                if address & 15:
                    return ANOTHER_CALL
            return answer(tensors, addresses) if always or fits(addresses) else ANOTHER_CALL

        return answer_aligned

    def answer_alike(tensors: Tensors, addresses: Addresses) -> Any:
        fitting = [address & 15 for address in addresses] == rests and fits(addresses)
        return answer(tensors, addresses) if fitting else ANOTHER_CALL

    return answer_alike


def _answering_many(tensors: Tensors, replay: Repeatable, driver: Driver) -> Callable[[Tensors, Addresses], Any]:
    rests = [address & 15 for address in map(Tensor.data_ptr, tensors)]
    kept: dict[tuple[int, ...], tuple[Packed, ...] | None] = {}
    stream, device = driver.stream, replay.plan.device
    answer, applies, result, packing = replay.answer, replay.applies, replay.result, replay.packing()

    def answer_kept(tensors: Tensors, addresses: Addresses) -> Any:
        places = tuple(addresses)
        if places not in kept:
            if [address & 15 for address in addresses] != rests or not replay.fits(addresses):
                return ANOTHER_CALL
            if len(kept) >= _KEPT:
                kept.clear()
            kept[places] = None if packing is None else packing(addresses)
        elif not applies():
            return ANOTHER_CALL
        launches = kept.get(places)  # Another thread may have cleared them.
        if launches is None:
            return answer(tensors, addresses)
        now = stream(device)
        for launch in launches:
            launch(now)
        return result(tensors)

    return answer_kept
