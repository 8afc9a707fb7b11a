"""Trials on the device that a graph is compiled for, each held once on a machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch._dispatch.python import no_python_dispatcher
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from opsmith.aten.strides import extent
from opsmith.compile.report import add_trial
from opsmith.compile.trials.calls import TriedCall
from opsmith.trials.book import Trial, book_of
from opsmith.trials.turns import Way, hold_trial

#: Makes the ways of a call from its arguments: tensors with numbers in them.
Ways = Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Way]]


def try_out(
    call: TriedCall,
    subject: str,
    ways: Ways,
    *,
    least_us: float = 0.0,
    same_strides: bool = True,
    dear: Collection[str] = (),
) -> Trial:
    """What the ways of making a call take, from the book or from a trial now.

    Args:
        call: on fake tensors; the trial draws their numbers.
        subject: what is tried out and hangs on more than the call: kernels, for one.
        ways: the first one is what is done without a trial.
        least_us: as :func:`~opsmith.trials.turns.hold_trial`.
        same_strides: likewise.
        dear: likewise.
    """

    def hold() -> Trial:
        with _real_calls(call.device):
            generator = torch.Generator(call.device).manual_seed(0)
            drawn = functools.partial(_drawn, generator=generator)
            args, kwargs = tree_map_only(torch.Tensor, drawn, (call.args, call.kwargs))
            return hold_trial(
                call.text,
                ways(args, kwargs),
                synchronise=functools.partial(_synchronise, call.device),
                least_us=least_us,
                same_strides=same_strides,
                dear=dear,
                alone=trials.alone,
            )

    trials = book_of("trials", call.device)
    settings = f"{torch.backends.cuda.matmul.fp32_precision} {convolution_precision()}"
    trial = trials.find_or_hold(f"{subject} {settings} {call.text}", hold)
    add_trial(trial)
    return trial


def convolution_precision() -> str:
    """How cuDNN may multiply float32: ``tf32`` or otherwise."""
    return torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined,no-any-return]


@contextlib.contextmanager
def _real_calls(device: torch.device) -> Iterator[None]:
    """Calls run on real tensors as they are, whatever traces, fakes, casts or differentiates around them."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(no_python_dispatcher())
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type != "cpu":
            stack.enter_context(torch.accelerator.device_index(device.index))
        yield


def _drawn(like: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
    """Numbers between 0 and 1, in memory of the same extent: where all have one sign, errors of one sign add up.

    A mask is true but for the first of its rows, if it has several.
    """
    if not like.numel():
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    elements = extent(like.shape, like.stride(), 0)
    if like.dtype == torch.bool:
        mask = torch.ones(elements, dtype=like.dtype, device=like.device).as_strided(like.shape, like.stride())
        if elements > like.shape[-1]:
            mask[(0,) * (like.dim() - 1)] = False
        return mask
    storage = torch.rand(elements, dtype=like.dtype, device=like.device, generator=generator)
    return storage.as_strided(like.shape, like.stride())


def _synchronise(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
