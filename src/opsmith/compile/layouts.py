"""Whether Inductor may lay out images with their channels last: where convolutions are faster for it, by a trial.

Inductor decides by a rule made for half precision. In strict float32 most problems of the own set with convolutions are
5 to 25 % slower than eager with it on an H200, one of them 2.2 and one 5.5 times; those with depthwise ones are faster
(benchmarks/results/h200/compile-speed.jsonl).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor import config

from opsmith.compile.trials.calls import read_call, without_bias
from opsmith.compile.trials.trying import try_out
from opsmith.compile.trials.turns import Way

convolution = torch.ops.aten.convolution.default

AS_THEY_ARE, CHANNELS_LAST = "as they are", "channels last"
#: What is measured is convolutions alone. Turning what goes in and comes out of them costs some of the gain.
WORTH_TURNING = 0.9


def layout_settings(graph: fx.Graph) -> Mapping[str, bool]:
    """What Inductor's configuration should say of layouts for a graph; empty where it may decide by its rule.

    Args:
        graph: lowered, before Inductor's own passes.
    """
    if not config.layout_optimization or config.force_layout_optimization:
        return {}
    found = [read_call(node) for node in graph.find_nodes(op="call_function", target=convolution)]
    planes = [call for call in found if call is not None and call.tensors[0].ndim in (3, 4)]
    if not found or None in found or torch.are_deterministic_algorithms_enabled():
        return {}
    trials = [try_out(without_bias(call), "layouts", _ways, same_strides=False) for call in planes]
    if any(len(trial.us) < 2 for trial in trials):
        return {}
    before, after = (sum(trial.us[way] for trial in trials) for way in (AS_THEY_ARE, CHANNELS_LAST))
    return {} if trials and after <= WORTH_TURNING * before else {"layout_optimization": False}


def _ways(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Way]:
    turned = [_turned(one) if isinstance(one, Tensor) and one.ndim > 2 else one for one in args]
    return {
        AS_THEY_ARE: functools.partial(convolution, *args, **kwargs),
        CHANNELS_LAST: functools.partial(convolution, *turned, **kwargs),
    }


def _turned(tensor: Tensor) -> Tensor:
    """With channels last; lines are images of one row."""
    if tensor.ndim == 3:
        return tensor.unsqueeze(2).to(memory_format=torch.channels_last).squeeze(2)
    return tensor.to(memory_format=torch.channels_last)
