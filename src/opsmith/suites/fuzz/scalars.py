"""Arguments that are no tensors: numbers, dimensions, lists of sizes, flags, names of modes.

The type that a schema gives says little; the argument's name says the rest. What comes out may still be
refused by eager, and is then not asked.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from opsmith.core.case import NamedValue, SequenceValue, Value
from opsmith.core.dtypes import TORCH_NAMES

#: Dimensions, by the names of arguments that count them.
DIMENSIONS = frozenset({"dim", "dims", "dim0", "dim1", "dim2", "axis", "axis0", "axis1", "start_dim", "end_dim"})
#: Names of modes, by argument: what an op calls its ways.
MODES: dict[str, tuple[str | None, ...]] = {
    "rounding_mode": (None, "floor", "trunc"),
    "approximate": ("none", "tanh"),
    "reduce": ("sum", "mean", "prod", "amax", "amin", "add", "multiply"),
    "UPLO": ("L", "U"),
    "indexing": ("ij", "xy"),
    "interpolation": ("linear", "lower", "higher", "midpoint", "nearest"),
    "side": (None, "left", "right"),
}
#: Numbers by argument, where not every number makes sense: a stride of 0, a probability of 7.
NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "eps": st.sampled_from((1e-5, 1e-3, 0.5)),
    "epsilon": st.sampled_from((1e-5, 1e-3)),
    "momentum": st.sampled_from((0.1, 0.5)),
    "p": st.sampled_from((2.0, 1.0, 0.0, 3.0)),
    "reduction": st.integers(0, 2),
    "groups": st.just(1),
    "group": st.integers(1, 3),
    "kernel_size": st.integers(1, 3),
    "stride": st.integers(1, 3),
    "dilation": st.integers(1, 2),
    "padding": st.integers(0, 1),
    "pad": st.integers(0, 2),
    "output_padding": st.just(0),
    "output_size": st.integers(1, 9),
    "size": st.integers(0, 9),
    "repeats": st.integers(0, 3),
    "upscale_factor": st.integers(1, 2),
    "downscale_factor": st.integers(1, 2),
    "k": st.integers(1, 4),
    "diagonal": st.integers(-3, 3),
    "offset": st.integers(-3, 3),
    "n": st.integers(0, 4),
    "beta": st.sampled_from((1.0, 0.5, 2.0)),
    "maxnorm": st.sampled_from((1.0, 2.0)),
    "max_norm": st.sampled_from((1.0, 2.0)),
    "norm_type": st.sampled_from((2.0, 1.0)),
    "interpolation_mode": st.integers(0, 1),
    "padding_mode": st.integers(0, 2),
    "padding_idx": st.just(-1),
    "ignore_index": st.just(-100),
    "normalization": st.integers(0, 2),
    "split_size": st.integers(1, 5),
    "chunks": st.integers(1, 4),
    "sections": st.integers(1, 4),
    "lambd": st.sampled_from((0.5, 0.0, 1.5)),
    "correction": st.integers(0, 2),
    "bins": st.integers(1, 9),
    "dilations": st.integers(1, 2),
    "start": st.integers(-2, 2),
    "end": st.integers(0, 9),
    "step": st.integers(1, 3),
    "threshold": st.sampled_from((20.0, 0.5, -1.0)),
    "delta": st.sampled_from((1.0, 0.5)),
    "quantile": st.sampled_from((0.5, 0.1)),
    "N": st.integers(0, 8),
    "order": st.integers(0, 2),
}
#: Factors of `alpha` and its like: the usual one, none, a negative, a fraction.
NUMBER = st.sampled_from((1, 0, 2, -1, 3)) | st.floats(-4, 4, width=16).filter(lambda x: abs(x) > 1e-3) | st.booleans()
FLOAT = st.floats(-4, 4, width=16).map(float)


class NotDrawable(Exception):
    """A required argument of a kind that nothing here draws; the message names it."""


def scalar(argument: torch._C.Argument, rank: int, dtype: str, name: str) -> st.SearchStrategy[Value]:
    """What an argument that is no tensor may be.

    Args:
        argument: of the schema.
        rank: dimensions of the call's first tensor.
        dtype: that is asked, in short form.
        name: of the overload: ``2d`` in it says how long lists of sizes are.

    Raises:
        NotDrawable: nothing is known about such an argument, and it has no default.
    """
    kind = str(argument.real_type)
    optional = kind.startswith("Optional[")
    kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    drawn = _by_kind(argument.name, kind, rank, dtype, name)
    if drawn is None:
        if not argument.has_default_value():
            raise NotDrawable(f"{argument.name}: {argument.real_type}")
        return st.just(default(argument))
    return st.none() | drawn if optional else drawn


def default(argument: torch._C.Argument) -> Value:
    """The schema's default, as a record holds it.

    Raises:
        NotDrawable: it has no serialized form.
    """
    found = argument.default_value
    if found is None or isinstance(found, (bool, int, float, str)):
        return found
    if isinstance(found, (list, tuple)) and all(isinstance(item, (bool, int, float)) for item in found):
        return SequenceValue(tuple(found), is_tuple=False)
    raise NotDrawable(f"{argument.name} = {found!r}")


def _by_kind(name: str, kind: str, rank: int, dtype: str, op: str) -> st.SearchStrategy[Any] | None:
    if kind == "ScalarType":
        # A result in another dtype is asked for by `dtype`; the others tell what a tensor was.
        return st.just(NamedValue("dtype", TORCH_NAMES[dtype]))
    if kind == "str":
        return st.sampled_from(MODES[name]) if name in MODES else None
    if kind == "bool":
        return st.booleans()
    if kind in ("int", "SymInt"):
        return _integer(name, rank)
    if kind in ("List[int]", "List[SymInt]"):
        return _integers(name, rank, op)
    if kind in ("float", "number", "Scalar"):
        return NUMBERS.get(name, FLOAT if kind == "float" else NUMBER)
    if kind == "List[bool]":
        return st.just(SequenceValue((True, True, True), is_tuple=False))
    return None


def _integer(name: str, rank: int) -> st.SearchStrategy[int]:
    if name in DIMENSIONS:
        return st.integers(-max(rank, 1), max(rank, 1) - 1)
    return NUMBERS.get(name, st.integers(0, 3))


def _integers(name: str, rank: int, op: str) -> st.SearchStrategy[SequenceValue]:
    if name in DIMENSIONS:
        dims = st.lists(st.integers(0, max(rank, 1) - 1), unique=True, max_size=max(rank, 1))
        return dims.map(lambda items: SequenceValue(tuple(items), is_tuple=False))
    planes = next((number for number in (1, 2, 3) if f"{number}d" in op), None)
    if name in ("pad", "padding") and "pad" in op.partition(".")[0]:
        length = 2 * (planes or 1)
    else:
        length = planes or (2 if op.startswith(("convolution", "im2col", "col2im", "_fft")) else max(rank, 1))
    item = NUMBERS.get(name, st.integers(0, 3))
    return st.lists(item, min_size=length, max_size=length).map(lambda v: SequenceValue(tuple(v), is_tuple=False))
