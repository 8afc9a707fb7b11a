"""Ops that are never overridden, and why."""

from __future__ import annotations

from opsmith.core.op import OpSchema, Variant

#: The argument of attention by which it drops weights at random; 0 at inference and in most training.
DROPOUT = "dropout_p"

#: Packets that get memory, or that of an argument, and compute nothing.
_MEMORY = frozenset(
    {
        *("empty", "empty_strided", "empty_permuted", "empty_like", "new_empty", "new_empty_strided"),
        *("resize", "resize_as"),
        *("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes"),
    }
)

#: Why an overload is left to PyTorch, in the order in which the rules are tried.
REASONS = {
    "view": "its result shares memory with an argument, of which autograd has to know",
    "random": "it draws from torch's generator, whose numbers a model's seed has to fix",
    "creation": "it takes no tensor: no dispatch key tells whose it is",
    "metadata": "it computes no tensor",
    "memory": "it asks for memory, or for that of an argument, and has nothing written to it",
    "forwarded": "PyTorch makes a call of another overload of it, which is overridden",
}


def why_excluded(schema: OpSchema) -> str | None:
    """The key in :data:`REASONS` for which an overload is never overridden, or None."""
    arguments, _, returns = schema.schema.partition(" -> ")
    if schema.variant is Variant.VIEW or "inplace_view" in schema.tags:
        return "view"
    # Whether an op with this argument draws is told by each call.
    draws = "nondeterministic_seeded" in schema.tags and f"float {DROPOUT}" not in arguments
    if draws or "Generator?" in arguments:
        return "random"
    if "Tensor" not in arguments:
        return "creation"
    if "Tensor" not in returns and schema.variant is Variant.FUNCTIONAL:
        return "metadata"
    if schema.packet in _MEMORY:
        return "memory"
    if schema.packet == "lift_fresh_copy" or schema.name.endswith(".vec"):
        return "forwarded"
    return None
