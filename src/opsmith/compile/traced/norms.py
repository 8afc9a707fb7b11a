"""Norms and softmax that are spelled out, as calls of torch's own.

Each of torch's functions computes in float32 whatever the dtype of its input, rounds once, and has a gradient that
saves its input and a number for each row.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx

from opsmith.compile.traced.calls import Call, Reader, is_last, number, read, static_size, tensor
from opsmith.compile.traced.fusion import Match, fuse


def fuse_rms_norm(graph: fx.Graph) -> int:
    """``x * rsqrt(mean(x ** 2) + eps) * weight``, with or without the weight, and with casts to float32."""
    return fuse(graph, lambda node: _rms_norm(node, weighted=True)) + fuse(
        graph, lambda node: _rms_norm(node, weighted=False)
    )


def fuse_layer_norm(graph: fx.Graph) -> int:
    """``(x - mean) / sqrt(variance + eps) * weight + bias``, with or without the last two."""
    return fuse(graph, _layer_norm_with_bias) + fuse(graph, _layer_norm)


def fuse_softmax(graph: fx.Graph) -> int:
    """``exp(x - max) / sum`` as softmax, and the logarithm of a softmax as log_softmax."""
    return fuse(graph, _softmax) + fuse(graph, _log_softmax)


# ---------------------------------------------------------------- rms_norm


def _rms_norm(node: fx.Node, *, weighted: bool) -> Match | None:
    reader, weight, last = Reader(), None, node
    if weighted:
        product = read(node, "mul")
        operands = None if product is None else reader.operands(product, lambda side: _is_weight(side, node))
        if operands is None:
            return None
        weight, last = operands[0], reader.without_casts(operands[1])
    found = _normalised(reader, last)
    if found is None:
        return None
    x, eps = found
    like = tensor(x)
    if eps <= 0 or like is None or static_size(like.shape[-1]) is None:
        return None
    return Match(_inner(reader, node, x), lambda graph: _call_rms_norm(graph, x, weight, eps, tensor(node)))


def _normalised(reader: Reader, node: Any) -> tuple[fx.Node, float] | None:
    """The x and the eps of ``x * rsqrt(mean(x ** 2) + eps)`` or ``x / sqrt(...)``."""
    call = reader.take(node, "mul", "div")
    if call is None:
        return None
    if call.name == "div":
        root, x = reader.take(call["other"], "sqrt"), call["input"]
    else:
        operands = reader.operands(call, lambda side: read(_before_casts(side), "rsqrt") is not None)
        if operands is None:
            return None
        root, x = reader.take(reader.without_casts(operands[0]), "rsqrt"), operands[1]
    if root is None or not isinstance(x, fx.Node):
        return None
    mean, eps = _plus_eps(reader, root["input"])
    return None if eps is None or _square_of(reader, mean, x) is None else (x, eps)


def _before_casts(node: Any) -> Any:
    """A node before casts, for looking only."""
    return Reader().without_casts(node)


def _plus_eps(reader: Reader, node: Any) -> tuple[Any, float | None]:
    call = reader.take(node, "add")
    operands = None if call is None else reader.operands(call, lambda side: number(side) is not None)
    return (None, None) if operands is None else (operands[1], number(operands[0]))


def _square_of(reader: Reader, node: Any, x: fx.Node) -> Call | None:
    """A mean over the last dimension of the squares of ``x``, or of ``x`` in another dtype."""
    mean = reader.take(node, "mean")
    if mean is None or not is_last(mean["dim"], tensor(x)) or mean["keepdim"] is not True or mean["dtype"] is not None:
        return None
    square = reader.take(mean["input"], "pow", "square", "mul")
    if square is None:
        return None
    base = square["input"]
    squared = {"pow": number(square["exponent"]) == 2, "square": True, "mul": square["other"] is base}[square.name]
    return mean if squared and _same_tensor(reader, base, x) else None


def _same_tensor(reader: Reader, one: Any, other: Any) -> bool:
    """Whether two nodes are one, are it in two dtypes, or are the same difference written twice."""
    if one is other or _before_casts(one) is _before_casts(other):
        return True
    first, second = read(one, "sub"), read(other, "sub")
    if first is None or second is None or first.arguments != second.arguments:
        return False
    reader.inside.add(first.node)
    return True


def _is_weight(node: Any, result: fx.Node) -> bool:
    weight, like = tensor(node), tensor(result)
    return weight is not None and like is not None and weight.dim() == 1 and like.dim() > 1


def _call_rms_norm(
    graph: fx.Graph, x: fx.Node, weight: fx.Node | None, eps: float, result: torch.Tensor | None
) -> fx.Node:
    """On the input in the dtype of the result, where that loses nothing: else on what was squared."""
    source, like = _before_casts(x), tensor(x)
    assert like is not None
    given, plain = tensor(weight) if weight is not None else None, tensor(source)
    if (
        result is not None
        and plain is not None
        and plain.dtype == result.dtype
        and (given is None or given.dtype == result.dtype)
    ):
        x, like = source, plain
    return graph.call_function(F.rms_norm, (x, (static_size(like.shape[-1]),), weight, eps))


def _inner(reader: Reader, last: fx.Node, x: fx.Node) -> set[fx.Node]:
    """A pattern's own nodes: not its last, and no cast of its input that others may use as well."""
    shared = {x}
    node = x
    while read(node, "float", "half", "bfloat16", "double", "to") is not None:
        node = node.args[0]  # type: ignore[assignment]
        shared.add(node)
    casts = {one for one in reader.inside if _before_casts(one) is _before_casts(x)}
    return reader.inside - shared - casts - {last}


