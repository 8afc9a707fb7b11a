"""What Inductor, or a decomposition of its, does otherwise than eager mode, with or without opsmith."""

from __future__ import annotations

#: Ops whose results are what memory happens to hold: shapes and dtypes are compared, values are not.
UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"},
)

_ONE_ELEMENT = "the gradient through the norm of one element is 0; eager rounds it to 1e-4, the decomposition does not"
_ROUNDING = "a gradient's sums in another order; against float64 its error is as large as eager's"
_POLYGAMMA = "AOTAutograd does not functionalise polygamma_"
_EDGE = "on a GPU: generated code rounds a gradient near the edge of the domain by up to 2e-5 of it"
_PRODUCTS = "on a GPU: a gradient of products and sums in another order, up to 2e-5 of it"
_DROPOUT = "eager returns the input itself where nothing is dropped, and a compiled graph a copy"

#: OpInfo -> the reason. Every one of them fails without opsmith's passes in the same way.
KNOWN: dict[str, str] = {
    **dict.fromkeys(("native_layer_norm", "nn.functional.layer_norm"), _ONE_ELEMENT),
    **{f"polygamma.polygamma_n_{n}": _POLYGAMMA for n in range(5)},
    **dict.fromkeys(("asin", "atanh"), _EDGE),
    "bernoulli": "on a GPU: the decomposition draws other numbers than ATen's kernel",
    "linalg.householder_product": _PRODUCTS,
    "logcumsumexp": "on a GPU: a gradient of exponentials in generated code, up to 1e-3 of it where terms cancel",
    "nn.functional.dropout": _DROPOUT,
    "nn.functional.multi_head_attention_forward": _ROUNDING,
    "nn.functional.scaled_dot_product_attention": _ROUNDING,
    "torch.ops.aten._efficient_attention_forward": "on a GPU: its seed is unwritten memory, its fake strides are wrong",
}
