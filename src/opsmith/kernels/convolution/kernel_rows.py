"""Convolutions of images with few channels, which read the rows of their kernels as channels.

Of an image with 3 channels few neighbours in memory meet neighbouring weights. In a copy ``(N, H, columns, 4)``, which
begins with the padding of a row, the row of a kernel covers ``4 * kernel width`` neighbours. So the convolution is one
of so many channels, with a tap for each row and windows that move by four times the stride: by 16 bytes or more where
the stride is even. Traffic beside x, w and y: the copy, written once, and read under as many windows as overlap.

Suffixes: as of convolution_operands.py.
"""

from __future__ import annotations

import torch

from ..common.type_rules import HALF
from ..common.windows import NO_WINDOW
from ..copies.framed_copies import Dim, FrameRule, show
from .convolution_operands import CHANNELS, Filter, Operand
from .sliding import Sliding

#: Channels of a copy, and how many of its columns are the 16 elements whose multiples the compiler can see.
_LANES, _ALIGNED = 4, CHANNELS // 4


def reads_kernel_rows(x: torch.Tensor, rule: Sliding) -> bool:
    """Whether a field is an image of few channels in a half type, and windows on it move by an even stride."""
    window = rule.windows[2]
    is_image = x.ndim == 4 and rule.groups == 1 and x.shape[1] <= _LANES and x.dtype in HALF
    return is_image and window.kernel > 1 and window.stride % 2 == 0 and window.dilation == 1


def kernel_rows(x: torch.Tensor, weight: torch.Tensor, rule: Sliding, sites: int) -> tuple[Operand, Filter, Sliding]:
    """Copies of the field and the weight that have rows of the kernel as channels, and how windows slide over them.

    Args:
        x: the field, of shape (N, C, H, W).
        weight: of shape (O, C, kernel height, kernel width).
        rule: the windows.
        sites: in a row.
    """
    (N, _, H, _), (_, _, height, width) = x.shape, weight.shape
    window = rule.windows[2]
    line = _aligned((sites - 1) * window.stride + width) * _LANES
    x_copy = _with_four_channels(x, line // _LANES, window.padding)
    operand = Operand(x_copy, width * _LANES, (H * line, 0, 1), (0, line, 1), (1, H, line), N)
    row = _aligned(width) * _LANES
    w_copy = _with_four_channels(weight, row // _LANES, 0)
    w = Filter(w_copy, (0, height * row, 1), (0, row, 0))
    by_rows = NO_WINDOW._replace(stride=window.stride * _LANES)
    return operand, w, rule._replace(windows=(*rule.windows[:2], by_rows))


def _aligned(columns: int) -> int:
    return -(-columns // _ALIGNED) * _ALIGNED


def _with_four_channels(x: torch.Tensor, columns: int, before: int) -> torch.Tensor:
    """``(N, C, H, W)`` as ``(N, H, columns, 4)``, with so many columns of zeros ``before`` x, and zeros behind it."""
    N, C, H, W = x.shape
    copy = torch.empty((N, H, columns, _LANES), dtype=x.dtype, device=x.device)
    stride_N, stride_C, stride_H, stride_W = x.stride()
    across = Dim(columns, 0, stride_W, rule=FrameRule.WINDOW, start=before, extent=W)
    channels = Dim(_LANES, 0, stride_C, rule=FrameRule.WINDOW, extent=C)
    show(copy, x, [Dim(N, 0, stride_N), Dim(H, 0, stride_H), across, channels])
    return copy
