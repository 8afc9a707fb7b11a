"""What a rule is: it says which values an argument of a call may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from opsmith.core.domains import Domain
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall

#: Looks at the call: its shapes and scalars decide.
Rule: TypeAlias = Callable[[BoundCall, ArgumentSlot], Domain]
#: Argument name -> its domain, or the rule that tells it.
Rules: TypeAlias = Mapping[str, Domain | Rule]


def for_each(names: str, rules: Rules) -> dict[str, Rules]:
    """The same rules for several ops, by their packets without what marks a variant."""
    return dict.fromkeys(names.split(), rules)
