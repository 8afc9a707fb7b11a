"""opsmith's own passes, in the order in which they run; those of users come before the last one."""

from __future__ import annotations

from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.compile.lowered.bilinear_forms import multiply_bilinear_forms
from opsmith.compile.lowered.canonical import canonicalise
from opsmith.compile.lowered.common import share_common_calls
from opsmith.compile.lowered.constants import fold_constants
from opsmith.compile.lowered.dead import drop_dead_code
from opsmith.compile.lowered.library_calls import make_calls_faster
from opsmith.compile.lowered.views import clean_views
from opsmith.compile.traced.activations import fuse_gelu
from opsmith.compile.traced.attention import fuse_attention
from opsmith.compile.traced.attention_calls import call_fastest_attention, name_masks
from opsmith.compile.traced.batch_norm import fold_batch_norm
from opsmith.compile.traced.diagonals import scale_by_diagonals
from opsmith.compile.traced.losses import fuse_cross_entropy
from opsmith.compile.traced.norms import fuse_layer_norm, fuse_rms_norm, fuse_softmax
from opsmith.compile.traced.pooled_convolutions import pool_in_convolutions
from opsmith.compile.traced.product_chains import order_products
from opsmith.compile.traced.reduced_products import reduce_before_products
from opsmith.compile.traced.rotary import make_rotary_real
from opsmith.compile.traced.triangles import halve_products

#: The passes that try out ways to make calls.
LIBRARY_CALLS = "library_calls"
ATTENTION_CALLS = "attention_calls"

BUILT_IN = (
    GraphPass(
        "softmax",
        Stage.TRACED,
        fuse_softmax,
        differs="exp(x) / sum without a shift is finite where exp(x) overflows or the sum underflows, and an infinity "
        "makes its whole row NaN; log(softmax(x)) is finite where softmax(x) underflows",
    ),
    GraphPass(
        "attention",
        Stage.TRACED,
        fuse_attention,
        differs="a query whose scores are all NaN or -inf may be 0 instead of NaN; a score that a boolean mask hides "
        "makes its query NaN if it is NaN or inf; values above 1e38 may overflow",
    ),
    GraphPass(
        "layer_norm",
        Stage.TRACED,
        fuse_layer_norm,
        differs="a row whose sum overflows may be finite",
    ),
    GraphPass("rms_norm", Stage.TRACED, fuse_rms_norm),
    GraphPass(
        "gelu",
        Stage.TRACED,
        fuse_gelu,
        differs="0.5 * (x * (1 + erf)) is finite where x * 2 overflows",
    ),
    GraphPass("cross_entropy", Stage.TRACED, fuse_cross_entropy),
    GraphPass(
        "rotary",
        Stage.TRACED,
        make_rotary_real,
        differs="turns so large that products overflow may be NaN instead of infinite",
    ),
    GraphPass(
        "batch_norm",
        Stage.TRACED,
        fold_batch_norm,
        differs="an infinite scale may make NaN of infinities, and the other way round; huge numbers overflow "
        "elsewhere",
    ),
    GraphPass(
        "diagonal_product",
        Stage.TRACED,
        scale_by_diagonals,
        differs="zeros of the matrix times what is not finite count as zero instead of NaN; a zero may have the other "
        "sign",
    ),
    GraphPass(
        "product_order",
        Stage.TRACED,
        order_products,
        differs="NaN and infinities may stand for each other, and inner products overflow or underflow elsewhere",
    ),
    GraphPass(
        "pooled_convolution",
        Stage.TRACED,
        pool_in_convolutions,
        differs="infinities of both signs in a window may be one infinity instead of NaN, and sums overflow elsewhere",
    ),
    GraphPass(
        "reduced_product",
        Stage.TRACED,
        reduce_before_products,
        differs="infinities of both signs may be one infinity instead of NaN, sums overflow elsewhere, and a zero may "
        "have the other sign",
    ),
    GraphPass(
        "triangle",
        Stage.TRACED,
        halve_products,
        differs="zeros of the triangle times what is not finite count as zero instead of NaN; partial sums overflow "
        "elsewhere",
    ),
    GraphPass(
        "attention_mask",
        Stage.TRACED,
        name_masks,
        differs="a score that a causal mask hides leaves no NaN in its query",
    ),
    GraphPass(
        ATTENTION_CALLS,
        Stage.TRACED,
        call_fastest_attention,
        differs="a score that a mask hides may leave a NaN in its query, or not",
    ),
    GraphPass(
        "bilinear_form",
        Stage.LOWERED,
        multiply_bilinear_forms,
        differs="partial sums overflow elsewhere",
    ),
    GraphPass("canonicalise", Stage.LOWERED, canonicalise),
    GraphPass("constant_folding", Stage.LOWERED, fold_constants),
    GraphPass("view_cleanup", Stage.LOWERED, clean_views),
    GraphPass("common_subexpressions", Stage.LOWERED, share_common_calls),
    GraphPass("dead_code", Stage.LOWERED, drop_dead_code),
)
#: After it a graph calls overloads that no other pass knows.
LAST = GraphPass(LIBRARY_CALLS, Stage.LOWERED, make_calls_faster)
