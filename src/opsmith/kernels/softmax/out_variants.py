"""``out=`` forms of ops whose functional form is left to torch, or is an argument as it is.

Each computes its result as those do and copies it, ``2 * numel * itemsize`` bytes more.
"""

from __future__ import annotations

import torch

from ..copies.rearrangements import copied, copy_into
from ..matmul.matmul import addmm, mm
from ..norms.batch_norm import batch_norm
from .softmax import converted_softmax


def written(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Copy ``result`` into ``out``, which takes its shape.

    Raises:
        TypeError: the type of ``out`` does not hold the result.
    """
    if not torch.can_cast(result.dtype, out.dtype):
        raise TypeError(f"out is {out.dtype}, which does not hold a result of {result.dtype}")
    if out.shape != result.shape:
        out.resize_(result.shape)
    copy_into(out, result)
    return out


def softmax_out(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None, *, out: torch.Tensor) -> torch.Tensor:
    """Softmax along ``dim`` of ``self`` converted to ``dtype``, if one is given."""
    return written(out, converted_softmax(self, dim, dtype))


def log_softmax_out(
    self: torch.Tensor, dim: int, dtype: torch.dtype | None = None, *, out: torch.Tensor
) -> torch.Tensor:
    """The logarithm of :func:`softmax_out`."""
    return written(out, converted_softmax(self, dim, dtype, log=True))


def linear_out(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    """``input @ weight.T + bias`` of ``input[.., K]`` and ``weight[N, K]``, or ``weight[K]``.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    if not input.ndim or weight.ndim not in (1, 2) or input.shape[-1] != weight.shape[-1]:
        raise ValueError(f"an input of shape {list(input.shape)} and a weight of {list(weight.shape)} do not fit")
    rows = (input if input.is_contiguous() else copied(input)).view(-1, input.shape[-1])
    columns = weight.t() if weight.ndim == 2 else weight.unsqueeze(-1)
    result = mm(rows, columns) if bias is None else addmm(bias, rows, columns)
    return written(out, result.view((*input.shape[:-1], *weight.shape[:-1])))


def conj_physical_out(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """The conjugates of ``self``; of real numbers, a copy."""
    return written(out, self.conj())


def native_batch_norm_legit_out(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: torch.Tensor,
    save_mean: torch.Tensor,
    save_invstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As :func:`.batch_norm.batch_norm`, into three tensors."""
    results = batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return written(out, results[0]), written(save_mean, results[1]), written(save_invstd, results[2])
