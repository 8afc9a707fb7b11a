"""What is known of a traced graph's tensors that depend on no input."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from opsmith.compile.traced.calls import tensor

#: Creation and shape functions that are run to learn what a mask holds.
_COMPUTED = {
    torch.arange,
    torch.ones,
    torch.zeros,
    torch.full,
    torch.tril,
    torch.triu,
    torch.eq,
    torch.ne,
    torch.lt,
    torch.gt,
    torch.le,
    torch.ge,
    torch.logical_not,
    torch.unsqueeze,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.gt,
    operator.le,
    operator.ge,
    operator.invert,
    operator.getitem,
}
_METHODS = {"tril", "triu", "bool", "eq", "ne", "lt", "gt", "le", "ge", "logical_not", "unsqueeze", "view", "to"}
#: Elements of a mask that is worth computing: a causal one of 8,192 tokens.
_LARGEST = 1 << 26


def is_causal_mask(mask: fx.Node) -> bool:
    """Whether a boolean mask, true where a key is hidden, hides exactly the keys after each query."""
    like = tensor(mask)
    if like is None or any(type(size) is not int for size in like.shape) or like.numel() > _LARGEST:
        return False
    if like.dim() < 2 or any(size != 1 for size in like.shape[:-2]):
        return False
    found = _constant(mask, {})
    if not isinstance(found, torch.Tensor):
        return False
    hidden = torch.ones(like.shape[-2:], dtype=torch.bool).triu(1)
    return bool(torch.equal(found.reshape(like.shape[-2:]).to(torch.bool), hidden))


def _constant(node: Any, known: dict[fx.Node, Any]) -> Any:
    """What a node returns if it depends on no input, computed on the CPU; else None."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    if node in known:
        return known[node]
    computed = node.target in _COMPUTED if node.op == "call_function" else node.target in _METHODS
    if node.op not in {"call_function", "call_method"} or not computed:
        return None
    sources = {source: _constant(source, known) for source in node.all_input_nodes}
    if any(value is None for value in sources.values()):
        return None
    args = fx.map_arg(node.args, lambda source: sources[source])
    kwargs = {name: value for name, value in node.kwargs.items() if name != "device"}
    with unset_fake_temporarily():
        if node.op == "call_method":
            known[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            known[node] = node.target(*args, **kwargs)
    return known[node]
