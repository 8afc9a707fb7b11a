"""Calls that Inductor leaves to libraries are made in another way, where a trial on the device finds it faster.

In strict float32 cuBLAS and cuDNN multiply without tensor cores. Shipped kernels split factors into parts that tensor
cores take, with less error: 1.5 to 2.1 times as fast for large products on an H200
(benchmarks/results/kernels/h200/float32-products). So may the libraries for short sums, given three terms for each
(:mod:`opsmith.compile.graph.three_terms`). Elsewhere it depends on the sizes, so nothing is taken for granted: all
ways are timed, once on a machine.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor import config

from opsmith.aten.schemas import overload
from opsmith.backends.shipped import Shipped
from opsmith.compile.graph.opaque import opaque_overload
from opsmith.compile.graph.three_terms import in_three_terms, takes_three_terms, tf32_overloads, with_parts
from opsmith.compile.lowered.common import share_common_calls
from opsmith.compile.lowered.nodes import calls, replace, replace_by_calls
from opsmith.compile.trials.calls import TriedCall, read_call, without_bias
from opsmith.compile.trials.trying import convolution_precision, try_out
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.dispatch.selection import offered
from opsmith.trials.turns import Way

PRODUCTS = ("addmm.default", "baddbmm.default", "bmm.default", "mm.default")
CONVOLUTIONS = ("convolution.default", "convolution_backward.default")
CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default
#: Where it says which gradients are wanted: by the input, the weight and the bias.
MASK = 10
#: What Inductor has no code for.
OTHERS = (
    "_adaptive_avg_pool2d_backward.default",
    "_cdist_backward.default",
    "_cdist_forward.default",
    "grid_sampler_2d_backward.default",
    "kthvalue.default",
    "replication_pad2d_backward.default",
    "topk.default",
    "upsample_bicubic2d_backward.default",
)
LIBRARY, KERNEL, THREE_TERMS = "library", "kernel", "three terms"
#: Microseconds. Compiling a kernel takes a second, and calling an opaque one costs the host more than a library.
LEAST_US = 40.0


@functools.cache
def answered() -> Mapping[Any, torch._ops.OpOverload]:
    """ATen's overload -> the opaque one with the shipped kernel. From here on these exist, and those that allow TF32.

    A graph out of a cache calls what it was compiled with.
    """
    tf32_overloads()
    return {overload(schema.name): opaque_overload(schema, record) for schema, record in _kernels()}


@functools.cache
def answered_hash() -> str:
    """Names the kernels behind :func:`answered`."""
    return digest(" ".join(record.content_hash for _, record in _kernels()).encode())


@functools.cache
def _kernels() -> tuple[tuple[OpSchema, Kernel], ...]:
    names = (*PRODUCTS, *CONVOLUTIONS, *OTHERS)
    # An overload stands for its in-place and out= forms there.
    return tuple(both for both in offered(Shipped(), names, ()) if both[0].name in names)


def make_calls_faster(graph: fx.Graph) -> int:
    """Have a call made in the way that a trial found to be the fastest."""
    if torch.are_deterministic_algorithms_enabled():
        return 0  # Which of two ways is taken must not hang on a measurement.
    fired = 0
    for node in calls(graph, *map(overload, _left_to_libraries())):
        call = read_call(node)
        if call is None or not _may_gain(call):
            continue
        if node.target == CONVOLUTION_BACKWARD and call.args[MASK][0] and call.args[MASK][1]:
            fired += _gradients_apart(graph, node, call)
            continue
        way = _fastest(call)
        if way == KERNEL:
            with graph.inserting_before(node):
                replace(node, graph.call_function(answered()[node.target], node.args, node.kwargs))
            fired += 1
        elif way == THREE_TERMS:
            fired += replace_by_calls(node, functools.partial(_in_three_terms, node.target))
    if fired:
        share_common_calls(graph)  # Of a factor of several products there is one set of parts.
    return fired


def _gradients_apart(graph: fx.Graph, node: fx.Node, call: TriedCall) -> int:
    """Have the gradient by the input and that by the weight made by whoever is faster, which may not be the same.

    Libraries make them apart as well. Where both stay with the library, so does the call.
    """
    *others, mask = call.args
    masks = [True, False, False], [False, *mask[1:]]
    halves = [dataclasses.replace(call, args=(*others, half)) for half in masks]
    targets = [answered()[call.op] if _fastest(half) == KERNEL else call.op for half in halves]
    fired = sum(target != call.op for target in targets)
    if not fired:
        return 0
    results = node.meta["val"]
    with graph.inserting_before(node):
        made = [
            graph.call_function(target, (*node.args[:MASK], half)) for target, half in zip(targets, masks, strict=True)
        ]
    for half, wanted in zip(made, masks, strict=True):
        half.meta["val"] = tuple(one if is_wanted else None for one, is_wanted in zip(results, wanted, strict=True))
    for user in list(node.users):
        assert user.target is operator.getitem
        place = user.args[1]
        user.args = (made[0 if place == 0 else 1], place)
    graph.erase_node(node)
    return fired


def _in_three_terms(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return in_three_terms(op, with_parts(args, op), kwargs)


def _left_to_libraries() -> Sequence[str]:
    """What Inductor does not time itself; convolutions only where it leaves them in the layout that they have."""
    if config.max_autotune or config.max_autotune_gemm:
        return OTHERS
    return (*OTHERS, *PRODUCTS) if config.layout_optimization else (*OTHERS, *PRODUCTS, *CONVOLUTIONS)


def _may_gain(call: TriedCall) -> bool:
    """Whether trying is worth its time: in half precision and in TF32 libraries are near what the device can do."""
    name = str(call.op).removeprefix("aten.")
    if name in PRODUCTS:
        return call.tensors[0].dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32"
    if name in CONVOLUTIONS:
        return call.tensors[0].dtype == torch.float32 and convolution_precision() != "tf32"
    return True


def _fastest(call: TriedCall) -> str:
    """The way to make a call."""

    def ways(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Way]:
        found: dict[str, Way] = {
            LIBRARY: functools.partial(call.op, *args, **kwargs),
            KERNEL: functools.partial(answered()[call.op], *args, **kwargs),
        }
        if call.tensors[0].dtype == torch.float32 and takes_three_terms(call.op, args):
            # Parts are made in one kernel with what comes before; what is timed lays them side by side, which reads and
            # writes as much.
            parts = with_parts(args, call.op)
            found[THREE_TERMS] = functools.partial(in_three_terms, call.op, parts, kwargs)
        return found

    trial = try_out(without_bias(call), f"kernels {answered_hash()}", ways, least_us=LEAST_US, dear={KERNEL})
    fastest = min(trial.us, key=trial.us.__getitem__, default=LIBRARY)
    return fastest if trial.is_faster(fastest, LIBRARY) else LIBRARY
