"""Reading calls of a traced graph, whichever way a model spells them.

``x.mean(-1, keepdim=True)``, ``torch.mean(x, dim=-1, keepdim=True)`` and the like are one :class:`Call` with
arguments by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

_BINARY = ("input", "other")
_UNARY = ("input",)
_REDUCTION = ("input", "dim", "keepdim")

#: name -> argument names, functions that have them in this order, methods of a tensor that do.
_SPELLINGS: dict[str, Sequence[tuple[Sequence[str], Sequence[Any], Sequence[str]]]] = {
    "add": [((*_BINARY, "alpha"), (operator.add, torch.add), ("add", "__add__", "__radd__"))],
    "sub": [((*_BINARY, "alpha"), (operator.sub, torch.sub, torch.subtract), ("sub", "subtract", "__sub__"))],
    "mul": [(_BINARY, (operator.mul, torch.mul, torch.multiply), ("mul", "multiply", "__mul__", "__rmul__"))],
    "div": [
        (
            (*_BINARY, "rounding_mode"),
            (operator.truediv, torch.div, torch.divide, torch.true_divide),
            ("div", "divide", "true_divide", "__truediv__"),
        )
    ],
    "pow": [(("input", "exponent"), (operator.pow, torch.pow), ("pow", "__pow__"))],
    "square": [(_UNARY, (torch.square,), ("square",))],
    "exp": [(_UNARY, (torch.exp,), ("exp",))],
    "log": [(_UNARY, (torch.log,), ("log",))],
    "sqrt": [(_UNARY, (torch.sqrt,), ("sqrt",))],
    "rsqrt": [(_UNARY, (torch.rsqrt,), ("rsqrt",))],
    "tanh": [(_UNARY, (torch.tanh, F.tanh), ("tanh",))],
    "erf": [(_UNARY, (torch.erf, torch.special.erf), ("erf",))],
    "mean": [((*_REDUCTION, "dtype"), (torch.mean,), ("mean",))],
    "sum": [((*_REDUCTION, "dtype"), (torch.sum,), ("sum",))],
    "amax": [(_REDUCTION, (torch.amax,), ("amax",))],
    "max": [(_REDUCTION, (torch.max,), ("max",))],
    "var": [(("input", "dim", "unbiased", "keepdim"), (torch.var,), ("var",))],
    "matmul": [(_BINARY, (operator.matmul, torch.matmul, torch.bmm), ("matmul", "bmm", "__matmul__"))],
    "einsum": [(("equation", "input", "other"), (torch.einsum,), ())],
    "transpose": [
        (("input", "dim0", "dim1"), (torch.transpose, torch.swapaxes), ("transpose", "swapaxes", "swapdims"))
    ],
    "softmax": [
        (("input", "dim", "_stacklevel", "dtype"), (F.softmax,), ()),
        (("input", "dim", "dtype"), (torch.softmax, torch.special.softmax), ("softmax",)),
    ],
    "log_softmax": [
        (("input", "dim", "_stacklevel", "dtype"), (F.log_softmax,), ()),
        (("input", "dim", "dtype"), (torch.log_softmax, torch.special.log_softmax), ("log_softmax",)),
    ],
    "nll_loss": [
        (
            ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
            (F.nll_loss,),
            (),
        )
    ],
    "masked_fill": [(("input", "mask", "value"), (torch.masked_fill,), ("masked_fill",))],
    "dropout": [(("input", "p", "training", "inplace"), (F.dropout,), ())],
    "getitem": [(("input", "index"), (operator.getitem,), ())],
    "float": [(_UNARY, (), ("float",))],
    "half": [(_UNARY, (), ("half",))],
    "bfloat16": [(_UNARY, (), ("bfloat16",))],
    "double": [(_UNARY, (), ("double",))],
    "to": [(("input", "to"), (), ("to", "type", "type_as"))],
    "view_as_complex": [(_UNARY, (torch.view_as_complex,), ())],
    "view_as_real": [(_UNARY, (torch.view_as_real,), ())],
    "batch_norm": [
        (
            ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
            (F.batch_norm,),
            (),
        )
    ],
    "linear": [(("input", "weight", "bias"), (F.linear,), ())],
    "conv": [
        (
            ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
            (F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d),
            (),
        )
    ],
    "conv_transpose": [
        (
            ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
            (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
            (),
        )
    ],
    "avg_pool": [
        (
            ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
            (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
            (),
        )
    ],
    "adaptive_avg_pool": [
        (("input", "output_size"), (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d), ())
    ],
    "tril": [(("input", "diagonal"), (torch.tril,), ("tril",))],
    "triu": [(("input", "diagonal"), (torch.triu,), ("triu",))],
    "diag": [(("input", "diagonal"), (torch.diag,), ("diag",))],
    "diag_embed": [(("input", "offset", "dim1", "dim2"), (torch.diag_embed,), ("diag_embed",))],
    "t": [(_UNARY, (torch.t,), ("t",))],
    "repeat_interleave": [
        (("input", "repeats", "dim"), (torch.repeat_interleave,), ("repeat_interleave",)),
    ],
    "expand": [(("input", "size", "size1", "size2", "size3", "size4"), (), ("expand",))],
    "reshape": [(("input", "shape", "shape1", "shape2", "shape3"), (torch.reshape,), ("reshape", "view"))],
    "unsqueeze": [(("input", "dim"), (torch.unsqueeze,), ("unsqueeze",))],
    "scaled_dot_product_attention": [
        (
            ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
            (F.scaled_dot_product_attention,),
            (),
        )
    ],
    "getattr": [(("input", "name"), (getattr,), ())],
}

_OF_FUNCTION: dict[Any, tuple[str, Sequence[str]]] = {
    function: (name, parameters)
    for name, spellings in _SPELLINGS.items()
    for parameters, functions, _ in spellings
    for function in functions
}
_OF_METHOD: dict[str, tuple[str, Sequence[str]]] = {
    method: (name, parameters)
    for name, spellings in _SPELLINGS.items()
    for parameters, _, methods in spellings
    for method in methods
}
#: Other names of arguments.
_SYNONYMS = {"axis": "dim", "self": "input", "exp": "exponent", "x": "input"}

_CASTS = {"float", "half", "bfloat16", "double", "to"}


@dataclass(frozen=True)
class Call:
    """A call by what it computes.

    Attributes:
        name: a key of the table above.
        node: that makes it.
        arguments: what was given, by name.
    """

    name: str
    node: fx.Node
    arguments: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The argument of that name, or None."""
        return self.arguments.get(name)


