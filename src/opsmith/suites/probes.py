"""Probes: calls that the samples made, asked again with values that tell right from nearly right.

Sample inputs are random numbers. They hold no NaN for ``isnan``, no equal elements for ``isin``,
no zero for ``all``; with them a kernel that always says yes is right. A probe keeps a recorded
call's op, dtypes and other arguments and changes the values of its tensors. What is changed
follows from what torch's tags and schema say about the op, in this order:

========================  ====================================  ==================================
the op                    its tensors                           are filled with
========================  ====================================  ==================================
answers with one bool     keep their shapes                     ``spread``, ``same``
is elementwise            get the shape ``ELEMENTWISE_SHAPE``   ``spread``, ``special``
reduces                   keep their shapes                     ``zero``, ``mask``, ``complement``
stands in ``FILLS``       keep their shapes                     what the table says
takes one tensor, only    get sizes of their own if all were    ``spread``
                          below ``SMALL`` elements
========================  ====================================  ==================================

Only calls that eager answers become cases.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from opsmith.aten.schemas import aten_schemas
from opsmith.calls.recording import op_name
from opsmith.core.seeds import derive_seed

#: Two dimensions, neither a power of two, large enough for every pattern to appear.
ELEMENTWISE_SHAPE = (5, 33)
#: Sizes that no two dimensions of a small tensor share.
GROWN_SIZES = (5, 7, 3, 2, 4)
SMALL = 16
#: Probed calls of one op in one entry: enough for the values that its scalars take.
MOST_CALLS = 4
#: Recorded calls of one op that are looked at in one entry; some make the same one hundreds of times.
MOST_LOOKS = 32

#: Ops whose question random numbers hardly ever answer with yes, by packet.
FILLS = {
    "isin": ("few",),  # Two sets of random numbers have no common element.
}

#: Ops whose answer to some of these values is not defined, by packet.
UNDEFINED = {
    "frexp": ("special",),  # The exponent of a NaN or an infinity is unspecified.
    "bitwise_left_shift": ("spread",),  # By a negative number of bits.
    "bitwise_right_shift": ("spread",),
    "__lshift__": ("spread",),
    "__rshift__": ("spread",),
    "__ilshift__": ("spread",),
    "__irshift__": ("spread",),
    # At NaN torch's kernels for CUDA and for the CPU differ.
    "elu_backward": ("special",),
    "hardshrink_backward": ("special",),
    "hardtanh_backward": ("special",),
    "logit_backward": ("special",),
    "softshrink_backward": ("special",),
    # At NaN torch's kernels for the CPU give what the memory held.
    "special_chebyshev_polynomial_t": ("special",),
    "special_chebyshev_polynomial_u": ("special",),
    "special_chebyshev_polynomial_v": ("special",),
    "special_chebyshev_polynomial_w": ("special",),
    "special_hermite_polynomial_h": ("special",),
    "special_hermite_polynomial_he": ("special",),
    "special_laguerre_polynomial_l": ("special",),
    "special_legendre_polynomial_p": ("special",),
    "special_shifted_chebyshev_polynomial_t": ("special",),
    "special_shifted_chebyshev_polynomial_u": ("special",),
    "special_shifted_chebyshev_polynomial_v": ("special",),
    "special_shifted_chebyshev_polynomial_w": ("special",),
}


class TensorForm(NamedTuple):
    """A tensor argument without its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device


class _CallForm(NamedTuple):
    """A call without values: its arguments flattened, forms in place of tensors, and their nesting."""

    forms: list[Any]
    structure: TreeSpec

    @property
    def tensors(self) -> list[TensorForm]:
        return [form for form in self.forms if isinstance(form, TensorForm)]

    def elements(self) -> int:
        """Elements of its largest tensor."""
        return max((math.prod(form.shape) for form in self.tensors), default=0)

    def dimensions(self) -> int:
        """Dimensions of its first tensor, which the others (out=) follow."""
        return len(self.tensors[0].shape)

    def grown(self) -> _CallForm:
        """The same call on tensors with as many dimensions and ``GROWN_SIZES``."""
        forms = [
            form._replace(shape=GROWN_SIZES[: len(form.shape)]) if isinstance(form, TensorForm) else form
            for form in self.forms
        ]
        return _CallForm(forms, self.structure)


class Probe(NamedTuple):
    """One call to make.

    Attributes:
        fill: what its tensors are filled with.
        function: the overload.
        arguments: makes fresh positional and keyword arguments.
    """

    fill: str
    function: torch._ops.OpOverload
    arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


