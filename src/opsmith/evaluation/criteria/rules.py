"""Which comparison judges which op: one table, looked up by name and never by the kernel.

All variants of a packet (functional, in-place, ``out=``, ``_copy`` of a view, ``_foreach_``) share
one row: :func:`stem_of` takes the decoration off. What the table does not name is ``value``, which
is exact on integers and bools; a view is ``view``. Randomness
has a row of its own, because torch's tag ``nondeterministic_seeded`` also marks backward ops that
replay a given state and recurrent ones that are random only between their layers; arguments such
as ``train=False`` switch it off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from opsmith.aten.schemas import group_tags
from opsmith.aten.unrounded import COPYING, KEEPING_SIGNS
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.tasks.collectives import MOVES

#: Draws that a two-sample test wants pooled, and how many executions it may ask for.
POOLED_DRAWS = 4096
FEWEST_DRAWS, MOST_DRAWS = 8, 256
#: Draws of an op whose elements depend on each other, so that pooling them says little.
DEPENDENT_DRAWS = 64


@dataclass(frozen=True, kw_only=True)
class ComparisonRule:
    """How the results of one call are compared.

    Attributes:
        kind: the comparison that decides: value, exact, metadata, distribution, indices,
            factorisation, placement, view or ignore.
        stem: the op's packet without decoration.
        roles: the kind of each result in order.
        rest: the kind of results beyond ``roles``, written inputs for example.
        dependent: the random elements of one execution depend on each other.
        keeps_signs: of an exact result, a zero has eager's sign.
    """

    kind: str
    stem: str
    roles: tuple[str, ...] = ()
    rest: str = "value"
    dependent: bool = False
    keeps_signs: bool = False

    def role(self, index: int) -> str:
        """The kind of result ``index``."""
        return self.roles[index] if index < len(self.roles) else self.rest

    def repeats(self, elements: int) -> int:
        """How many executions a comparison needs whose random results have ``elements`` elements.

        Where it needs several, the last one begins with the random state of the first.
        """
        if self.kind != "distribution":
            return 1
        fewest = DEPENDENT_DRAWS if self.dependent else FEWEST_DRAWS
        return min(max(math.ceil(POOLED_DRAWS / max(elements, 1)), fewest), MOST_DRAWS) + 1


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


METADATA = _names("""
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided empty_quantized resize resize_as
    _resize_output _empty_affine_quantized _empty_per_channel_affine_quantized
""")

#: Copies of values to places that indices may name more than once.
PLACEMENT = _names("max_unpool2d max_unpool3d")

#: Copies when they place a value, sums when they accumulate: decided by the overload or an argument.
PLACING = {"scatter": "reduce", "index_put": "accumulate", "put": "accumulate", "_index_put_impl": "accumulate"}

DISTRIBUTION = _names("""
    native_dropout _fused_dropout dropout alpha_dropout feature_dropout feature_alpha_dropout rrelu
    rrelu_with_noise rrelu_with_noise_functional bernoulli normal normal_functional uniform random randint
    randint_like rand rand_like randn randn_like randperm multinomial exponential cauchy log_normal geometric
    poisson binomial _standard_gamma _sample_dirichlet
""")

#: Random ops whose elements depend on each other within one execution.
DEPENDENT = _names("""
    randperm multinomial _sample_dirichlet feature_dropout feature_alpha_dropout scaled_dot_product_attention
    _scaled_dot_product_attention_math _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
    _scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable
    _flash_attention_forward _efficient_attention_forward _cudnn_attention_forward
""")

INDICES = {
    "sort": ("exact", "indices"),
    "topk": ("exact", "indices"),
    "kthvalue": ("exact", "indices"),
    "mode": ("exact", "indices"),
    "median": ("exact", "indices"),
    "nanmedian": ("exact", "indices"),
    "max": ("exact", "indices"),
    "min": ("exact", "indices"),
    "cummax": ("exact", "indices"),
    "cummin": ("exact", "indices"),
    "argsort": ("indices",),
    "argmax": ("indices",),
    "argmin": ("indices",),
    "max_pool2d_with_indices": ("exact", "indices"),
    "max_pool3d_with_indices": ("exact", "indices"),
    "adaptive_max_pool2d": ("exact", "indices"),
    "adaptive_max_pool3d": ("exact", "indices"),
    "fractional_max_pool2d": ("exact", "indices"),
    "fractional_max_pool3d": ("exact", "indices"),
}

FACTORISATION = _names("""
    _linalg_svd _linalg_eigh linalg_eig linalg_eigvals _linalg_eigvals linalg_qr linalg_lu linalg_lu_factor
    linalg_lu_factor_ex _linalg_det _linalg_slogdet _linalg_solve_ex _lu_with_info
