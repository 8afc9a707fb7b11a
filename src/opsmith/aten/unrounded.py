"""Ops that round nothing: their results are numbers of their inputs, or say where these are and how many.

Names are packets without what marks a variant. Whatever the values, such an op has one right answer but for ties.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Ops that copy or choose numbers: their results are compared bit for bit.
COPYING = _names("""
    clone copy _to_copy contiguous detach lift lift_fresh alias fill zero zeros ones full new_full new_zeros
    new_ones zeros_like ones_like full_like scalar_tensor _efficientzerotensor eye tril triu where _pin_memory
    cat concat stack hstack vstack dstack block_diag _chunk_cat constant_pad_nd flip roll rot90 repeat
    repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle im2col select_scatter slice_scatter
    diagonal_scatter as_strided_scatter diag_embed diagonal_backward select_backward slice_backward
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    index index_select index_fill index_copy gather masked_fill masked_scatter masked_select take embedding
    _unsafe_index _unsafe_masked_index masked_scatter_backward
    maximum minimum fmax fmin clamp clamp_max clamp_min amax amin aminmax max min neg relu threshold
    threshold_backward hardtanh hardtanh_backward hardshrink hardshrink_backward softshrink_backward copysign floor
    ceil trunc frac heaviside nan_to_num nextafter frexp conj conj_physical _conj _conj_physical _neg_view
    view_as_real view_as_complex complex real imag
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d _unsafe_view _reshape_copy permute transpose t squeeze
    unsqueeze expand view slice select unbind split split_with_sizes unfold diagonal narrow as_strided
    unsafe_split unsafe_split_with_sizes unsafe_chunk lu_unpack to_sparse _to_sparse _to_dense to_dense
    _coalesce sparse_mask sort values indices set isin unique_consecutive unique_dim _unique _unique2
    hash_tensor _local_scalar_dense item
""")

#: Of these, what keeps a zero's sign on every device: moves of numbers, and steps that IEEE 754 defines. A maximum may
#: return either zero, ``0 - x`` is how some languages write ``-x``, and a number among the arguments (of ``fill``, or
#: what ``masked_fill`` takes out of a tensor) may lose its sign on the way to a device.
KEEPING_SIGNS = _names("""
    clone copy _to_copy contiguous where cat concat stack hstack vstack dstack
    flip roll rot90 repeat repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle
    select_scatter slice_scatter diagonal_scatter as_strided_scatter reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d index index_select
    index_copy gather masked_scatter masked_select take embedding copysign floor ceil trunc
""")

#: Ops of which IEEE 754 defines the sign of a zero, too, whatever is rounded on the way: products and what scales. It
#: does so of odd functions as well, but formulas as good as ``x - x * x * x / 6`` lose it.
SIGNING = _names("mul div sqrt reciprocal deg2rad rad2deg silu gelu mish hardswish")

#: Ops that order, count or search numbers and may return the places of them.
ORDERING = _names("""
    topk kthvalue mode median nanmedian cummax cummin argsort argmax argmin msort any all count_nonzero nonzero
    nonzero_static argwhere isin searchsorted bucketize equal
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    fractional_max_pool2d fractional_max_pool3d eq ne lt le gt ge isnan isinf isfinite isposinf isneginf
    logical_and logical_or logical_xor logical_not signbit sign sgn
""")
