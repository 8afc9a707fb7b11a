"""The inline cache of an op: a fast path to the plan of the last call, which guards find without a signature.

To make a signature in Python takes longer than all else: a microsecond for each tensor, of which a list has hundreds.
A guard of torch's compiler looks at type, dtype, device, shape and strides, and that all tensors are distinct, in a
tenth of that. Other arguments are compared with those of the last call, and so are the settings that a signature has.

Of long lists, the addresses that a plan was used with are kept, with its launches for them: whether they overlap and
how they are aligned need not be found out twice, nor hundreds of parameters be packed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.dispatch.plans.replay import Addresses, Packed, Replay, Run, Tensors, is_one_launch, one_launch

#: What a fast path returns for a call that a guard rejects. None is a result: that of ops in place.
MISS: Any = object()
#: Serves a call by its arguments, given by position and by name, or returns :data:`MISS`.
FastPath = Callable[[tuple[Any, ...], dict[str, Any]], Any]
#: Takes the tensors out of a call's arguments; None where these have another form.
Extract = Callable[[tuple[Any, ...]], Tensors | None]
#: Whether a call's arguments are like those of the last one.
Guard = Callable[[tuple[Any, ...]], bool]

#: More tensors are a long list, whose addresses are kept.
_FEW = 8
#: So many addresses are kept of a plan: an optimiser's tensors stay where they are, gradients alternate between places.
_KEPT = 32


def fast_path_of(replay: Replay, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FastPath:
    """The fast path to a plan, made at the first call that the plan serves.

    Args:
        replay: fits the call.
        args: by position.
        kwargs: by name.
    """
    if replay.fast_path is None:
        replay.fast_path = _of_two_tensors(replay, args, kwargs) or _guarded(replay, args, kwargs) or _always_miss
    return replay.fast_path


def _always_miss(_: tuple[Any, ...], __: dict[str, Any]) -> Any:
    """Where guards cannot tell calls apart, only signatures can."""
    return MISS


# ---------------------------------------------------------------- fast paths


def _of_two_tensors(replay: Replay, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FastPath | None:
    """As :func:`_guarded`, of two tensors and nothing else: by far the most calls, without a step too much."""
    is_short = len(args) == 2 and not kwargs and all(type(arg) is Tensor and not arg.data_ptr() & 15 for arg in args)
    if not is_short or args[0] is args[1] or not is_one_launch(replay.plan):
        return None
    if not replay.always:
        return None
    guards = torch._C._dynamo.guards.TensorGuards(*args, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    same, default, deterministic = guards.check, torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic = default(), deterministic()
    allocate, run, pick, numbers, stream = one_launch(replay.plan, replay.driver)

    def fast_path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The guard raises where there are more or fewer arguments, such as a number after the tensors.
        if kwargs or len(args) != 2 or not same(*args):
            return MISS
        if default() is not dtype or deterministic() is not is_deterministic:
            return MISS
        one, other = args
        first, second = one.data_ptr(), other.data_ptr()
        if (first | second) & 15:
            return MISS
        made = allocate()
        run(pick((first, second, made.data_ptr(), *numbers)), stream())
        return made

    return fast_path


def _guarded(replay: Replay, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FastPath | None:
    """Serves calls like this one, or None where telling them apart takes a signature."""
    values = (*args, *kwargs.values())
    extract, places = _extracting(values)
    tensors = None if extract is None else extract(values)
    if extract is None or tensors is None or len({*map(id, tensors)}) < len(tensors):
        return None
    same_tensors, same_values = _tensor_guard(tensors), _value_guard(values, places)
    default, deterministic = torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic, count, names = default(), deterministic(), len(args), [*kwargs]
    if len(tensors) == 1 and args and args[0] is tensors[0] and replay.always and not tensors[0].data_ptr() & 15:
        return _of_one_tensor(len(args), names, same_tensors, same_values, replay)
    run = (_running_few if len(tensors) <= _FEW else _running_many)(tensors, replay)

    def fast_path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != count or ((kwargs or names) and [*kwargs] != names):
            return MISS
        values = (*args, *kwargs.values()) if kwargs else args
        tensors = extract(values)
        if (
            tensors is None
            or not same_tensors(*tensors)
            or (same_values is not None and not same_values(values))
            or default() is not dtype
            or deterministic() is not is_deterministic
        ):
            return MISS
        return run(tensors, [*map(Tensor.data_ptr, tensors)])

    return fast_path


def _of_one_tensor(
    count: int, names: list[str], same_tensors: Callable[..., bool], same_values: Guard | None, replay: Replay
) -> FastPath:
    """Serves calls whose only tensor is the first argument, with fewer steps."""
    default, deterministic = torch.get_default_dtype, torch._C._get_deterministic_algorithms
    dtype, is_deterministic, run = default(), deterministic(), replay.run

    def fast_path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != count or ((kwargs or names) and [*kwargs] != names):
            return MISS
        tensors = args[:1]
        if (
            not tensors
            or not same_tensors(*tensors)
            or default() is not dtype
            or deterministic() is not is_deterministic
        ):
            return MISS
        if same_values is not None and not same_values((*args, *kwargs.values()) if kwargs else args):
            return MISS
        address = tensors[0].data_ptr()
        return MISS if address & 15 else run(tensors, (address,))

    return fast_path


# ---------------------------------------------------------------- guards


def _tensor_guard(tensors: Tensors) -> Callable[..., bool]:
    """Whether as many tensors as these are like them. It raises where there are more or fewer."""
    if not tensors:
        return lambda: True
    guards = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check: Callable[..., bool] = guards.check
    return check


def _extracting(values: tuple[Any, ...]) -> tuple[Extract | None, list[int]]:
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
        return _extracting_lists([(place, lists.get(place)) for place in sorted([*singles, *lists])]), others
    if not others:
        return lambda values: values, others
    if len(singles) == 1:
        [place] = singles
        return lambda values: (values[place],), others
    return (operator.itemgetter(*singles) if singles else lambda _: ()), others


def _extracting_lists(places: list[tuple[int, int | None]]) -> Extract:
    """Takes tensors, and those of lists that are as long as these."""

    def extract(values: tuple[Any, ...]) -> Tensors | None:
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

    return extract


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor or type(value) is Parameter


def _value_guard(values: tuple[Any, ...], places: list[int]) -> Guard | None:
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


# ---------------------------------------------------------------- the plan, past the guards


def _running_few(tensors: Tensors, replay: Replay) -> Run:
    """Runs the plan where the addresses, too, are as a plan needs them."""
    rests = [address & 15 for address in map(Tensor.data_ptr, tensors)]
    run, fits, always = replay.run, replay.fits, replay.always
    if not any(rests):

        def run_aligned(tensors: Tensors, addresses: Addresses) -> Any:
            for address in addresses:
                if address & 15:
                    return MISS
            return run(tensors, addresses) if always or fits(addresses) else MISS

        return run_aligned

    def run_alike(tensors: Tensors, addresses: Addresses) -> Any:
        fitting = [address & 15 for address in addresses] == rests and fits(addresses)
        return run(tensors, addresses) if fitting else MISS

    return run_alike


def _running_many(tensors: Tensors, replay: Replay) -> Run:
    """As :func:`_running_few`, with the addresses of earlier calls and the launches for them kept."""
    rests = [address & 15 for address in map(Tensor.data_ptr, tensors)]
    kept: dict[tuple[int, ...], tuple[Packed, ...] | None] = {}
    stream, device = replay.driver.stream, replay.plan.device
    run, applies, result, packing = replay.run, replay.applies, replay.result, replay.packing()

    def run_kept(tensors: Tensors, addresses: Addresses) -> Any:
        places = tuple(addresses)
        if places not in kept:
            if [address & 15 for address in addresses] != rests or not replay.fits(addresses):
                return MISS
            if len(kept) >= _KEPT:
                kept.clear()
            kept[places] = None if packing is None else packing(addresses)
        elif not applies():
            return MISS
        launches = kept.get(places)  # Another thread may have cleared them.
        if launches is None:
            return run(tensors, addresses)
        now = stream(device)
        for launch in launches:
            launch(now)
        return result(tensors)

    return run_kept