""")

#: Results that no caller may read: reserves, workspaces, random generator states, debug masks.
_FLASH = ("value", "value", "exact", "exact", "exact", "exact", "ignore", "ignore", "ignore")
ROLES = {
    "_scaled_dot_product_flash_attention": _FLASH,
    "_scaled_dot_product_cudnn_attention": _FLASH,
    "_scaled_dot_product_fused_attention_overrideable": _FLASH,
    "_scaled_dot_product_efficient_attention": ("value", "value", "ignore", "ignore"),
    "_flash_attention_forward": ("value", "value", "ignore", "ignore", "ignore"),
    "_efficient_attention_forward": ("value", "value", "ignore", "ignore", "exact", "exact"),
    "_cudnn_attention_forward": _FLASH,
    "_scaled_dot_product_attention_math": ("value", "value"),
    "_batch_norm_with_update": ("value", "value", "value", "ignore"),
    "_batch_norm_no_update": ("value", "value", "value", "ignore"),
    "cudnn_batch_norm": ("value", "value", "value", "ignore"),
    "_cudnn_rnn": ("value", "value", "value", "ignore", "ignore"),
    "miopen_rnn": ("value", "value", "value", "ignore", "ignore"),
    "mkldnn_rnn_layer": ("value", "value", "value", "ignore"),
    "_thnn_fused_lstm_cell": ("value", "value", "ignore"),
    "_thnn_fused_gru_cell": ("value", "ignore"),
    "_ctc_loss": ("value", "ignore"),
}


def stem_of(schema: OpSchema) -> str:
    """The packet of an overload without what marks its variant.

    ``add_.Tensor``, ``add.out`` and ``_foreach_add_.List`` are all ``add``; ``permute_copy`` is
    ``permute``; ``__iand__`` stays.
    """
    stem = schema.packet.removeprefix("_foreach_")
    if stem.endswith("_") and not stem.endswith("__"):
        stem = stem[:-1]
    shorter = stem.removesuffix("_copy")
    return shorter if shorter in COPYING else stem


#: Ops that take their tensors element by element, though torch does not tag them so.
_UNTAGGED = _names("hardswish log_sigmoid_forward _prelu_kernel glu")


def is_elementwise(schema: OpSchema, stem: str) -> bool:
    """Whether each element of the result is made of one element of each tensor."""
    return stem in _UNTAGGED or "pointwise" in group_tags(schema)


def rule_for(schema: OpSchema, call: JudgedCall | None = None) -> ComparisonRule:
    """The rule of an op; with ``call``, of these arguments, which may switch randomness off."""
    rule = _static_rule(schema)
    if call is None or rule.stem not in _BY_ARGUMENT:
        return rule
    arguments = call.bound()
    if rule.kind == "distribution":
        random = not any(arguments.get(name) == value for name, values in _NOT_RANDOM for value in values)
        return rule if random else ComparisonRule(kind="value", stem=rule.stem, roles=ROLES.get(rule.stem, ()))
    accumulates = bool(arguments.get(PLACING.get(rule.stem, "")))
    return ComparisonRule(kind="value", stem=rule.stem) if accumulates else rule


#: Arguments that make a random op deterministic.
_NOT_RANDOM = (("dropout_p", (0.0,)), ("train", (False,)), ("training", (False,)))
ATTENTION = frozenset(name for name in DEPENDENT if "attention" in name)
_BY_ARGUMENT = (
    ATTENTION
    | PLACING.keys()
    | _names("native_dropout dropout alpha_dropout feature_dropout rrelu")
    | (_names("feature_alpha_dropout rrelu_with_noise rrelu_with_noise_functional"))
)


@cache
def _static_rule(schema: OpSchema) -> ComparisonRule:
    if schema.kind.of_problems:
        return ComparisonRule(kind="value", stem="module")
    if schema.kind is TaskKind.COLLECTIVE:
        kind = "exact" if schema.name in MOVES else "value"
        return ComparisonRule(kind=kind, stem="collective", rest=kind)
    stem = stem_of(schema)
    if stem in METADATA:
        return ComparisonRule(kind="metadata", stem=stem, rest="metadata")
    if stem in DISTRIBUTION or stem in ATTENTION:
        return _random_rule(stem)
    if stem in INDICES and _returns_indices(schema, stem):
        return ComparisonRule(kind="indices", stem=stem, roles=INDICES[stem])
    if stem in FACTORISATION:
        return ComparisonRule(kind="factorisation", stem=stem)
    if stem in ROLES:
        return ComparisonRule(kind="value", stem=stem, roles=ROLES[stem])
    if schema.variant is Variant.VIEW:
        return ComparisonRule(kind="view", stem=stem, rest="view")
    if stem in COPYING | PLACEMENT or stem in PLACING or stem in INDICES:
        kind = "placement" if stem in PLACEMENT else "exact"
        return ComparisonRule(kind=kind, stem=stem, rest="exact", keeps_signs=stem in KEEPING_SIGNS)
    return ComparisonRule(kind="value", stem=stem)


def _random_rule(stem: str) -> ComparisonRule:
    roles = ROLES.get(stem)
    if roles is not None:
        roles = ("distribution", *("ignore" for _ in roles[1:]))
    return ComparisonRule(
        kind="distribution", stem=stem, roles=roles or (), rest="distribution", dependent=stem in DEPENDENT
    )


def _returns_indices(schema: OpSchema, stem: str) -> bool:
    """``max.dim`` returns values and indices; ``max.default`` and ``max.other`` only values."""
    return schema.schema.rpartition("->")[2].count("Tensor") == len(INDICES[stem])
