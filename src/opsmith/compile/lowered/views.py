"""View cleanup: chains of views become one, and views that change nothing go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from opsmith.compile.graph.aliasing import Sharing
from opsmith.compile.graph.values import same
from opsmith.compile.lowered.nodes import calls, tensor_of, use_instead, value_of

aten = torch.ops.aten

_RESHAPES = {aten.view.default, aten.reshape.default, aten._unsafe_view.default}
_NO_OPS = (
    *_RESHAPES,
    aten.permute.default,
    aten.expand.default,
    aten.slice.Tensor,
    aten.alias.default,
    aten.squeeze.dims,
    aten.squeeze.dim,
)


def clean_views(graph: fx.Graph) -> int:
    """Merge views of views; drop those that return what they were given."""
    rules: dict[Any, Callable[[fx.Node], fx.Node | None]] = {
        **dict.fromkeys(_RESHAPES, _view_of_view),
        aten.permute.default: _permute_of_permute,
        aten.expand.default: _expand_of_expand,
        aten.squeeze.dim: _squeeze_of_unsqueeze,
    }
    sharing, fired = Sharing(graph), 0
    for node in calls(graph, *_NO_OPS):
        if sharing.holds_several_outputs(node):
            continue
        rule = rules.get(node.target)
        new = _unchanged(node) or (rule(node) if rule is not None else None)
        if new is not None:
            fired += use_instead(sharing, node, new)
    return fired


def _unchanged(node: fx.Node) -> fx.Node | None:
    source = node.args[0]
    if isinstance(source, fx.Node) and same(tensor_of(source), tensor_of(node)):
        # An output that is an input, or another output, is a different promise to autograd and callers.
        returned = any(user.op == "output" for user in node.users)
        return None if returned or _offset_moved(source, node) else source
    return None


def _offset_moved(source: fx.Node, node: fx.Node) -> bool:
    before, after = tensor_of(source), tensor_of(node)
    assert before is not None
    assert after is not None
    return bool(before.storage_offset() != after.storage_offset())


def _inner(node: fx.Node, targets: Sequence[Any] | set[Any]) -> fx.Node | None:
    inner = node.args[0]
    return inner if isinstance(inner, fx.Node) and inner.target in targets else None


def _view_of_view(node: fx.Node) -> fx.Node | None:
    """Sizes of the outer view are all that counts, where the innermost tensor has them in one piece.

    A size that is left open may come out as another expression of the symbols, of which nobody knows that it is equal.
    """
    inner = _inner(node, _RESHAPES)
    if inner is None:
        return None
    source = inner.args[0]
    before = tensor_of(source)
    if before is None or not before.is_contiguous():
        return None
    with enable_python_dispatcher():
        merged = node.target(before, fx.map_arg(node.args[1], value_of))  # type: ignore[operator]
    if not same(merged, tensor_of(node)):
        return None
    with node.graph.inserting_before(node):
        return node.graph.call_function(node.target, (source, node.args[1]))  # type: ignore[arg-type]


def _permute_of_permute(node: fx.Node) -> fx.Node | None:
    inner = _inner(node, {aten.permute.default})
    if inner is None:
        return None
    first: Any = inner.args[1]
    second: Any = node.args[1]
    order = [first[place] for place in second]
    source = inner.args[0]
    with node.graph.inserting_before(node):
        return node.graph.call_function(aten.permute.default, (source, order))


def _expand_of_expand(node: fx.Node) -> fx.Node | None:
    inner = _inner(node, {aten.expand.default})
    if inner is None:
        return None
    sizes: Any = node.args[1]
    middle, before = tensor_of(inner), tensor_of(inner.args[0])
    # A -1 means the size that is there, which is the middle one's.
    if middle is None or before is None or -1 in sizes or middle.dim() != len(sizes):
        return None
    with node.graph.inserting_before(node):
        return node.graph.call_function(aten.expand.default, (inner.args[0], sizes))


def _squeeze_of_unsqueeze(node: fx.Node) -> fx.Node | None:
    inner = _inner(node, {aten.unsqueeze.default})
    result = tensor_of(node)
    if inner is None or result is None:
        return None
    source = inner.args[0]
    before = tensor_of(source)
    if before is None or not isinstance(source, fx.Node) or any(user.op == "output" for user in node.users):
        return None
    return source if same(before, result) else None
