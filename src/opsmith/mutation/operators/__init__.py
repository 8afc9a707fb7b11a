"""Mutation operators: each makes one mistake that people and language models make in kernels.

An operator is a generator over the nodes of a source's syntax tree. It yields what could stand in a node's place.
"""

from __future__ import annotations

from opsmith.mutation.operators.operator import REGISTERED, Family, Operator

__all__ = ["Family", "Operator", "all_operators"]


def all_operators() -> tuple[Operator, ...]:
    """Every operator, by family."""
    from opsmith.mutation.operators import (  # noqa: F401 - importing a module registers its operators
        arguments,
        arithmetic,
        comparisons,
        constants,
        functions,
        masks,
        memory,
        order,
        precision,
        results,
        sizes,
        statements,
    )

    return tuple(sorted(REGISTERED.values(), key=lambda each: (list(Family).index(each.family), each.name)))