class _Plan(NamedTuple):
    """How an op is probed: the fills, and how the shapes of its tensors are chosen."""

    fills: tuple[str, ...]
    shapes: str = "kept"


class CallForms:
    """Remembers the forms of calls and makes probes of them."""

    def __init__(self) -> None:
        self._seen: dict[Any, dict[Any, _CallForm]] = {}
        self._looks: dict[Any, int] = {}

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember a call of ``func`` if its op is probed; the values of its tensors are not looked at."""
        plan = _plan(func)
        looks = self._looks.get(func, 0)
        if plan is None or looks == MOST_LOOKS:
            return
        self._looks[func] = looks + 1
        leaves, structure = tree_flatten((args, kwargs))
        forms = [_form(leaf) for leaf in leaves]
        if plan.shapes == "elementwise":
            forms = _elementwise(forms)
        # 1, True and 1.0 are equal as keys but not as arguments.
        key = (*(form if isinstance(form, TensorForm) else repr(form) for form in forms), str(structure))
        self._seen.setdefault(func, {}).setdefault(key, _CallForm(forms, structure))

    def probes(self, seed: int) -> Iterator[Probe]:
        """The calls to make, in an order and with values that follow from what was seen and ``seed``."""
        values = functools.cache(functools.partial(_values, seed))
        for func, seen in self._seen.items():
            plan = _plan(func)
            assert plan is not None
            for call in _chosen(plan, list(seen.values())):
                has_floats = any(form.dtype.is_floating_point for form in call.tensors)
                for fill in plan.fills:
                    if has_floats or fill != "special":
                        yield Probe(fill, func, functools.partial(_make, call, fill, values))


def _form(argument: Any) -> Any:
    """The form of a tensor, which is strided in a probe; anything else as it is."""
    if isinstance(argument, torch.Tensor):
        return TensorForm(argument.dtype, tuple(argument.shape), argument.device)
    return argument


def _elementwise(forms: list[Any]) -> list[Any]:
    """The same call on one shape.

    A tensor of no dimensions among larger ones keeps its shape: it takes part in type promotion
    as a number does.
    """
    numbers_only = not any(isinstance(form, TensorForm) and form.shape for form in forms)
    return [
        form._replace(shape=ELEMENTWISE_SHAPE)
        if isinstance(form, TensorForm) and (form.shape or numbers_only)
        else form
        for form in forms
    ]


def _chosen(plan: _Plan, seen: list[_CallForm]) -> list[_CallForm]:
    """The calls to follow: the first ones where shapes are made, the largest where they are kept."""
    if plan.shapes == "elementwise":
        return seen[:MOST_CALLS]
    if plan.shapes == "kept":
        return sorted(seen, key=_CallForm.elements, reverse=True)[:MOST_CALLS]
    if any(call.elements() >= SMALL for call in seen):
        return []
    return [max(seen, key=_CallForm.dimensions).grown()]


# ---------------------------------------------------------------- which op is probed how


@functools.cache
def _plan(func: Any) -> _Plan | None:
    if op_name(func) not in aten_schemas():
        return None
    packet, tags = op_name(func).rpartition(".")[0], _tags(func)
    arguments = [argument for argument in func._schema.arguments if not argument.is_out]
    if "nondeterministic_seeded" in tags or not any("Tensor" in str(argument.type) for argument in arguments):
        return None
    if [str(returned.type) for returned in func._schema.returns] == ["bool"]:
        plan = _Plan(("spread", "same"))
    elif "pointwise" in tags:
        plan = _Plan(("spread", "special"), "elementwise")
    elif "reduction" in tags:
        plan = _Plan(("zero", "mask", "complement"))
    elif packet in FILLS:
        plan = _Plan(FILLS[packet])
    elif [str(argument.type) for argument in arguments] == ["Tensor"]:
        plan = _Plan(("spread",), "grown")
    else:
        return None
    undefined = UNDEFINED.get(packet.removesuffix("_") if not packet.endswith("__") else packet, ())
    return plan._replace(fills=tuple(fill for fill in plan.fills if fill not in undefined))


def _tags(func: Any) -> set[str]:
    """Torch's tags of an overload, of its functional one, and of the op whose gradient it is.

    In-place and ``out=`` overloads are not tagged throughout and gradients not at all; the
    gradient of an elementwise op is elementwise.
    """
    schemas = aten_schemas()
    schema = schemas[op_name(func)]
    related = [schema.name, schema.functional]
    if schema.packet.endswith("_backward"):
        related.append(f"{schema.packet.removesuffix('_backward')}.default")
    return {tag for name in related if name in schemas for tag in schemas[name].tags}


# ---------------------------------------------------------------- values


def _make(
    call: _CallForm, fill: str, values: Callable[[str, int, TensorForm], torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    leaves, position = [], 0
    for form in call.forms:
        if isinstance(form, TensorForm):
            leaves.append(values(fill, position, form).clone())
            position += 1
        else:
            leaves.append(form)
    args, kwargs = tree_unflatten(leaves, call.structure)
    return args, kwargs


def _values(seed: int, fill: str, position: int, form: TensorForm) -> torch.Tensor:
    """Tensor number ``position`` of a call that is filled with ``fill``."""
    count = math.prod(form.shape)
    # Places are the same for all tensors of a call, values their own.
    places = torch.randperm(count, generator=_generator(seed, count))
    flat = _PATTERNS[fill](seed, position, form.dtype, places)
    return flat.to(form.dtype).reshape(form.shape).to(form.device)


def _generator(*parts: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(*parts))


def _spread(seed: int, position: int, dtype: torch.dtype, places: torch.Tensor) -> torch.Tensor:
    """Numbers of both signs and of many magnitudes.

    In one eighth of the places all tensors of a call are equal; a quarter of those, and other
    places of each tensor, are zero.
    """
    own = _numbers(dtype, len(places), _generator(seed, position, 1))
    shared = _numbers(dtype, len(places), _generator(seed, 2))
    eighth = len(places) // 8
    own[places[:eighth]] = shared[places[:eighth]]
    own[places[: eighth // 4]] = 0
    own[places.roll(-eighth * (position + 1))[: eighth // 2]] = 0
    return own


def _numbers(dtype: torch.dtype, count: int, generator: torch.Generator) -> torch.Tensor:
    """Floats with magnitudes from 2^-8 to 2^4, integers from -8 to 8 (no sign where there is none), bools."""
    if dtype.is_complex:
        parts = [_numbers(torch.float32, count, generator) for _ in range(2)]
        return torch.complex(parts[0], parts[1])
    if dtype.is_floating_point:
        signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
        return signs * torch.exp2(torch.rand(count, generator=generator) * 12 - 8)
    low, high = (0, 2) if dtype is torch.bool else (-8 if dtype.is_signed else 0, 9)
    return torch.randint(low, high, (count,), generator=generator)


def _special(seed: int, position: int, dtype: torch.dtype, places: torch.Tensor) -> torch.Tensor:
    """``spread`` with NaN, both infinities and a negative zero, each in one sixteenth of the places."""
    numbers = _spread(seed, position, dtype, places)
    if dtype.is_floating_point:
        sixteenth = len(places) // 16
        for number, value in enumerate((math.nan, math.inf, -math.inf, -0.0)):
            # Two thirds of a sixteenth further for each tensor: some meet each other, some meet numbers.
            start = number * sixteenth + position * (2 * sixteenth // 3)
            numbers[places.roll(-start)[:sixteenth]] = value
    return numbers


def _same(seed: int, _position: int, dtype: torch.dtype, places: torch.Tensor) -> torch.Tensor:
    return _spread(seed, 0, dtype, places)


def _few(seed: int, position: int, dtype: torch.dtype, places: torch.Tensor) -> torch.Tensor:
    """The integers from 0 to 7, or bools: tensors of a call have some of them in common."""
    high = 2 if dtype is torch.bool else 8
    return torch.randint(0, high, (len(places),), generator=_generator(seed, position, 3))


def _mask(seed: int, position: int, _dtype: torch.dtype, places: torch.Tensor) -> torch.Tensor:
    """Zeros and ones; the first element is a zero, the last one a one."""
    ones = torch.randint(0, 2, (len(places),), generator=_generator(seed, position, 4))
    ones[:1] = 0
    ones[-1:] = 1
    return ones


_PATTERNS: dict[str, Callable[[int, int, torch.dtype, torch.Tensor], torch.Tensor]] = {
    "spread": _spread,
    "special": _special,
    "same": _same,
    "few": _few,
    "zero": lambda _seed, _position, _dtype, places: torch.zeros(len(places)),
    "mask": _mask,
    "complement": lambda *arguments: 1 - _mask(*arguments),
}
