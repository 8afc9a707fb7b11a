"""Negative log likelihood of a log_softmax as cross_entropy, which is what has a fused kernel."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx

from opsmith.compile.traced.calls import Reader, read, tensor
from opsmith.compile.traced.fusion import Match, fuse

_KEPT = ("weight", "size_average", "ignore_index", "reduce", "reduction")


def fuse_cross_entropy(graph: fx.Graph) -> int:
    """``nll_loss(log_softmax(logits, 1), targets)``: the same numbers from one call."""
    return fuse(graph, _cross_entropy)


def _cross_entropy(node: fx.Node) -> Match | None:
    reader, loss = Reader(), read(node, "nll_loss")
    log_softmax = None if loss is None else reader.take(loss["input"], "log_softmax")
    if loss is None or log_softmax is None or log_softmax["dtype"] is not None:
        return None
    like = tensor(log_softmax.node)
    if like is None or like.dim() < 2 or log_softmax["dim"] not in {1, 1 - like.dim()}:
        return None
    kwargs = {name: loss[name] for name in _KEPT if name in loss.arguments}
    return Match(
        reader.inside,
        lambda graph: graph.call_function(F.cross_entropy, (log_softmax["input"], loss["target"]), kwargs),
    )
