"""Trials of calls while a program runs: PyTorch's kernel and ours as installed, on the call's own arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from opsmith.aten.arguments import tensors_in
from opsmith.dispatch.choice.choosing import EAGER, KERNEL
from opsmith.trials.book import Trial, TrialBook
from opsmith.trials.turns import Around, hold_trial

Call = Callable[..., Any]
#: Rounds of timing at least and at most: a program waits for them.
ROUNDS = 3, 12


def try_out(
    text: str,
    book: TrialBook,
    op: Call,
    *,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    written: Sequence[Tensor],
    around: Around,
) -> Trial | None:
    """Time both ways of making a call; None while a CUDA graph is captured, which would hold the trial.

    What the call writes to is copied, once for both ways.

    Args:
        text: the call's class.
        book: no other process times for it meanwhile.
        op: makes the call, through PyTorch's tables.
        args: by position.
        kwargs: by name.
        written: the tensors among them that the call writes to.
        around: what is held, by the way, while ``op`` is called, so that PyTorch's own kernel or ours is reached as
            programs reach it; nothing else of a trial may be answered by kernels.
    """
    tensors = tensors_in((*args, *kwargs.values()))
    if any(tensor.is_cuda for tensor in tensors) and torch.cuda.is_current_stream_capturing():
        return None
    with _alone_with_the_call():
        try:
            copies = {id(tensor): _copy(tensor) for tensor in written}
        except torch.OutOfMemoryError:
            return None
        own_args, own_kwargs = tree_map_only(Tensor, lambda one: copies.get(id(one), one), (tuple(args), dict(kwargs)))
        return hold_trial(
            text,
            dict.fromkeys((EAGER, KERNEL), lambda: op(*own_args, **own_kwargs)),
            synchronise=torch.accelerator.synchronize if any(map(_on_device, tensors)) else lambda: None,
            same_strides=False,
            alone=book.alone,
            rounds=ROUNDS,
            around=around,
        )


def _on_device(tensor: Tensor) -> bool:
    return tensor.device.type not in ("cpu", "meta")


@contextlib.contextmanager
def _alone_with_the_call() -> Iterator[None]:
    """No mode sees the trial, and no gradient is recorded."""
    with _disable_current_modes(), torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
        yield


def _copy(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)
