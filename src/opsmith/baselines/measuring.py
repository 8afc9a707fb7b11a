"""Timing the Model of one problem under one baseline, call by call: absolute times, for tables.

A kernel's speedup is measured in pairs (:mod:`opsmith.runner.clock.stopwatch`); times of different processes, taken
one after another, are not as good for that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.core.baseline_times import BaselineRequest, BaselineTime, TrialTimes
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.seeds import derive_seed
from opsmith.errors import BaselineUnavailable
from opsmith.evaluation.timing.baselines import Preparable, baseline_function
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.tasks.problem import BrokenProblem, Problem, record_call

CHANNELS_LAST = "channels_last"
#: Calls before the first that counts.
WARM_UPS = 3


def time_baseline(request: BaselineRequest, take_turn: Callable[[], None]) -> BaselineTime:
    """Time one problem in this process, whose settings it changes; what goes wrong is told, not raised.

    Args:
        request: what is timed.
        take_turn: called when all is built and compiled; returns when the machine is quiet.
    """
    device = torch.device(request.device)
    _set_tf32(request.tf32)
    try:
        with torch.no_grad():
            timed = _timed_call(request, device)
            take_turn()
            times = _times(timed, device, request.trials)
    except (BaselineUnavailable, BrokenProblem) as exc:
        return BaselineTime(task=request.task, baseline=request.baseline, problem=str(exc))
    except Exception as exc:  # noqa: BLE001 - the process's edge: problems raise anything
        line = " ".join(str(exc).split())[:400]
        return BaselineTime(task=request.task, baseline=request.baseline, problem=f"{type(exc).__name__}: {line}")
    on_cuda = device.type == "cuda"
    return BaselineTime(
        task=request.task,
        baseline=request.baseline,
        times=times,
        tf32_matmul=torch.backends.cuda.matmul.allow_tf32 if on_cuda else None,
        tf32_cudnn=torch.backends.cudnn.allow_tf32 if on_cuda else None,
    )


def _set_tf32(tf32: str) -> None:
    if tf32 != "default":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32 == "on"


def _timed_call(request: BaselineRequest, device: torch.device) -> TimedCall:
    """The problem's call, compiled or captured.

    Raises:
        BaselineUnavailable: the baseline cannot serve it.
        BrokenProblem: the problem does not load.
    """
    problem = Problem(request.task, Path(request.file), device, small=request.small)
    converted = _conversion(request.dtype, device)
    problem.call.take({name: converted(tensor) for name, tensor in problem.initial.items()})
    inputs = tree_map(converted, problem.inputs(derive_seed("baseline", request.task)))
    if request.baseline == CHANNELS_LAST:
        inputs = _in_channels_last(problem.model, inputs)
    prepared = TimedInputs(record_call(request.task, inputs, {}), device, 1)
    name = "eager" if request.baseline == CHANNELS_LAST else request.baseline
    function = baseline_function(name, problem.model, device)
    if isinstance(function, Preparable):
        function.prepare(prepared.lives[0].args, prepared.lives[0].kwargs)
    on_device = problem.model if request.baseline == "cudagraphs" else function
    return TimedCall(function, prepared, device, on_device=on_device)


def _conversion(dtype: str, device: torch.device) -> Callable[[Any], Any]:
    """Puts a tensor on the device, floats in the dtype that is asked; f32 leaves them."""
    target = None if dtype == "f32" else getattr(torch, TORCH_NAMES[dtype])

    def converted(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(device, target if leaf.is_floating_point() else None)

    return converted


def _in_channels_last(model: torch.nn.Module, inputs: Sequence[Any]) -> list[Any]:
    """Turn a model; its inputs in that layout.

    Raises:
        BaselineUnavailable: nothing has channels.
    """
    if not any(isinstance(leaf, torch.Tensor) and leaf.dim() == 4 for leaf in tree_leaves(inputs)):
        raise BaselineUnavailable(CHANNELS_LAST, "no input has four dimensions")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def turned(leaf: Any) -> Any:
        is_image = isinstance(leaf, torch.Tensor) and leaf.dim() == 4
        return leaf.contiguous(memory_format=torch.channels_last) if is_image else leaf

    return list(tree_map(turned, inputs))


def _times(timed: TimedCall, device: torch.device, trials: int) -> dict[str, TrialTimes]:
    for _ in range(WARM_UPS):
        timed.host_block(1)
    found = {"K": _device_times_us(timed, trials)} if device.type == "cuda" else {}
    found["E"] = [_host_time_us(timed, number) for number in range(trials)]
    return {quantity: _summary(times_us) for quantity, times_us in found.items() if times_us}


def _device_times_us(timed: TimedCall, trials: int) -> list[float]:
    """K of each trial; none where the call waits for the device."""
    times = [timed.device_block(1, round_number=number)[0] for number in range(trials)]
    return [time_us for time_us in times if time_us is not None]


def _host_time_us(timed: TimedCall, number: int) -> float:
    timed.renew(number, 1)
    start = time.perf_counter()
    timed.host_block(1)
    return (time.perf_counter() - start) * 1e6


def _summary(times_us: Sequence[float]) -> TrialTimes:
    times_ms = [time_us / 1e3 for time_us in times_us]
    return TrialTimes(
        mean=statistics.fmean(times_ms),
        std=statistics.pstdev(times_ms),
        min=min(times_ms),
        max=max(times_ms),
        num_trials=len(times_ms),
    )
