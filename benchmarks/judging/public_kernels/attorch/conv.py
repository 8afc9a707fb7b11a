"""Convolution as a product of implicit matrices, after attorch's ``attorch/conv_kernels.py``.

Rows of the left matrix are places of the output, its columns are pixels of the window by channels: they are loaded from
the image as they are needed.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def conv2d_forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, places, OH, OW, CIN, H, W, COUT, KH, KW, x_n, x_c, x_h, x_w, w_o, w_c, w_h, w_w,
    SH, SW, PH, PW, DH, DW, HAS_BIAS: tl.constexpr, STEPS: tl.constexpr, TP: tl.constexpr, TC: tl.constexpr,
    TK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * TP + tl.arange(0, TP)
    feature = tl.program_id(1) * TC + tl.arange(0, TC)
    group = tl.program_id(2)
    n, oh, ow = place // (OH * OW), (place // OW) % OH, place % OW
    total = tl.zeros((TP, TC), tl.float32)
    for step in range(STEPS):
        k = step * TK + tl.arange(0, TK)
        c, kh, kw = k // (KH * KW), (k // KW) % KH, k % KW
        h = oh[:, None] * SH - PH + kh[None, :] * DH
        w = ow[:, None] * SW - PW + kw[None, :] * DW
        inside = (place[:, None] < places) & (c[None, :] < CIN) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        x = tl.load(
            x_ptr + n[:, None] * x_n + (group * CIN + c)[None, :] * x_c + h * x_h + w * x_w, mask=inside, other=0.0
        )
        weight = tl.load(
            w_ptr + (group * COUT + feature)[None, :] * w_o + c[:, None] * w_c + kh[:, None] * w_h + kw[:, None] * w_w,
            mask=(feature[None, :] < COUT) & (c[:, None] < CIN),
            other=0.0,
        )
        total = tl.dot(x, weight, total, input_precision="ieee")
    if HAS_BIAS:
        bias = tl.load(b_ptr + group * COUT + feature, mask=feature < COUT, other=0.0)
        total += bias[None, :].to(tl.float32)
    groups = tl.num_programs(2)
    y = y_ptr + ((n[:, None] * groups * COUT + (group * COUT + feature)[None, :]) * OH * OW + (oh * OW + ow)[:, None])
    mask = (place[:, None] < places) & (feature[None, :] < COUT)
    tl.store(y, total.to(y_ptr.dtype.element_ty), mask=mask)


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Of images, and of sequences as images of one row."""
    spatial = weight.dim() - 2
    if transposed or spatial not in (1, 2) or input.dim() != weight.dim():
        raise NotImplementedError("convolutions of one and two dimensions only")
    if spatial == 1:
        y = convolution(
            input.unsqueeze(2), weight.unsqueeze(2), bias, [1, *stride], [0, *padding], [1, *dilation], False, [0, 0],
            groups,
        )  # fmt: skip
        return y.squeeze(2)
    stride, padding, dilation = (list(each) * (2 // len(each)) for each in (stride, padding, dilation))
    N, C, H, W = input.shape
    COUT, CIN, KH, KW = weight.shape
    OH = (H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) // stride[0] + 1
    OW = (W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) // stride[1] + 1
    y = torch.empty((N, COUT, OH, OW), dtype=input.dtype, device=input.device)
    if CIN * groups != C or not input.numel():
        raise NotImplementedError("no pixels, or channels that do not fit")
    if y.numel():
        per_group = COUT // groups
        places = N * OH * OW
        TP = 64 if places > 64 else 16
        grid = (triton.cdiv(places, TP), triton.cdiv(per_group, 16), groups)
        conv2d_forward_kernel[grid](
            input, weight, weight if bias is None else bias.contiguous(), y, places, OH, OW, CIN, H, W, per_group,
            KH, KW, *input.stride(), *weight.stride(), *stride, *padding, *dilation, HAS_BIAS=bias is not None,
            STEPS=triton.cdiv(CIN * KH * KW, 32), TP=TP, TC=16, TK=32,
        )  # fmt: skip
    return y
