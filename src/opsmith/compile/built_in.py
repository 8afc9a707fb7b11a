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
from opsmith.compile.traced.batch_norm import fold_batch_norm
from opsmith.compile.traced.diagonals import scale_by_diagonals
from opsmith.compile.traced.losses import fuse_cross_entropy
from opsmith.compile.traced.norms import fuse_layer_norm, fuse_rms_norm, fuse_softmax
from opsmith.compile.traced.pooled_convolutions import pool_in_convolutions
from opsmith.compile.traced.product_chains import order_products
from opsmith.compile.traced.reduced_products import reduce_before_products
from opsmith.compile.traced.rotary import make_rotary_real
from opsmith.compile.traced.triangles import halve_products

#: The pass that tries out ways to make calls.
LIBRARY_CALLS = "library_calls"

BUILT_IN = (
    GraphPass("softmax", Stage.TRACED, fuse_softmax),
    GraphPass("attention", Stage.TRACED, fuse_attention),
    GraphPass("layer_norm", Stage.TRACED, fuse_layer_norm),
    GraphPass("rms_norm", Stage.TRACED, fuse_rms_norm),
    GraphPass("gelu", Stage.TRACED, fuse_gelu),
    GraphPass("cross_entropy", Stage.TRACED, fuse_cross_entropy),
    GraphPass("rotary", Stage.TRACED, make_rotary_real),
    GraphPass("batch_norm", Stage.TRACED, fold_batch_norm),
    GraphPass("diagonal_product", Stage.TRACED, scale_by_diagonals),
    GraphPass("product_order", Stage.TRACED, order_products),
    GraphPass("pooled_convolution", Stage.TRACED, pool_in_convolutions),
    GraphPass("reduced_product", Stage.TRACED, reduce_before_products),
    GraphPass("triangle", Stage.TRACED, halve_products),
    GraphPass("bilinear_form", Stage.LOWERED, multiply_bilinear_forms),
    GraphPass("canonicalise", Stage.LOWERED, canonicalise),
    GraphPass("constant_folding", Stage.LOWERED, fold_constants),
    GraphPass("view_cleanup", Stage.LOWERED, clean_views),
    GraphPass("common_subexpressions", Stage.LOWERED, share_common_calls),
    GraphPass("dead_code", Stage.LOWERED, drop_dead_code),
)
#: After it a graph calls overloads that no other pass knows.
LAST = GraphPass(LIBRARY_CALLS, Stage.LOWERED, make_calls_faster)
