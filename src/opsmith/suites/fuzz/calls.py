"""Calls of any op, drawn from its schema.

Shapes come from :mod:`.shapes`, what is no tensor from :mod:`.scalars`, values from the domains that
:mod:`opsmith.suites.valid_inputs` declares and from the labels of :mod:`opsmith.suites.variants`.
A drawn call is asked only if eager answers it on tensors of the same form that hold ones and zeros.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from hypothesis import reject
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import aten_schemas, overload
from opsmith.aten.strides import extent
from opsmith.core.case import CallRecord, NamedValue, SequenceValue, TensorValue, Value, tensor_values
from opsmith.core.domains import Definite
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.core.trace import TracedCall
from opsmith.suites.fuzz.scalars import NotDrawable, default, scalar
from opsmith.suites.fuzz.shapes import Sizes
from opsmith.suites.valid_inputs import CannotRebuild, traced_record
from opsmith.suites.valid_inputs.binding import stem_of
from opsmith.suites.valid_inputs.indices import INDEX_RULES
from opsmith.suites.valid_inputs.values import VALUE_RULES
from opsmith.suites.variants import layout_variants, value_variants
from opsmith.suites.variants.layouts import LAYOUTS, dense_strides
from opsmith.suites.variants.scope import DENSE, LABELS, is_elementwise, is_random

_DTYPE_NAMES = {getattr(torch, long): short for short, long in TENSOR_DTYPES.items()}

#: Arguments that hold truth values.
MASKS = frozenset({"condition", "mask", "is_target"})
#: Optional tensors that eager reads without a look whether they are there.
GIVEN = frozenset({"running_mean", "running_var", "save_mean", "save_var", "save_invstd"})
#: The dtypes that an elementwise op's further tensors may have beside the one asked.
PROMOTED = ("i64", "b8")
#: Ops of other runtimes and formats, and those that look at more than their arguments, by their names' beginnings.
FOREIGN = (
    *("cudnn", "_cudnn", "miopen", "_miopen", "mkldnn", "_mkldnn", "_mps", "mps", "xnnpack", "_nnpack", "_cufft"),
    *("quantize", "_quantize", "quantized", "fake_quant", "_fake_quant", "fused_moving", "_fused_moving", "q_"),
    *(
        "_make_per",
        "fbgemm",
        "sparse",
        "_sparse",
        "to_sparse",
        "_to_sparse",
        "to_mkldnn",
        "_coalesce",
        "_nested",
        "nested",
    ),
    *("_test", "_assert", "_async", "_debug", "_cslt", "_cuda", "_use_cudnn", "_has_", "_foobar", "sym_", "_sym"),
    *("_thnn", "lstm", "gru", "rnn", "_lstm", "quantile_", "_transformer", "_native_multi_head", "_triton"),
    *("_fused_adam", "_fused_sgd", "_fused_adagrad", "_amp", "_record", "_ctc", "_weight_int", "_convert_weight"),
    *("_int_mm", "_scaled", "_flash", "_efficient", "_fill_mem", "_wrapped", "_jagged", "_padded", "_spdm", "_spsolve"),
    *("segment_reduce", "_segment_reduce", "_embedding_bag", "set", "_resize", "resize", "as_strided", "_pin"),
    *("_dyn", "_mixed_dtypes", "_histogramdd", "_validate", "_grouped", "_rowwise", "rename", "_unsafe_masked"),
    *("_philox", "_empty", "empty", "new_empty", "_nnz", "_indices", "indices", "_values", "values", "crow_", "ccol_"),
    *("col_indices", "row_indices", "_fw_primal", "_make_dual", "_conv_depthwise", "conv_depthwise", "slow_conv"),
    *("_slow_conv", "_convolution", "is_pinned", "_is_zerotensor", "_propagate", "_shape_as", "_nnpack", "glu_jvp"),
    *("_cslt", "_linalg_check", "_compute_linear", "hspmm", "sspaddmm", "smm", "_cufft", "_fused_moving", "int_repr"),
)
#: Ops that do not check their arguments: eager itself dies on some that their schema allows.
UNCHECKED = (
    *("_chunk_cat", "_native_batch_norm_legit.no_stats", "_transform_bias_rescale_qkv", "_weight_norm_interface"),
    *("batch_norm_backward", "native_batch_norm_backward", "_reshape_alias"),
)
#: Ops whose arguments depend on each other in ways that no shape tells.
DEPENDENT = frozenset(
    {
        *("lu_unpack", "linalg_lu_solve", "linalg_ldl_solve", "_linalg_check_errors", "ormqr", "orgqr", "geqrf"),
        *("linalg_householder_product", "_pack_padded_sequence", "_pad_packed_sequence", "batch_norm_backward_elemt"),
        *(
            "max_unpool2d",
            "max_unpool3d",
            "masked_scatter_backward",
            "_cdist_backward",
            "_pdist_backward",
            "linalg_lstsq",
            "linalg_eig",
        ),
    }
)


class Drawn(msgspec.Struct, frozen=True):
    """A call as it was drawn.

    Attributes:
        record: the call.
        values: label of its values, ``plain`` for those of the declared domains.
        layout: label of its layout, ``dense`` for the usual one.
    """

    record: CallRecord
    values: str
    layout: str


def why_not(schema: OpSchema) -> str | None:
    """Why calls of an op are not drawn, or None if they are."""
    if schema.name.startswith(UNCHECKED):
        return "eager dies on arguments that it should refuse"
    if schema.packet.startswith(FOREIGN) or stem_of(schema.name) in DEPENDENT:
        return "its arguments follow from more than their forms"
    if schema.variant not in (Variant.FUNCTIONAL, Variant.INPLACE, Variant.OUT):
        return f"it is a {schema.variant} op"
    if "generated" in schema.tags and schema.variant is not Variant.FUNCTIONAL:
        return "torch generates it from another overload"
    if is_random(schema):
        return "its results are random"
    if schema.variant is Variant.OUT and schema.functional is None:
        return "it has no functional overload"
    return _why_not_its_arguments(schema)


def _why_not_its_arguments(schema: OpSchema) -> str | None:
    try:
        arguments = overload(schema.name)._schema.arguments
        if torch._C._dispatch_has_kernel_for_dispatch_key(_qualified(schema), "CompositeImplicitAutograd"):
            return "it is made of other ops"
        for argument in arguments:
            if "Tensor" not in str(argument.type):
                scalar(argument, 1, "f32", schema.name)
    except (AttributeError, RuntimeError):
        return "this torch has no callable of it"
    except NotDrawable as exc:
        return f"nothing is known about {exc}"
    takes_tensor = any(str(argument.type) in ("Tensor", "List[Tensor]") for argument in arguments)
    return None if takes_tensor else "it takes no tensor"


def _qualified(schema: OpSchema) -> str:
    return "aten::" + schema.name.removesuffix(".default")


def calls(schema: OpSchema, dtype: str, device: str, seed: int) -> st.SearchStrategy[Drawn]:
    """Calls of an op that eager answers.

    Args:
        schema: of an op for which :func:`why_not` is None.
        dtype: of its floating tensors, or of all if it has none of its own; short form.
        device: device type.
        seed: of the values; Hypothesis draws what tells two calls apart.
    """
    return _calls(schema, dtype, device, seed)


@st.composite
def _calls(draw: Callable[[Any], Any], schema: OpSchema, dtype: str, device: str, seed: int) -> Drawn:
    call = _Forms(draw, _drawn_schema(schema), dtype, device).call()
    result = answered(call, device)
    if schema.variant is Variant.OUT:
        call = _with_out(call, schema, result, device)
    own = derive_seed(seed, schema.name, draw(st.integers(0, 255)))
    try:
        record = traced_record(call, seed=own)
    except CannotRebuild:
        reject()
    # The others have shapes of their own, which Hypothesis could not shrink.
    labels = tuple([label for label in LABELS if label not in DENSE])
    values, record = _varied(draw, value_variants, labels, "plain", record, schema, own)
    layout, record = _varied(draw, layout_variants, tuple(LAYOUTS), "dense", record, schema, own)
    return Drawn(record, values, layout)


def _drawn_schema(schema: OpSchema) -> OpSchema:
    """``out=`` overloads are drawn as their functional one, whose result says what ``out`` is."""
    return aten_schemas()[schema.functional] if schema.variant is Variant.OUT and schema.functional else schema


def _varied(
    draw: Callable[[Any], Any],
    vary: Callable[..., Any],
    labels: tuple[str, ...],
    usual: str,
    record: CallRecord,
    schema: OpSchema,
    seed: int,
) -> tuple[str, CallRecord]:
    """The record as it is, or one of its variants if it has the one that is drawn."""
    wanted = draw(st.sampled_from((*(usual,) * (len(labels) // 2), *labels)))
    for label, variant in vary(record, schema, seed) if wanted != usual else ():
        if label == wanted:
            return label, variant
    return usual, record


class _Forms:
    """The argument tree of one call, its tensors dense and on storages of their own."""

    def __init__(self, draw: Callable[[Any], Any], schema: OpSchema, dtype: str, device: str) -> None:
        self._draw = draw
        self._schema = schema
        self._dtype = dtype
        self._device = device
        self._sizes = Sizes(draw, schema)
        self._storages = 0
        self._rank: int | None = None
        self._tensors_in_list: int | None = None
        self._stem = stem_of(schema.name)

    def call(self) -> TracedCall:
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        for argument in overload(self._schema.name)._schema.arguments:
            if argument.kwarg_only and argument.has_default_value() and self._draw(st.booleans()) is False:
                continue
            try:
                value = self._value(argument)
            except NotDrawable:
                reject()
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return TracedCall(op=self._schema.name, args=tuple(args), kwargs=kwargs)

    def _value(self, argument: torch._C.Argument) -> Value:
        kind = str(argument.type)
        if kind == "Optional[Tensor]":
            given = argument.name in GIVEN or self._draw(st.booleans())
            return self._tensor(argument.name) if given else None
        if kind == "Tensor":
            return self._tensor(argument.name)
        if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
            if self._tensors_in_list is None:
                self._tensors_in_list = self._draw(st.integers(1, 3))
            items = [self._tensor(argument.name) for _ in range(self._tensors_in_list)]
            return SequenceValue(tuple(items), is_tuple=False)
        if "Tensor" in kind:
            return default(argument)
        tied = self._sizes.tied(argument.name)
        if tied is not None and "int" in kind:
            return SequenceValue(tied, is_tuple=False) if "List" in kind else tied[0]
        rank = len(self._sizes.common) if self._rank is None else self._rank
        return self._draw(scalar(argument, rank, self._dtype, self._schema.name))  # type: ignore[no-any-return]

    def _tensor(self, name: str) -> TensorValue:
        shape = self._sizes.shape(name)
        if self._rank is None:
            self._rank = len(shape)
        number, self._storages = self._storages, self._storages + 1
        return _dense(number, self._dtype_of(name, number), shape, self._device)

    def _dtype_of(self, name: str, number: int) -> str:
        if name in MASKS:
            return "b8"
        if name in INDEX_RULES.get(self._stem, {}):
            return "i64"
        ranged = name in VALUE_RULES.get(self._stem, {})
        if number and is_elementwise(self._schema) and not ranged and self._draw(st.integers(0, 9)) == 9:
            return self._draw(st.sampled_from(PROMOTED))  # type: ignore[no-any-return]
        return self._dtype


def _dense(storage: int, dtype: str, shape: tuple[int, ...], device: str) -> TensorValue:
    return TensorValue(storage, dtype, shape, dense_strides(shape), 0, device)


def _with_out(call: TracedCall, schema: OpSchema, result: Any, device: str) -> TracedCall:
    """The call of the ``out=`` overload whose results go where they fit exactly."""
    outs_of_schema = [argument for argument in overload(schema.name)._schema.arguments if argument.is_out]
    names = [argument.name for argument in outs_of_schema if str(argument.type) == "Tensor"]
    leaves = tree_leaves(result)
    if not len(leaves) == len(names) == len(outs_of_schema) or not all(
        isinstance(leaf, torch.Tensor) for leaf in leaves
    ):
        reject()
    first = len(tensor_values((*call.args, *call.kwargs.values())))
    outs = {
        name: _dense(first + n, _DTYPE_NAMES[leaf.dtype], tuple(leaf.shape), device)
        for n, (name, leaf) in enumerate(zip(names, leaves, strict=True))
    }
    return TracedCall(op=schema.name, args=call.args, kwargs={**call.kwargs, **outs})


# ---------------------------------------------------------------- does eager answer?


def answered(call: TracedCall, device: str) -> Any:
    """What eager answers on stand-ins; a call that it refuses is rejected.

    Stand-ins have the call's dtypes, shapes and strides, and hold values that are valid for any
    argument: ones (as a matrix, the identity), and zeros where they are whole numbers.
    """
    args = [_stand_in(value, call.op, device) for value in call.args]
    kwargs = {name: _stand_in(value, call.op, device) for name, value in call.kwargs.items()}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return overload(call.op)(*args, **kwargs)
    except Exception:  # noqa: BLE001 - eager refuses in any way it likes
        reject()


def _stand_in(value: Value, op: str, device: str) -> Any:
    if isinstance(value, TensorValue):
        return _form(value, device, as_matrix=_takes_matrices(op))
    if isinstance(value, SequenceValue):
        items = [_stand_in(item, op, device) for item in value.items]
        return tuple(items) if value.is_tuple else items
    if isinstance(value, NamedValue):
        return getattr(torch, value.name)
    return value


@functools.cache
def _takes_matrices(op: str) -> bool:
    return any(isinstance(rule, Definite) for rule in VALUE_RULES.get(stem_of(op), {}).values())


def _form(value: TensorValue, device: str, *, as_matrix: bool) -> torch.Tensor:
    dtype = torch_dtype(value.dtype)
    memory = torch.zeros(extent(value.shape, value.strides, value.offset), dtype=dtype, device=device)
    tensor = memory.as_strided(value.shape, value.strides, value.offset)
    if dtype.is_floating_point or dtype.is_complex:
        if as_matrix and len(value.shape) > 1:
            tensor.diagonal(dim1=-2, dim2=-1).fill_(1)
        else:
            tensor.fill_(1)
    return tensor
