"""How the shapes of an op's tensors belong together.

A specification names the sizes of each tensor by letters, one letter one size: ``self=M,K mat2=K,N``; a
small letter is a small size, such as that of a window.

- ``*`` stands for any number of dimensions, the same ones wherever it occurs,
- ``@`` before a shape allows anything that broadcasts to it,
- a number is that size,
- an integer argument, or a list of them, may be tied to sizes like a tensor is: ``normalized_shape=D``.

An op without a specification takes tensors of one shape; an elementwise one takes what broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hypothesis import assume
from hypothesis import strategies as st

from opsmith.core.op import OpSchema, Variant
from opsmith.suites.valid_inputs.binding import stem_of
from opsmith.suites.variants.scope import is_elementwise

Draw = Callable[[st.SearchStrategy[int]], int]
#: Argument -> its shape, or the sizes that it is tied to.
Shapes = Mapping[str, tuple[int, ...]]

MAX_ELEMENTS = 1 << 13
MAX_RANK = 4
#: Small sizes first: a failure shrinks towards the first alternative and towards its low end.
SIZE = st.integers(1, 8) | st.integers(0, 34) | st.integers(0, 130)

SMALL_SIZE = st.integers(1, 3)

_PLANES = "N,C,H,W"
_SPECS = {
    "mm": "self=M,K mat2=K,N",
    "bmm": "self=B,M,K mat2=B,K,N",
    "addmm _addmm_activation": "self=@M,N mat1=M,K mat2=K,N",
    "addbmm": "self=@M,N batch1=B,M,K batch2=B,K,N",
    "baddbmm": "self=@B,M,N batch1=B,M,K batch2=B,K,N",
    "mv": "self=M,K vec=K",
    "addmv": "self=@M mat=M,K vec=K",
    "dot": "self=K tensor=K",
    "vdot": "self=K other=K",
    "addr": "self=@M,N vec1=M vec2=N",
    "ger": "self=M vec2=N",
    "linear": "input=*,K weight=N,K bias=N",
    "_trilinear": "i1=B,N,K i2=B,N,K i3=B,N,K",
    "native_layer_norm": "input=*,D normalized_shape=D weight=D bias=D",
    "native_layer_norm_backward": "grad_out=*,D input=*,D normalized_shape=D mean=*,1 rstd=*,1 weight=D bias=D",
    "_fused_rms_norm": "input=*,D normalized_shape=D weight=D",
    "native_batch_norm _native_batch_norm_legit _batch_norm_with_update _batch_norm_no_update": (
        "input=N,C,* weight=C bias=C running_mean=C running_var=C"
    ),
    "_native_batch_norm_legit_no_training": "input=N,C,* weight=C bias=C running_mean=C running_var=C",
    "native_batch_norm_backward": (
        "grad_out=N,C,* input=N,C,* weight=C running_mean=C running_var=C save_mean=C save_invstd=C"
    ),
    "native_group_norm": "input=N,C,L weight=C bias=C N=N C=C HxW=L",
    "embedding": "weight=V,D indices=*",
    "embedding_dense_backward": "grad_output=*,D indices=* num_weights=V",
    "embedding_renorm": "self=V,D indices=K",
    "nll_loss_forward": "self=N,C target=N weight=C",
    "nll_loss2d_forward": "self=N,C,H,W target=N,H,W weight=C",
    "multi_margin_loss": "self=N,C target=N weight=C",
    "multilabel_margin_loss_forward": "self=N,C target=N,C",
    "convolution": "input=N,C,H,W weight=O,C,j,i bias=O",
    "im2col": f"self={_PLANES}",
    "cdist _cdist_forward": "x1=B,M,K x2=B,N,K",
    "_pdist_forward": "self=N,D",
    "linalg_cross": "self=*,3 other=*,3",
    "index_select": "self=A,L,B index=K dim=1",
    "index_fill": "self=A,L,B index=K",
    "index_add index_copy index_reduce": "self=A,L,B index=K source=A,K,B",
    "gather": "self=A,L,B index=A,K,B",
    "scatter scatter_add scatter_reduce": "self=A,L,B index=A,K,B src=A,K,B",
    "take put": "self=* index=K source=K",
    "masked_fill masked_select masked_scatter": "self=* mask=* source=*",
    "trace": "self=M,N",
    "searchsorted": "sorted_sequence=L self=*",
    "bucketize": "self=* boundaries=L",
    "bincount": "self=N weights=N",
    "isin": "elements=* test_elements=L",
    "_weight_norm_interface": "v=M,N g=M,1",
    "prelu _prelu_kernel": "self=* weight=*",
    "avg_pool2d max_pool2d_with_indices _adaptive_avg_pool2d adaptive_max_pool2d reflection_pad2d": f"self={_PLANES}",
    "replication_pad2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d": f"self={_PLANES}",
    "_upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa pixel_shuffle": f"self={_PLANES}",
    "pixel_unshuffle channel_shuffle native_channel_shuffle": f"self={_PLANES}",
    "avg_pool3d max_pool3d_with_indices _adaptive_avg_pool3d adaptive_max_pool3d": "self=N,C,T,H,W",
    "upsample_nearest3d upsample_trilinear3d _upsample_nearest_exact3d replication_pad3d": "self=N,C,T,H,W",
    "reflection_pad3d": "self=N,C,T,H,W",
    "upsample_nearest1d upsample_linear1d _upsample_nearest_exact1d": "self=N,C,L",
    "reflection_pad1d replication_pad1d": "self=C,L",
    "grid_sampler_2d": "input=N,C,H,W grid=N,I,J,2",
    "grid_sampler_3d": "input=N,C,T,H,W grid=N,I,J,L,3",
    "affine_grid_generator": "theta=N,2,3",
    "tril triu rot90": "self=*,M,N",
    "linalg_cholesky_ex cholesky cholesky_inverse linalg_inv_ex": "self=*,M,M A=*,M,M",
    "_linalg_eigh _linalg_det _linalg_slogdet": "A=*,M,M",
    "linalg_matrix_exp": "self=*,M,M",
    "_linalg_solve_ex": "A=B,M,M B=B,M,N",
    "cholesky_solve _cholesky_solve_helper": "self=B,M,N input2=B,M,M A=B,M,M",
    "linalg_solve_triangular": "self=B,M,M B=B,M,N",
    "linalg_qr _linalg_svd linalg_lu linalg_lu_factor_ex": "A=*,M,N",
    "_fft_c2c _fft_r2c _fft_c2r": "self=*,M,N",
}  # fmt: skip
SPECIFICATIONS = {stem: text for stems, text in _SPECS.items() for stem in stems.split()}


class Sizes:
    """The sizes of one call, drawn where they are first asked for.

    Args:
        draw: Hypothesis' draw function.
        schema: of the op.
    """

    def __init__(self, draw: Draw, schema: OpSchema) -> None:
        self._draw = draw
        self._schema = schema
        self._sizes: dict[str, int] = {}
        specification = SPECIFICATIONS.get(stem_of(schema.name), "")
        self._specification = dict(part.split("=") for part in specification.split())
        self._common: tuple[int, ...] | None = None

    def tied(self, name: str) -> tuple[int, ...] | None:
        """The sizes that an integer argument is tied to, or None."""
        text = self._specification.get(name)
        return None if text is None else self._sized(text)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor argument."""
        text = self._specification.get(name)
        if text is not None:
            wanted = self._sized(text.removeprefix("@"))
            shape = self._broadcastable(wanted) if text.startswith("@") and not self._keeps_shape(name) else wanted
        elif self._broadcasts and not self._keeps_shape(name):
            shape = self._broadcastable(self.common)
        else:
            shape = self.common
        assume(math.prod(shape) <= MAX_ELEMENTS)
        return shape

    @property
    def common(self) -> tuple[int, ...]:
        """The shape that tensors without a specification have."""
        if self._common is None:
            self._common = self._any_shape()
        return self._common

    @property
    def _broadcasts(self) -> bool:
        """Whether tensors without a specification may differ in shape; a gradient has the shape of what it is of."""
        name = self._schema.name
        return is_elementwise(self._schema) and "backward" not in name and not name.startswith("_foreach_")

    def _keeps_shape(self, name: str) -> bool:
        return self._schema.variant is Variant.INPLACE and name == "self"

    def _any_shape(self, most: int = MAX_RANK) -> tuple[int, ...]:
        rank = self._draw(st.integers(0, most))
        shape = tuple([self._draw(SIZE) for _ in range(rank)])
        assume(math.prod(shape) <= MAX_ELEMENTS)
        return shape

    def _broadcastable(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape itself, mostly; else without leading dimensions, and with 1 for some of the others."""
        if self._draw(st.integers(0, 2)) < 2:
            return shape
        kept = shape[self._draw(st.integers(0, len(shape))) :]
        return tuple([1 if self._draw(st.integers(0, 3)) == 3 else size for size in kept])

    def _sized(self, text: str) -> tuple[int, ...]:
        found: list[int] = []
        for letter in text.split(","):
            if letter == "*":
                if self._common is None:
                    self._common = self._any_shape(2)
                found += self._common
            elif letter.isdigit():
                found.append(int(letter))
            else:
                if letter not in self._sizes:
                    self._sizes[letter] = self._draw(SMALL_SIZE if letter.islower() else SIZE)
                found.append(self._sizes[letter])
        return tuple(found)
