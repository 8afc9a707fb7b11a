"""Calls of scaled_dot_product_attention made as the device makes them fastest.

transformers, timm and diffusers call one function and hand it whatever mask they have. What that costs depends on how
it is called: an explicit mask keeps flash attention from answering and may have the call taken apart into products of
float32, although the mask is the causal one or hides nothing; keys that several heads of queries share are copied once
for each of these heads. On one H100 in bf16, causal attention of 4 x 32 x 2,048 x 64 takes cuDNN 0.18 ms, flash
attention 0.28 ms, and 0.58 ms with the same mask spelled out.

A mask that is computed from constants is read here, and said with ``is_causal`` or left out. On a CUDA device the call
is then tried out (:mod:`opsmith.compile.trials`): as it stands, and through each library that takes it, without copies
of keys and values. In training a trial takes the gradients, too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opsmith.compile.traced.attention_ways import LIBRARY, Form, attention, possible_ways
from opsmith.compile.traced.calls import number, read, tensor
from opsmith.compile.traced.fusion import GraphRecorder, Match, fuse
from opsmith.compile.traced.known import Constants, Hidden, band, hides
from opsmith.compile.trials.calls import TriedCall, can_be_drawn, may_be_tried_on
from opsmith.compile.trials.trying import try_out
from opsmith.trials.turns import Way

#: Microseconds. Below, launching a call takes longer than the call.
LEAST_US = 5.0
_HALF = {torch.float16, torch.bfloat16}


@dataclass(frozen=True)
class _Attention:
    """A call by its arguments: nodes, and what it says beside them."""

    query: fx.Node
    key: fx.Node
    value: fx.Node
    mask: fx.Node | None
    form: Form

    @property
    def nodes(self) -> list[fx.Node]:
        """Query, key, value, and the mask if there is one."""
        return [one for one in (self.query, self.key, self.value, self.mask) if one is not None]

    @property
    def hidden_by_constants(self) -> bool:
        """Whether what a mask made of constants hides would be all that is hidden."""
        return self.mask is not None and not self.form.is_causal

    @property
    def is_square(self) -> bool:
        """Whether there are as many queries as keys."""
        query, key = tensor(self.query), tensor(self.key)
        return query is not None and key is not None and statically_known_true(query.shape[-2] == key.shape[-2])


def name_masks(graph: fx.Graph) -> int:
    """Say ``is_causal`` instead of a causal mask, and nothing instead of one that hides nothing."""
    return fuse(graph, functools.partial(_named_mask, Constants(graph)))


def call_fastest_attention(graph: fx.Graph) -> int:
    """Have attention computed by the library that is fastest on this device."""
    if torch.are_deterministic_algorithms_enabled():
        return 0  # Which library answers must not hang on a measurement.
    return fuse(graph, functools.partial(_fastest_call, Constants(graph)))


def _named_mask(constants: Constants, node: fx.Node) -> Match | None:
    call = _read(node)
    if call is None or not call.hidden_by_constants:
        return None
    hidden = hides(call.mask, constants, where=False)
    if hidden is None or hidden.before is not None or (hidden.later and not call.is_square):
        return None
    options: dict[str, Any] = {"is_causal": hidden.later, "scale": call.form.scale, "enable_gqa": call.form.grouped}
    tensors = (call.query, call.key, call.value)
    return Match(set(), lambda graph: graph.call_function(F.scaled_dot_product_attention, tensors, options))


def _read(node: Any) -> _Attention | None:
    """The call of a node that draws nothing; None for any other node."""
    call = read(node, "scaled_dot_product_attention")
    if call is None or number(call["dropout_p"] or 0) != 0:
        return None
    nodes = (call["query"], call["key"], call["value"])
    scale, mask, causal = call["scale"], call["attn_mask"], call["is_causal"] or False
    if (
        type(causal) is not bool
        or not all(isinstance(one, fx.Node) for one in nodes)
        or not isinstance(mask, fx.Node | None)
    ):
        return None
    return _Attention(*nodes, mask, Form(causal, scale, grouped=bool(call["enable_gqa"])))


def _fastest_call(constants: Constants, node: fx.Node) -> Match | None:
    call = _read(node)
    if call is None or isinstance(call.form.scale, fx.Node):  # With dynamic sizes Dynamo has numbers as inputs, too.
        return None
    inside: set[fx.Node] = set()
    call = _unrepeated(call, inside)
    found = [tensor(one) for one in call.nodes]
    like = [_as_autocast_hands_it(one) for one in found if one is not None]
    if len(like) < len(found) or not _may_be_tried(like):
        return None
    takes_gradients = torch.is_grad_enabled() and any(one.requires_grad for one in like[:3])
    if any(one.requires_grad for one in like[3:]):
        return None
    if call.hidden_by_constants and call.is_square:
        hidden = hides(call.mask, constants, where=False)
        call = replace(call, form=replace(call.form, window=None if hidden is None else hidden.before))
    way = _fastest(like, call.form, takes_gradients=takes_gradients)
    if way == LIBRARY:
        return None

    def build(graph: fx.Graph) -> fx.Node:
        record = GraphRecorder(graph)
        given = [_recorded(record, one) for one in call.nodes]
        made: fx.Proxy = attention(way, given, call.form, like, keeps=takes_gradients)
        return made.node

    return Match(inside, build)


def _may_be_tried(like: Sequence[Tensor]) -> bool:
    query, key, value, *_ = like
    return (
        len({one.device for one in like}) == 1
        and may_be_tried_on(query.device)
        and query.dim() == key.dim() == value.dim() == 4
        and query.dtype in _HALF
        and query.dtype == key.dtype == value.dtype
        and all(map(can_be_drawn, like))
    )


def _as_autocast_hands_it(one: Tensor) -> Tensor:
    """Autocast does not cast for the libraries' own overloads."""
    kind = one.device.type
    cast = torch.is_autocast_enabled(kind) and one.is_floating_point() and one.dtype != torch.float64
    return one.to(torch.get_autocast_dtype(kind)) if cast else one