# ---------------------------------------------------------------- layer_norm


def _layer_norm_with_bias(node: fx.Node) -> Match | None:
    call = read(node, "add")
    if call is None or call["alpha"] not in {None, 1}:
        return None
    reader = Reader()
    operands = reader.operands(call, lambda side: _is_weight(side, node))
    if operands is None:
        return None
    bias, product = operands
    return _scaled_layer_norm(reader, node, product, bias)


def _layer_norm(node: fx.Node) -> Match | None:
    return _scaled_layer_norm(Reader(), node, node, None) or _bare_layer_norm(Reader(), node, node, None, None)


def _scaled_layer_norm(reader: Reader, node: fx.Node, product: Any, bias: fx.Node | None) -> Match | None:
    call = reader.take(product, "mul")
    operands = None if call is None else reader.operands(call, lambda side: _is_weight(side, node))
    if operands is None:
        return None
    return _bare_layer_norm(reader, node, operands[1], operands[0], bias)


def _bare_layer_norm(
    reader: Reader, node: fx.Node, normed: Any, weight: fx.Node | None, bias: fx.Node | None
) -> Match | None:
    call = reader.take(normed, "mul", "div")
    if call is None:
        return None
    kind = "sqrt" if call.name == "div" else "rsqrt"
    operands = (
        (call["other"], call["input"])
        if call.name == "div"
        else reader.operands(call, lambda side: read(side, "rsqrt") is not None)
    )
    root = None if operands is None else reader.take(operands[0], kind)
    centred = None if operands is None else reader.take(operands[1], "sub")
    if root is None or centred is None or not isinstance(centred["input"], fx.Node):
        return None
    x = centred["input"]
    mean = reader.take(centred["other"], "mean")
    variance, eps = _plus_eps(reader, root["input"])
    if mean is None or eps is None or eps <= 0 or mean["input"] is not x or not _over_rows(mean, x):
        return None
    if not _is_variance(reader, variance, x, centred.node):
        return None
    like, parameters = tensor(x), [tensor(one) for one in (weight, bias) if one is not None]
    if (
        like is None
        or static_size(like.shape[-1]) is None
        or any(one is None or one.dtype != like.dtype for one in parameters)
    ):
        return None
    shape = (static_size(like.shape[-1]),)
    return Match(
        reader.inside - {node, x},
        lambda graph: graph.call_function(F.layer_norm, (x, shape, weight, bias, eps)),
    )


def _over_rows(call: Call, x: fx.Node) -> bool:
    return is_last(call["dim"], tensor(x)) and call["keepdim"] is True and call["dtype"] is None


def _is_variance(reader: Reader, node: Any, x: fx.Node, centred: fx.Node) -> bool:
    """The mean of squares of what is centred, or ``var`` without Bessel's correction."""
    variance = reader.take(node, "var")
    if variance is not None:
        biased = variance["unbiased"] is False or (variance["correction"] == 0 and variance["unbiased"] is None)
        return variance["input"] is x and biased and _over_rows(variance, x)
    return _square_of(reader, node, centred) is not None


# ---------------------------------------------------------------- softmax


def _softmax(node: fx.Node) -> Match | None:
    reader = Reader()
    quotient = read(node, "div")
    if quotient is None or quotient["rounding_mode"] is not None:
        return None
    total, power = reader.take(quotient["other"], "sum"), reader.take(quotient["input"], "exp")
    if total is None or power is None or total["input"] is not power.node or total["keepdim"] is not True:
        return None
    dim, shifted = _one_dim(total["dim"]), power["input"]
    if dim is None or total["dtype"] is not None or not isinstance(shifted, fx.Node):
        return None
    x = _before_shift(reader, shifted, dim)
    return Match(reader.inside, lambda graph: graph.call_function(F.softmax, (x, dim)))


def _before_shift(reader: Reader, shifted: fx.Node, dim: int) -> fx.Node:
    """The x of ``x - max``; without a shift softmax is the same, and overflows later."""
    difference = read(shifted, "sub")
    largest = None if difference is None else difference["other"]
    values = read(largest, "getitem")
    largest = values["input"] if values is not None and values["index"] == 0 else largest
    maximum = read(largest, "amax", "max")
    if difference is None or maximum is None or maximum["input"] is not difference["input"]:
        return shifted
    if _one_dim(maximum["dim"]) != dim or maximum["keepdim"] is not True:
        return shifted
    reader.inside.update({difference.node, maximum.node, *([values.node] if values is not None else [])})
    x: fx.Node = difference["input"]
    return x


def _one_dim(dim: Any) -> int | None:
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        dim = dim[0]
    return dim if type(dim) is int else None


def _log_softmax(node: fx.Node) -> Match | None:
    reader = Reader()
    logarithm = read(node, "log")
    softmax = None if logarithm is None else reader.take(logarithm["input"], "softmax")
    if softmax is None or type(softmax["dim"]) is not int:
        return None
    kwargs = {"dtype": softmax["dtype"]} if softmax["dtype"] is not None else {}
    return Match(
        reader.inside,
        lambda graph: graph.call_function(F.log_softmax, (softmax["input"], softmax["dim"]), kwargs),
    )
