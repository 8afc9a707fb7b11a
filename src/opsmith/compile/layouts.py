"""Whether Inductor may lay out images with their channels last, by a trial of the convolutions.

Inductor decides by a rule made for half precision. In strict float32 most problems of the own set with convolutions are
5 to 25 % slower than eager with it on an H200, one of them 2.2 and one 5.5 times; those with depthwise ones are faster
(benchmarks/results/compile/h200/compile-speed). There convolutions have to gain; and where images are left as they are,
kernels are tried for them. In half precision and TF32 the rule is right for most, since norms and pools gain as well,
which no trial sees: U-Nets and ConvNeXt were 1.2 to 1.3 times slower without it. So there convolutions have to lose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor import config

from opsmith.compile.trials.calls import TriedCall, read_call, without_bias
from opsmith.compile.trials.trying import convolution_precision, try_out
from opsmith.trials.turns import Way

convolution = torch.ops.aten.convolution.default

AS_THEY_ARE, CHANNELS_LAST = "as they are", "channels last"
#: What is measured is convolutions alone, so it has to be so much.
FASTER = 0.9


def layout_settings(graph: fx.Graph, *, in_training: bool) -> Mapping[str, bool]:
    """What Inductor's configuration should say of layouts for a graph; empty where it may decide by its rule.

    Args:
        graph: lowered, before Inductor's own passes.
        in_training: it is the first half of one with gradients, which are made in its layout.
    """
    if not config.layout_optimization or config.force_layout_optimization:
        return {}
    found = [read_call(node) for node in graph.find_nodes(op="call_function", target=convolution)]
    planes = [call for call in found if call is not None and call.tensors[0].ndim in (3, 4)]
    if not found:  # There may be gradients of some, which Inductor leaves as they lie: kernels may be tried for them.
        return {"layout_optimization": False}
    if None in found or torch.are_deterministic_algorithms_enabled():
        return {}
    subject, convolve = ("layouts in training", _with_gradients) if in_training else ("layouts", convolution)
    ways = functools.partial(_ways, convolve)
    trials = [try_out(without_bias(call), subject, ways, same_strides=False) for call in planes]
    if any(len(trial.us) < 2 for trial in trials):
        return {}
    before, after = (sum(trial.us[way] for trial in trials) for way in (AS_THEY_ARE, CHANNELS_LAST))
    turned = after <= FASTER * before if _in_strict_float32(planes) else FASTER * after < before
    return {} if trials and turned else {"layout_optimization": False}


def _in_strict_float32(calls: Sequence[TriedCall]) -> bool:
    return convolution_precision() != "tf32" and all(call.tensors[0].dtype == torch.float32 for call in calls)


def _ways(convolve: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Way]:
    turned = [_turned(one) if isinstance(one, Tensor) and one.ndim > 2 else one for one in args]
    return {
        AS_THEY_ARE: functools.partial(convolve, *args, **kwargs),
        CHANNELS_LAST: functools.partial(convolve, *turned, **kwargs),
    }


def _with_gradients(x: Tensor, weight: Tensor, bias: None, *settings: Any) -> Tensor:
    """A convolution's result; its gradients are made as well, by its input and its weight."""
    result: Tensor = convolution(x, weight, bias, *settings)
    torch.ops.aten.convolution_backward.default(result, x, weight, None, *settings, [True, True, False])
    return result


def _turned(tensor: Tensor) -> Tensor:
    """With channels last; lines are images of one row."""
    if tensor.ndim == 3:
        return tensor.unsqueeze(2).to(memory_format=torch.channels_last).squeeze(2)
    return tensor.to(memory_format=torch.channels_last)
