"""Which ops the oracle judges by which rule, by packet.

What each rule grants is said in docs/explanation/numerics.md.
"""

from __future__ import annotations

#: Ops whose float64 result answers another question.
EXCLUDED = frozenset(
    {
        # The answer depends on the number format itself: spacing, largest value, bit patterns.
        *("nextafter", "nan_to_num", "frexp", "view", "hash_tensor", "fake_quantize_per_tensor_affine_cachemask"),
        *("fake_quantize_per_channel_affine_cachemask", "linalg_lstsq", "_to_copy", "copy"),
        # Steps: at a boundary a rounding error becomes a whole step, and eager's side is the right one. (Remainders of
        # given numbers are exact; eager on a CPU has NaN for those whose quotient float32 does not hold.)
        *("floor_divide", "floor", "ceil", "trunc", "frac", "round", "sign", "sgn"),
        *("heaviside", "histc", "histogram", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"),
    }
)

#: Linear ops that eager adds up in memory, term by term in the type of the result, on a GPU by atomic additions. The
#: order is nobody's.
ADDED_IN_MEMORY = frozenset(
    {
        *("index_add", "scatter_add", "index_put", "_index_put_impl", "_unsafe_index_put", "put"),
        *("embedding_dense_backward", "_embedding_bag_dense_backward", "_embedding_bag_backward"),
        *("col2im", "unfold_backward", "_unsafe_masked_index_put_accumulate"),
        *("avg_pool2d_backward", "avg_pool3d_backward"),
        *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
        *("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"),
        *("upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"),
        *("_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward"),
        *("_upsample_nearest_exact3d_backward", "_upsample_bilinear2d_aa_backward"),
        *("upsample_bicubic2d_backward", "_upsample_bicubic2d_aa_backward"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"),
        *("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"),
        *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
        *("fractional_max_pool2d_backward", "fractional_max_pool3d_backward"),
    }
)
#: Ops that are linear in their floating inputs (or bounded by themselves on magnitudes).
LINEAR = ADDED_IN_MEMORY | {
    *("mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "addr", "dot", "vdot", "linear", "_trilinear"),
    "_scaled_mm",
    *("convolution", "convolution_backward", "_convolution", "mkldnn_convolution", "cudnn_convolution"),
    *("_addmm_activation", "sum", "nansum", "mean", "cumsum", "trace", "add", "sub", "rsub", "addcmul"),
    *("segment_reduce", "_embedding_bag", "_embedding_bag_forward_only"),
    *("_embedding_bag_per_sample_weights_backward", "nll_loss_forward", "nll_loss2d_forward"),
    *("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa"),
    *("upsample_bicubic2d", "_upsample_bicubic2d_aa"),
}
#: Products that may be made of products of sums (Strassen's, Winograd's), whose error has the scale of the whole matrix
#: or image; and how many of its first dimensions count those.
NORMWISE = {"mm": 0, "addmm": 0, "addbmm": 0, "bmm": 1, "baddbmm": 1, "linear": 0, "convolution": 1, "_convolution": 1}
#: The op that adds up magnitudes where the op itself takes a difference.
ADDING_UP = {"sub": "add", "rsub": "add", "sub_": "add_"}
#: Linear when their ``reduce`` argument is a sum or mean, and added up in memory then.
LINEAR_REDUCTIONS = frozenset({"scatter", "scatter_reduce", "index_reduce"})
#: Ops of whose results the second is a mean, which is linear.
WITH_MEAN = frozenset({"native_layer_norm", "var_mean", "std_mean"})
#: Unitary transforms: an element's error has the scale of the whole signal.
ISOTROPIC = frozenset({"_fft_c2c", "_fft_r2c", "_fft_c2r"})
#: Products of many factors, each step of which is rounded: the errors add up as a random walk, in which eager's may be
#: small by luck all along.
PRODUCTS = frozenset({"prod", "cumprod"})
#: Sampling an image at coordinates from -1 to 1, and its gradients.
SAMPLERS = frozenset({"grid_sampler_2d_backward", "grid_sampler_3d_backward"})
SAMPLING = frozenset({"grid_sampler_2d", "grid_sampler_3d"}) | SAMPLERS
#: Gradients of losses that eager multiplies in the type of the elements, beginning at one over their number.
LOSS_GRADIENTS = frozenset(
    {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "soft_margin_loss_backward"}
)
#: Gradients that subtract a mean of what they are given, weighed by probabilities one of which may be nearly 1.
_SOFTMAX_GRADIENTS = ("_softmax_backward_data", "_log_softmax_backward_data")
#: Solutions of systems of equations, inverses, determinants and factors of matrices that may be nearly singular: an
#: honest one is that of a matrix with other last digits (N. Higham, Accuracy and Stability of Numerical Algorithms,
#: theorems 8.5, 9.4 and 10.3).
_SOLUTIONS = (
    *("triangular_solve", "linalg_solve_triangular", "linalg_lu_solve", "cholesky_solve", "_linalg_solve_ex"),
    *("linalg_inv_ex", "cholesky_inverse", "_linalg_det", "_linalg_slogdet", "cholesky", "linalg_cholesky_ex"),
)
#: Gradients of norms: those of parameters are sums over a batch, which may cancel, and that of an input is less its own
#: part along the input, all of it in a group of one element and nearly all in one of two.
_NORM_GRADIENTS = (
    *("native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward"),
    *("native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward"),
)
#: Gradients of activations that bend: each has a factor that is a difference, ``1 - y y`` for one, of nearly the same.
_ACTIVATION_GRADIENTS = (
    *("tanh_backward", "sigmoid_backward", "silu_backward", "gelu_backward", "mish_backward"),
    *("log_sigmoid_backward",),
)
#: Ops next to whose poles and kinks the last digits of an input decide, and of which a difference of nearly the same is
#: a factor; what these explain is found by perturbation, as for a module.
SENSITIVE = SAMPLERS | {
    *("digamma", "polygamma", "_weight_norm_interface_backward"),
    *(*_SOFTMAX_GRADIENTS, *_ACTIVATION_GRADIENTS, *_NORM_GRADIENTS, *_SOLUTIONS),
}
#: Ops that subtract what was rounded on the way: means, whose rounding is the same for all elements that it is taken
#: from, and values of ``tanh``.
DECOMPOSED = (
    *("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm"),
    *("native_layer_norm", "native_group_norm"),
    *_NORM_GRADIENTS,
    *_SOFTMAX_GRADIENTS,
    *_ACTIVATION_GRADIENTS,
)
