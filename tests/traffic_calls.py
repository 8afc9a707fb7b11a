"""One call of each op whose traffic a page in docs/kernels states, on torch's meta device."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from tests.described_calls import t

F32, I64, E4M3 = torch.float32, torch.int64, torch.float8_e4m3fn


class Sample(NamedTuple):
    """An op's arguments; its results where torch makes none on the meta device; bytes of parts that a page names."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = MappingProxyType({})
    results: Any = None
    parts: Mapping[str, int] = MappingProxyType({})


def index(*shape: int) -> torch.Tensor:
    """Whole numbers, for indices."""
    return t(*shape, dtype=I64)


def mask(*shape: int) -> torch.Tensor:
    """Truth values."""
    return t(*shape, dtype=torch.bool)


def image(*shape: int) -> torch.Tensor:
    """Images of which every size is another number."""
    return t(*(shape or (2, 3, 30, 40)))


CALLS: dict[str, Sample] = {
    # Pointwise.
    "relu.default": Sample((t(64, 32),)),
    "add.Tensor": Sample((t(64, 32), t(32))),
    "relu_.default": Sample((t(64, 32),)),
    "where.self": Sample((mask(64, 32), t(64, 32), t(64, 1))),
    "gelu_backward.default": Sample((t(64, 32), t(64, 32))),
    "masked_fill.Scalar": Sample((t(64, 32), mask(64, 32), 1.0)),
    "frexp.Tensor": Sample((t(64, 32, dtype=F32),)),
    # Reductions.
    "sum.dim_IntList": Sample((t(64, 32), [1])),
    "max.dim": Sample((t(64, 32), 1)),
    "var_mean.correction": Sample((t(64, 32), [1]), {"correction": 1}),
    "linalg_vector_norm.default": Sample((t(64, 32), 2)),
    "renorm.default": Sample((t(64, 32), 2, 0, 1.0)),
    # Small matrices.
    "linalg_lu_factor_ex.default": Sample((t(4, 7, 7, dtype=F32),)),
    "linalg_solve_triangular.default": Sample((t(4, 7, 7, dtype=F32), t(4, 7, 3, dtype=F32)), {"upper": True}),
    # Scans.
    "cumsum.default": Sample((t(64, 32), 1)),
    "cummax.default": Sample((t(64, 32), 1)),
    # Softmax.
    "_softmax.default": Sample((t(64, 32), 1, False)),
    "logsumexp.default": Sample((t(64, 32), [1])),
    "_softmax_backward_data.default": Sample((t(64, 32), t(64, 32), 1, torch.bfloat16)),
    # Norms.
    "native_layer_norm.default": Sample((t(64, 32), [32], t(32), t(32), 1e-5)),
    "native_layer_norm_backward.default": Sample(
        (t(64, 32), t(64, 32), [32], t(64, 1, dtype=F32), t(64, 1, dtype=F32), t(32), t(32), [True] * 3)
    ),
    "_fused_rms_norm.default": Sample((t(64, 32), [32], t(32), 1e-5), {}, (t(64, 32), t(64, 1, dtype=F32))),
    "native_group_norm.default": Sample((image(2, 6, 30, 40), t(6), t(6), 2, 6, 1200, 3, 1e-5)),
    "native_batch_norm.default": Sample((image(), t(3), t(3), t(3), t(3), True, 0.1, 1e-5)),
    "native_batch_norm_backward.default": Sample(
        (image(), image(), t(3), None, None, t(3, dtype=F32), t(3, dtype=F32), True, 1e-5, [True] * 3)
    ),
    "_weight_norm_interface.default": Sample((t(64, 32), t(64, 1), 0), {}, (t(64, 32), t(64, 1, dtype=F32))),
    # Losses.
    "mse_loss.default": Sample((t(64, 32), t(64, 32))),
    "mse_loss_backward.default": Sample((t(), t(64, 32), t(64, 32), 1)),
    "nll_loss_forward.default": Sample((t(64, 32), index(64), None, 1, -100), parts={"chosen": 64 * 2}),
    "nll_loss_backward.default": Sample((t(), t(64, 32), index(64), None, 1, -100, t())),
    "multi_margin_loss.default": Sample((t(64, 32), index(64)), {}, t()),
    # Copies and layout.
    "clone.default": Sample((t(64, 32).t(),)),
    "_to_copy.default": Sample((t(64, 32),), {"dtype": F32}),
    "copy_.default": Sample((t(64, 32), t(64, 32))),
    "slice_copy.Tensor": Sample((t(64, 32), 0, 3, 9)),
    "cat.default": Sample(([t(64, 32), t(64, 8)], 1)),
    "constant_pad_nd.default": Sample((t(64, 32), [1, 2])),
    "roll.default": Sample((t(64, 32), [1], [0])),
    "full_like.default": Sample((t(64, 32), 1.0)),
    "arange.default": Sample((64,), {"device": "meta"}),
    "tril.default": Sample((t(64, 32),)),
    "im2col.default": Sample((image(), [3, 3], [1, 1], [0, 0], [1, 1])),
    "reflection_pad2d_backward.default": Sample((image(2, 3, 32, 42), image(), [1, 1, 1, 1])),
    "slice_backward.default": Sample((t(6, 32), [64, 32], 0, 3, 9, 1)),
    "slice_scatter.default": Sample((t(64, 32), t(6, 32), 0, 3, 9)),
    # Views and new memory.
    "view.default": Sample((t(64, 32), [32, 64])),
    "empty_like.default": Sample((t(64, 32),)),
    # Indexing and scatter.
    "gather.default": Sample((t(64, 32), 1, index(64, 8))),
    "index_select.default": Sample((t(64, 32), 0, index(5))),
    "index.Tensor": Sample((t(64, 32), [index(5)])),
    "embedding.default": Sample((t(64, 32), index(5))),
    "scatter.src": Sample((t(64, 32), 1, index(64, 8), t(64, 8))),
    "scatter_.src": Sample((t(64, 32), 1, index(64, 8), t(64, 8))),
    "index_put_.default": Sample((t(64, 32), [index(5)], t(5, 32))),
    "index_add.default": Sample((t(64, 32), 0, index(5), t(5, 32))),
    "nonzero.default": Sample((t(64, 32),), {}, index(99, 2)),
    "masked_select.default": Sample((t(64, 32), mask(64, 32)), {}, t(99)),
    # Embedding.
    "embedding_dense_backward.default": Sample((t(50, 32), index(50), 64, -1, False)),
    "_embedding_bag_forward_only.default": Sample(
        (t(64, 32), index(50), index(10)), {}, (t(10, 32), index(50), index(10), index(10)), {"rows": 50 * 32 * 2}
    ),
    # Sorting.
    "sort.default": Sample((t(64, 32), 1)),
    "topk.default": Sample((t(64, 32), 3)),
    "kthvalue.default": Sample((t(64, 32), 3)),
    "searchsorted.Tensor": Sample((t(32), t(64, 16))),
    "histc.default": Sample((t(64, 32, dtype=F32), 10), {}, t(10, dtype=F32)),
    # Pooling.
    "avg_pool2d.default": Sample((image(), [2, 2], [2, 2])),
    "avg_pool2d_backward.default": Sample(
        (image(2, 3, 15, 20), image(), [2, 2], [2, 2], [0, 0], False, True, None)
    ),
    "max_pool2d_with_indices.default": Sample((image(), [2, 2], [2, 2])),
    "max_pool2d_with_indices_backward.default": Sample(
        (image(2, 3, 15, 20), image(), [2, 2], [2, 2], [0, 0], [1, 1], False, index(2, 3, 15, 20))
    ),
    "fractional_max_pool2d_backward.default": Sample(
        (image(2, 3, 15, 20), image(), [2, 2], [15, 20], index(2, 3, 15, 20)), {}, image()
    ),
    "max_unpool2d.default": Sample((image(2, 3, 15, 20), index(2, 3, 15, 20), [30, 40]), {}, image()),
    # Resampling.
    "upsample_bilinear2d.default": Sample((image(), [60, 80], False)),
    "upsample_bilinear2d_backward.default": Sample((image(2, 3, 60, 80), [60, 80], [2, 3, 30, 40], False)),
    "grid_sampler_2d.default": Sample((image(), t(2, 7, 9, 2), 0, 0, False), {}, image(2, 3, 7, 9)),
    "grid_sampler_2d_backward.default": Sample(
        (image(2, 3, 7, 9), image(), t(2, 7, 9, 2), 0, 0, False, [True, True]), {}, (image(), t(2, 7, 9, 2))
    ),
    # Matrix products.
    "mm.default": Sample((t(64, 32), t(32, 16))),
    "addmm.default": Sample((t(16), t(64, 32), t(32, 16))),
    "mv.default": Sample((t(64, 32), t(32))),
    "addr.default": Sample((t(64, 32), t(64), t(32))),
    # Formats of 8 bits and fewer.
    "_scaled_mm.default": Sample(
        (t(64, 32, dtype=E4M3), t(16, 32, dtype=E4M3).t(), t(64, 1, dtype=F32), t(1, 16, dtype=F32)),
        {"out_dtype": torch.bfloat16},
    ),
    # Convolution.
    "convolution.default": Sample((image(), t(8, 3, 3, 3), t(8), [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    "convolution_backward.default": Sample(
        (image(2, 8, 30, 40), image(), t(8, 3, 3, 3), [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3)
    ),
    # Attention.
    "_scaled_dot_product_flash_attention_for_cpu.default": Sample((t(2, 4, 30, 16), t(2, 4, 20, 16), t(2, 4, 20, 16))),
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": Sample(
        (*(t(2, 4, 30, 16) for _ in range(5)), t(2, 4, 30, dtype=F32), 0.0, False)
    ),
    # Lists of tensors.
    "_foreach_add.List": Sample(([t(64), t(32)], [t(64), t(32)])),
    "_foreach_mul_.Scalar": Sample(([t(64), t(32)], 2.0)),
    "_fused_adam_.default": Sample(
        (*([t(64, dtype=F32), t(32, dtype=F32)] for _ in range(4)), [], [t(dtype=F32), t(dtype=F32)]),
        {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False},
    ),
    "_fused_sgd_.default": Sample(
        tuple([t(64, dtype=F32), t(32, dtype=F32)] for _ in range(3)),
        {
            "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "dampening": 0.0,
            "nesterov": False, "maximize": False, "is_first_step": False,
        },
        (),
    ),
    # Special functions.
    "lgamma.default": Sample((t(64, 32),)),
    "special_zeta.default": Sample((t(64, 32), t(64, 32))),
    # Random numbers.
    "uniform_.default": Sample((t(64, 32),)),
    "randn_like.default": Sample((t(64, 32),)),
    "native_dropout.default": Sample((t(64, 32), 0.5, True)),
    # Recurrent cells.
    "_thnn_fused_lstm_cell.default": Sample(
        (t(6, 32), t(6, 32), t(6, 8), None, None), {}, (t(6, 8), t(6, 8), t(6, 32))
    ),
    "_thnn_fused_gru_cell.default": Sample((t(6, 24), t(6, 24), t(6, 8), None, None), {}, (t(6, 8), t(6, 40))),
}  # fmt: skip