def _recorded(record: GraphRecorder, node: fx.Node) -> Any:
    found, given = tensor(node), record(node)
    assert found is not None
    cast = _as_autocast_hands_it(found).dtype
    return given if cast == found.dtype else given.to(cast)


def _fastest(like: Sequence[Tensor], form: Form, *, takes_gradients: bool) -> str:
    op = torch.ops.aten.scaled_dot_product_attention.default
    tried = TriedCall(op, tuple(like), asdict(form), like[0].device)

    def ways(given: tuple[Any, ...], _: dict[str, Any]) -> Mapping[str, Way]:
        if form.window is not None:
            queries, keys = given[3].shape[-2:]
            mask = ~band(queries, keys, Hidden(later=True, before=form.window)).to(given[3].device)
            given = (*given[:3], mask.expand(given[3].shape))
        sources = [one.requires_grad_(takes_gradients) for one in given[:3]]
        made = {
            name: functools.partial(attention, name, given, form, given, keeps=takes_gradients)
            for name in possible_ways(form, given)
        }
        if not takes_gradients:
            return made
        return {name: functools.partial(_with_gradients, way, sources) for name, way in made.items()}

    subject = "attention with gradients" if takes_gradients else "attention"
    trial = try_out(tried, subject, ways, least_us=LEAST_US, same_strides=False)
    fastest = min(trial.us, key=trial.us.__getitem__, default=LIBRARY)
    return fastest if trial.is_faster(fastest, LIBRARY) else LIBRARY


def _with_gradients(way: Way, sources: list[Tensor]) -> list[Tensor]:
    with torch.enable_grad():
        result: Any = way()
        return [result, *torch.autograd.grad(result, sources, torch.ones_like(result))]


def _unrepeated(call: _Attention, inside: set[fx.Node]) -> _Attention:
    """The same call on keys and values that are not repeated for the heads which share them."""
    repeats: set[fx.Node] = set()
    key, value = _before_repeat(call.key, repeats), _before_repeat(call.value, repeats)
    one, other = tensor(key), tensor(value)
    repeated = key is not call.key and value is not call.value
    if call.form.grouped or not repeated or one is None or other is None or one.shape[1] != other.shape[1]:
        return call
    inside.update(repeats)
    return replace(call, key=key, value=value, form=replace(call.form, grouped=True, copied=True))


def _before_repeat(node: fx.Node, inside: set[fx.Node]) -> fx.Node:
    """What ``x[:, :, None].expand(...).reshape(...)`` or ``repeat_interleave(x, n, 1)`` was made of; else the node."""
    after = tensor(node)
    if after is None or after.dim() != 4:
        return node
    if (repeated := read(node, "repeat_interleave")) is not None:
        source = repeated["input"]
        if type(repeated["repeats"]) is int and repeated["dim"] in {1, -3} and isinstance(source, fx.Node):
            inside.add(node)
            return source
        return node
    reshaped = read(node, "reshape")
    expanded = None if reshaped is None else read(reshaped["input"], "expand")
    opened = None if expanded is None else expanded["input"]
    if expanded is None or not isinstance(opened, fx.Node) or not _opens_groups(opened):
        return node
    source = opened.args[0]
    before, wide = tensor(source), tensor(expanded.node)
    if before is None or wide is None or not isinstance(source, fx.Node) or before.dim() != 4:
        return node
    batch, heads, length, width = before.shape
    groups = wide.shape[2]
    repeats = tuple(wide.shape) == (batch, heads, groups, length, width)
    if not repeats or tuple(after.shape) != (batch, heads * groups, length, width):
        return node
    inside.update({node, expanded.node, opened})
    return source


def _opens_groups(node: fx.Node) -> bool:
    """Whether a node is its source with one more dimension, behind the heads."""
    if (call := read(node, "unsqueeze")) is not None:
        return call["dim"] in {2, -3}
    call = read(node, "getitem")
    if call is None or not isinstance(call["index"], tuple):
        return False
    index, whole = call["index"], slice(None, None, None)
    return len(index) <= 5 and index[:3] == (whole, whole, None) and all(one == whole for one in index[3:])
