"""Which names are torch's own computations, and which of them are the task's own op."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from opsmith.evaluation.integrity.static.tables import names

#: Memory, numbers made from nothing, copies, views and facts about a tensor: what policy ``native`` leaves
#: to torch. Written without the underscores that mark a variant.
_ALLOWED = names(
    """
    alias arange as_strided as_tensor asarray atleast_1d atleast_2d atleast_3d adjoint broadcast_tensors
    broadcast_to can_cast chunk clone col_indices conj contiguous copy cpu crow_indices cuda data dense_dim
    detach diagonal dim dsplit empty empty_like empty_permuted empty_strided expand expand_as eye fill flatten
    from_file full full_like get_device hsplit imag indices item lift lift_fresh linspace local_scalar_dense
    logspace matrix_H mH mT moveaxis movedim narrow neg_view new_empty new_empty_strided new_full new_ones new_zeros
    numel numpy_T ones ones_like output_nr permute pin_memory positive promote_types range ravel real
    record_stream rename requires_grad reshape reshape_alias reshape_as resize resize_as resolve_conj
    resolve_neg result_type retain_grad retains_grad scalar_tensor select set size slice sparse_dim split
    split_with_sizes squeeze storage_offset stride swapaxes swapdims t tensor tensor_split to to_copy transpose
    tril_indices triu_indices type_as unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes
    unsafe_view unsqueeze values version view view_as view_as_complex view_as_real vsplit zero zeros zeros_like
    """
)
_ALLOWED_PREFIXES = ("is_", "sym_", "has_", "assert_", "fw_", "cufft_")
#: Where torch keeps functions that are ATen ops by their own name, with what their names lose there.
_NAMESPACES = {
    "torch.ops.aten": "",
    "torch._C._VariableFunctions": "",
    "torch._VF": "",
    "torch._C._nn": "",
    "torch._C._special": "",
    "torch._C._linalg": "",
    "torch._C._fft": "",
    "torch._C._TensorBase": "",
    "torch._C.TensorBase": "",
    "torch.Tensor": "",
    "torch.functional": "",
    "torch.special": "special_",
    "torch.linalg": "linalg_",
    "torch.fft": "fft_",
    "torch": "",
}
#: Where everything that can be called computes, an ATen op of that name or not.
_ALL_COMPUTE = ("torch.nn.functional", "torch._refs", "torch._prims", "torch.ops.prims", "torch._decomp.decompositions")
#: Methods that numbers, strings, containers and arrays have as well, so that the name says nothing.
_SHARED_METHODS = names(
    """
    all any argmax argmin argsort clip cumprod cumsum dot max mean min nonzero partition prod put repeat round
    searchsorted sort std sum take trace var
    """
) | {name for kind in (str, bytes, int, float, complex, list, tuple, dict, set) for name in dir(kind)}
#: Matrix products that are each other with another shape or one more term.
MATRIX_PRODUCTS = names("mm bmm addmm baddbmm addbmm matmul linear einsum tensordot inner")
#: What one op is called elsewhere; everything on one line is one op.
_SAME = (
    "abs absolute",
    "acos arccos",
    "acosh arccosh",
    "asin arcsin",
    "asinh arcsinh",
    "atan arctan",
    "atan2 arctan2",
    "atanh arctanh",
    "batch_norm batch_norm_impl_index batch_norm_with_update batch_norm_legit batch_norm_legit_no_training",
    "cat concat concatenate",
    "clamp clip",
    "convolution conv1d conv2d conv3d convolution_overrideable convolution_mode slow_conv2d_forward",
    "digamma psi",
    "div divide true_divide",
    "erf special_erf",
    "exp2 special_exp2",
    "expm1 special_expm1",
    "ge greater_equal",
    "gt greater",
    "le less_equal",
    "linalg_inv inverse",
    "lgamma gammaln",
    "logit special_logit",
    "lt less",
    "mul multiply",
    "ne not_equal",
    "neg negative",
    "scaled_dot_product_attention scaled_dot_product_flash_attention scaled_dot_product_flash_attention_for_cpu",
    "scaled_dot_product_attention scaled_dot_product_efficient_attention scaled_dot_product_cudnn_attention",
    "scaled_dot_product_attention scaled_dot_product_attention_math scaled_dot_product_fused_attention_overrideable",
    "sigmoid expit",
    "sub subtract",
    "trunc fix",
)
_CANONICAL = {name: line.partition(" ")[0] for line in _SAME for name in line.split()}


@functools.cache
def aten_names() -> frozenset[str]:
    """The names of all ATen ops without overloads, from the list that ships with torch; torch is not imported."""
    spec = importlib.util.find_spec("torchgen")
    assert spec is not None
    assert spec.origin is not None
    schemas = Path(spec.origin).parent / "packaged/ATen/native/native_functions.yaml"
    marker = "- func: "
    lines = (line for line in schemas.read_text(encoding="utf-8").splitlines() if line.startswith(marker))
    return frozenset({line[len(marker) :].partition("(")[0].partition(".")[0] for line in lines})


def computation(dotted: str) -> str | None:
    """The op behind a qualified Python name of torch's, where it computes; None for anything else.

    ``torch.nn.functional.relu_`` -> ``relu``; ``torch.linalg.inv`` -> ``linalg_inv``; ``torch.empty`` -> None.
    """
    for space in _ALL_COMPUTE:
        rest = dotted.removeprefix(f"{space}.")
        if rest != dotted:
            name = rest.partition(".")[0]
            return None if name[:1] in "_ABCDEFGHIJKLMNOPQRSTUVWXYZ" or is_allowed(name) else base_name(name)
    for space, prefix in _NAMESPACES.items():
        rest = dotted.removeprefix(f"{space}.")
        if rest == dotted:
            continue
        name, _, overload = rest.partition(".")
        if overload and space != "torch.ops.aten":
            continue
        op = name if name.startswith(prefix) else prefix + name
        return None if is_allowed(name) or not is_aten(op) else base_name(op)
    return None


def method_computation(name: str) -> str | None:
    """The op behind a method of an object of unknown type, where nothing but a tensor has such a method."""
    if name in _SHARED_METHODS or is_allowed(name) or not is_aten(name) or name.startswith("__"):
        return None
    return base_name(name)


def is_aten(name: str) -> bool:
    """Whether there is an ATen op of this name, public or with an underscore."""
    return name in aten_names() or f"_{name}" in aten_names()


def is_allowed(name: str) -> bool:
    """Whether policy ``native`` leaves this op, in any variant, to torch."""
    plain = name.strip("_")
    return plain in _ALLOWED or plain.startswith(_ALLOWED_PREFIXES)


def base_name(op: str) -> str:
    """An op's name without what tells variants and implementations apart: ``_softmax_out`` -> ``softmax``."""
    plain = op.strip("_").removesuffix("_out")
    for prefix in ("special_", "native_", "cudnn_", "miopen_", "mkldnn_", "thnn_"):
        plain = plain.removeprefix(prefix)
    return canonical(plain)


def canonical(name: str) -> str:
    """The one name of what is called by several."""
    return _CANONICAL.get(name, name)


def is_delegation(op: str, own: str | None) -> bool:
    """Whether an op does the work of the task's own: it is that op, or a matrix product where that is asked for."""
    return own is not None and (op == own or {op, own} <= MATRIX_PRODUCTS)


def task_op(task: str) -> str | None:
    """The op that a task asks for, as :func:`base_name` writes it; None for a module task."""
    return None if "/" in task else base_name(task.partition(".")[0])