def read(node: Any, *names: str) -> Call | None:
    """The call that a node makes, if it is one of ``names``; else None."""
    if not isinstance(node, fx.Node):
        return None
    if node.op == "call_function":
        found = _OF_FUNCTION.get(node.target)
    else:
        found = _OF_METHOD.get(str(node.target)) if node.op == "call_method" else None
    if found is None or found[0] not in names or len(node.args) > len(found[1]):
        return None
    name, parameters = found
    arguments = dict(zip(parameters, node.args, strict=False))
    arguments.update({_SYNONYMS.get(key, key): value for key, value in node.kwargs.items()})
    return Call(name, node, arguments)


def plain(node: Any, *names: str) -> Call | None:
    """As :func:`read`, for the two operands of arithmetic without ``alpha`` and ``rounding_mode``."""
    call = read(node, *names)
    return None if call is None or call["alpha"] not in {None, 1} or call["rounding_mode"] else call


def tensor(node: Any) -> torch.Tensor | None:
    """The fake tensor that Dynamo left in a node, or None if it returns something else."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def number(value: Any) -> float | None:
    """A Python number as it stands in a graph, or None."""
    return float(value) if type(value) in {int, float} else None


def close_to(value: float | None, wanted: float) -> bool:
    """Whether a constant is what a formula has there, up to how many digits people write."""
    return value is not None and math.isclose(value, wanted, rel_tol=1e-6)


def is_last(dim: Any, like: torch.Tensor | None) -> bool:
    """Whether a ``dim`` argument names the last dimension only."""
    if isinstance(dim, (tuple, list)):
        return len(dim) == 1 and is_last(dim[0], like)
    return like is not None and type(dim) is int and dim in {-1, like.dim() - 1}


class Reader:
    """Follows a pattern upwards and remembers the nodes that belong to it."""

    def __init__(self) -> None:
        self.inside: set[fx.Node] = set()

    def take(self, node: Any, *names: str) -> Call | None:
        """As :func:`plain`; the node then belongs to the pattern."""
        call = plain(node, *names)
        if call is not None:
            self.inside.add(call.node)
        return call

    def without_casts(self, node: Any) -> Any:
        """What a node is before changes of its dtype, which belong to the pattern."""
        while (call := read(node, *_CASTS)) is not None and _only_dtype(call):
            self.inside.add(call.node)
            node = call["input"]
        return node

    def operands(self, call: Call, test: Callable[[Any], Any]) -> tuple[Any, Any] | None:
        """The two operands of a commutative call, the first that passes ``test`` in front."""
        one, other = call["input"], call["other"]
        if test(one):
            return one, other
        return (other, one) if test(other) else None

    def product(self, node: Any) -> tuple[float, list[Any]]:
        """A tree of products as one constant and the other factors; a division by a constant counts."""
        value = number(node)
        if value is not None:
            return value, []
        call = plain(node, "mul", "div")
        if call is None or (call.name == "div" and number(call["other"]) in {None, 0}):
            return 1.0, [node]
        self.inside.add(call.node)
        first, factors = self.product(call["input"])
        second, others = self.product(call["other"])
        return (first / second if call.name == "div" else first * second), [*factors, *others]


def _only_dtype(call: Call) -> bool:
    """Whether ``to`` and its kin change the dtype and nothing else; a cast to or from float64 counts as more."""
    before, after = tensor(call["input"]), tensor(call.node)
    if before is None or after is None or "copy" in call.arguments or "memory_format" in call.arguments:
        return False
    if not (before.is_floating_point() and after.is_floating_point()) or torch.float64 in {before.dtype, after.dtype}:
        return False
    return before.device == after.device


def same_shape(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two shapes are equal for every value of their symbols."""
    return one.dim() == other.dim() and statically_known_true(sym_eq(tuple(one.shape), tuple(other.shape)))


def static_size(size: Any) -> int | None:
    """A size as a number, also where a symbol has come to be one; None for a symbol."""
    found: int | None = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size
    return found
