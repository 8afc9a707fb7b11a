"""Convolutions of images of one position, as those of squeeze and excitation: plain products of matrices.

With s_NS and f_NF for the two sides of a convolution (convolution_operands.py) and w_SF for its weight they are
``s = f @ w^T``, ``f = s @ w`` and ``dw = s^T @ f``: a launch for each, of matrices as they lie.

Suffixes: ``_N`` images, ``_S`` channels of the sites, ``_F`` channels of the field.
"""

from __future__ import annotations

import math

import torch

from ..matmul.matmul import ALONE, Term, write_product
from .sliding import Sliding


def has_single_positions(rule: Sliding) -> bool:
    """Whether a convolution is one product: of one group, and one tap for the only position of an image."""
    return rule.groups == 1 and rule.is_pointwise() and math.prod(rule.out_S) == 1


def transfer_positions(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, to_field: bool
) -> None:
    """As :func:`implicit_gemm.convolve`."""
    w_SF = _matrix(weight)
    term = ALONE if bias is None else Term(bias, 1, 1)
    # TF32 is of convolutions what implicit_gemm.dot_precision says.
    write_product(_matrix(out), _matrix(x), w_SF if to_field else w_SF.mT, term, tf32=False)


def positions_weight_gradient(grad_weight: torch.Tensor, field: torch.Tensor, sites: torch.Tensor) -> None:
    """As :func:`filter_gradients.weight_gradient`."""
    write_product(_matrix(grad_weight), _matrix(sites).mT, _matrix(field), tf32=False)


def _matrix(x: torch.Tensor) -> torch.Tensor:
    """The first two dimensions of a tensor whose others have one position, as a batch of one matrix."""
    rows, columns = x.shape[:2]
    stride_R, stride_C = x.stride()[:2]
    return x.as_strided((1, rows, columns), (rows * columns, stride_R, stride_C))
