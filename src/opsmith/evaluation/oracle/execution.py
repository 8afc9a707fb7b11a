"""Runs a call's op, or its Model, on copies of the inputs in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.arguments import overload_of
from opsmith.aten.low_precision import FORMATS, PACKED, SCALES, dequantized, is_low, quantized
from opsmith.core.op import TaskKind
from opsmith.evaluation.criteria.judged_call import LARGE_ELEMENTS, JudgedCall
from opsmith.evaluation.oracle.draws import drawn_as_eager
from opsmith.evaluation.oracle.low_precision import FromLowPrecision
from opsmith.evaluation.oracle.op_tables import ADDING_UP
from opsmith.tasks import registry

#: What is made of an input, which has a number among the inputs, before the op runs on it.
Change = Callable[[torch.Tensor, int], torch.Tensor]

#: Dtypes in which results are computed.
WIDE = (torch.float64, torch.complex128)
#: By dtype, the one in which the oracle computes; others stay as they are.
WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def run_wide(
    call: JudgedCall,
    count: int,
    *,
    change: Change | None = None,
    kept: Sequence[torch.Tensor] = (),
    steps: AbstractContextManager[Any] = nullcontext(),  # noqa: B008 - it holds nothing
) -> list[Any] | None:
    """Run ``call`` on copies of its inputs in float64, within ``steps``; with ``change``, all but ``kept`` are changed.

    Takes up to four times the memory of half-precision inputs and results, and for a changed
    input the largest of them once more.

    Returns the leaves of the result, then the inputs that the op wrote to and did not return: large ones where
    they are, others on the CPU. None where the op cannot be run in float64, or not in the memory that there is.
    """
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    fixed = {id(tensor) for tensor in kept}

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return WIDER.get(leaf, leaf)
        if not isinstance(leaf, torch.Tensor):
            return abs(leaf) if change is in_magnitude and type(leaf) in (float, complex) else leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = leaf, _wide_copy(leaf, None if id(leaf) in fixed else change, len(copies))
        return copies[id(leaf)][1]

    is_op = call.schema.kind is TaskKind.OP
    # A Model runs in the dtypes of the state that it is given, which is widened with the inputs.
    function: Any = overload_of(call.schema) if is_op else registry.reference(call.schema.name)
    with torch.no_grad(), _float64_default(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = tree_map(widen, (call.args, call.kwargs))
            if change is in_magnitude:
                kwargs |= {name: abs(kwargs[name]) for name in ("alpha", "beta") if name in kwargs}
                packet = ADDING_UP.get(call.schema.packet)
                function = getattr(getattr(torch.ops.aten, packet), function._overloadname) if packet else function
            args, kwargs = _without_half_to_float(call, args, kwargs) if is_op else (args, kwargs)
            with drawn_as_eager(call), steps, _conversions(call):
                returned = tree_leaves(function(*args, **kwargs))
            missing = count - len(returned)
            written = _written(list(copies.values()), returned, change) if missing else []
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
            return None
    results = returned + (written if len(written) == missing else [None] * missing)
    return [_settled(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in results]


def _conversions(call: JudgedCall) -> AbstractContextManager[Any]:
    """What a call on tensors of 8 bits and fewer needs to compute in float64."""
    return FromLowPrecision() if any(map(is_low, tree_leaves((call.args, call.kwargs)))) else nullcontext()


def in_magnitude(wide: torch.Tensor, _number: int) -> torch.Tensor:
    """A change: the magnitudes of all numbers, of Python's too; with them differences are added up."""
    return wide.abs()


def _wide_copy(tensor: torch.Tensor, change: Change | None, number: int) -> torch.Tensor:
    wide = tensor.to(WIDER.get(tensor.dtype, tensor.dtype), copy=True)
    if change is None or not (wide.is_floating_point() or wide.is_complex()):
        return wide
    if wide.dtype in FORMATS:  # Such an input is exact: what is around it rounds.
        changes = change is in_magnitude and wide.dtype not in (PACKED, SCALES)
        return quantized(dequantized(wide).abs(), wide.dtype) if changes else wide
    return change(wide, number)


def _without_half_to_float(
    call: JudgedCall, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``half_to_float`` asks for a wider result than the input; in float64 that is the plain result."""
    names = [argument.name for argument in overload_of(call.schema)._schema.arguments]
    if "half_to_float" not in names:
        return args, kwargs
    position = names.index("half_to_float")
    if position < len(args):
        return (*args[:position], False, *args[position + 1 :]), kwargs
    return args, {**kwargs, "half_to_float": False}


def _written(
    copies: list[tuple[torch.Tensor, torch.Tensor]], returned: list[Any], change: Change | None
) -> list[torch.Tensor]:
    """The input copies that the op changed and did not return, in the order of the arguments."""
    own = {id(leaf) for leaf in returned}
    return [
        copy
        for number, (original, copy) in enumerate(copies)
        if id(copy) not in own and copy.layout is torch.strided and _differ(copy, _wide_copy(original, change, number))
    ]


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether any element differs, NaN being equal to NaN."""
    return one.shape != other.shape or bool(((one != other) & ~(one.isnan() & other.isnan())).any())


def _settled(result: torch.Tensor) -> torch.Tensor:
    dense = (result if result.layout is torch.strided else result.to_dense()).detach()
    return dense if dense.numel() >= LARGE_ELEMENTS else dense.cpu()


@contextmanager
def _float64_default() -> Iterator[None]:
    """Factories and ops on integers answer in the default dtype: make it float64 for a moment."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)
