"""What a mutation operator is."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias


class Family(enum.StrEnum):
    """What kind of mistake it is."""

    BOUNDS = "bounds"
    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    CONSTANT = "constant"
    FUNCTION = "function"
    ARGUMENT = "argument"
    PRECISION = "precision"
    SPECIAL_VALUE = "special value"
    ORDER = "order"
    MEMORY = "memory"
    SIZE = "size"
    STATEMENT = "statement"


#: Yields what could stand in a node's place; nothing where the operator does not apply.
Rewrite: TypeAlias = Callable[[ast.AST], Iterator[ast.AST]]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A mutation operator.

    Attributes:
        name: in records and on the command line.
        family: the kind of mistake.
        says: the mistake in a few words.
        rewrite: makes it.
        no_fault_in: dtypes, by short name, whose kernels may do so.
    """

    name: str
    family: Family
    says: str
    rewrite: Rewrite
    no_fault_in: tuple[str, ...] = ()


REGISTERED: dict[str, Operator] = {}


def operator(family: Family, says: str, *, no_fault_in: tuple[str, ...] = ()) -> Callable[[Rewrite], Rewrite]:
    """Register a function as the operator of its name."""

    def register(rewrite: Rewrite) -> Rewrite:
        name = rewrite.__name__
        assert name not in REGISTERED, name
        REGISTERED[name] = Operator(name=name, family=family, says=says, rewrite=rewrite, no_fault_in=no_fault_in)
        return rewrite

    return register
