"""Batch norm in inference, folded into the weights of the convolution or linear layer before it.

``(conv(x, w, b) - mean) * scale + bias`` with ``scale = gamma / sqrt(variance + eps)`` is
``conv(x, w * scale, (b - mean) * scale + bias)``, and whatever activation follows is the only thing that touches the
output after the convolution. The folded weights are computed in the graph, so weights may still change.

That is one more kernel, which reads and writes the weights. So it is done where it pays: on a CPU, if the output is
larger than the weights, and everywhere if Inductor freezes weights, since then it is computed once. In half precision
folded weights would be rounded once more, so there it is left as it is.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._inductor import config
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opsmith.compile.traced.calls import Call, Reader, read, tensor
from opsmith.compile.traced.fusion import Match, fuse


def fold_batch_norm(graph: fx.Graph) -> int:
    """Fold batch norms with fixed statistics where no gradient is asked for."""
    return fuse(graph, _fold)


def _fold(node: fx.Node) -> Match | None:
    norm, reader = read(node, "batch_norm"), Reader()
    if norm is None or norm["training"] or norm["running_mean"] is None or norm["running_var"] is None:
        return None
    layer = reader.take(norm["input"], "conv", "conv_transpose", "linear")
    result = tensor(node)
    if layer is None or result is None or result.requires_grad or result.dtype not in {torch.float32, torch.float64}:
        return None
    if not _channels_are_the_norms(layer, result):
        return None
    # The channels of each group of a transposed convolution have a dimension of the weight of their own.
    if layer.name == "conv_transpose" and layer["groups"] not in {None, 1}:
        return None
    parts = [layer["weight"], layer["bias"], norm["running_mean"], norm["running_var"], norm["weight"], norm["bias"]]
    if not _pays(result, tensor(layer["weight"])):
        return None
    given = [tensor(part) for part in parts if part is not None]
    if any(one is None or one.dtype != result.dtype for one in given):
        return None
    return Match(reader.inside, lambda graph: _folded(graph, layer, norm))


def _channels_are_the_norms(layer: Call, result: torch.Tensor) -> bool:
    """Whether the layer makes its channels in the norm's dimension, the second one.

    A linear layer does where it makes rows; a convolution of a batch, but not of one image without a batch.
    """
    weight, given = tensor(layer["weight"]), tensor(layer["input"])
    if weight is None or given is None:
        return False
    if layer.name == "linear":
        return weight.dim() == result.dim() == 2
    return given.dim() == weight.dim()


def _pays(result: torch.Tensor, weight: torch.Tensor | None) -> bool:
    if config.freezing:
        return True
    larger = weight is not None and statically_known_true(result.numel() > weight.numel())
    return larger and result.device.type == "cpu"


def _folded(graph: fx.Graph, layer: Call, norm: Call) -> fx.Node:
    weight = tensor(layer["weight"])
    assert weight is not None
    eps = norm["eps"] if norm["eps"] is not None else 1e-5
    scale = graph.call_method("rsqrt", (graph.call_function(torch.add, (norm["running_var"], eps)),))
    if norm["weight"] is not None:
        scale = graph.call_function(torch.mul, (scale, norm["weight"]))
    dims = weight.dim() - 1
    sizes = (1, -1, *(1,) * (dims - 1)) if layer.name == "conv_transpose" else (-1, *(1,) * dims)
    rows = graph.call_method("view", (scale, *sizes))
    folded = graph.call_function(torch.mul, (layer["weight"], rows))
    if layer["bias"] is None:
        shift = graph.call_function(torch.neg, (norm["running_mean"],))
    else:
        shift = graph.call_function(torch.sub, (layer["bias"], norm["running_mean"]))
    bias = graph.call_function(torch.mul, (shift, scale))
    if norm["bias"] is not None:
        bias = graph.call_function(torch.add, (bias, norm["bias"]))
    others = {name: value for name, value in layer.arguments.items() if name not in {"input", "weight", "bias"}}
    assert callable(layer.node.target)
    return graph.call_function(layer.node.target, (layer["input"], folded, bias), others)
