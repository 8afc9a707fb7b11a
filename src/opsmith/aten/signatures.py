"""What overloads of an op have in common: their signature without how they hand back the result.

``add.Tensor``, ``add_.Tensor`` and ``add.out`` have one signature. It is that of ``torchgen.model.FunctionSchema`` in
torch's code generator, read from the schemas that torch has in memory. torchgen parses text, for eight times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from opsmith.core.op import Variant

_Schema = torch._C.FunctionSchema

#: Python's operators that have an in-place form: ``__iadd__``.
_AUGMENTED = frozenset({"add", "sub", "mul", "div", "mod", "pow", "lshift", "rshift", "and", "xor", "or"})
#: What ``out=`` overloads of factory functions take from their ``out``.
_TENSOR_OPTIONS = ["dtype", "layout", "device", "pin_memory"]


class Taken(NamedTuple):
    """An argument: its name, its type, and the length of a list that one number may stand for."""

    name: str
    type: str
    length: int | None


class Signature(NamedTuple):
    """Equal for the overloads of a group.

    Attributes:
        base: the op's name without what says that it works in place.
        is_operator: the name is one of Python's, as ``__and__``.
        positional: the arguments.
        keyword: those that are given by name only, without ``out=`` and the options of new tensors.
        returns: types; a result for each argument that is written to is among them.
    """

    base: str
    is_operator: bool
    positional: tuple[Taken, ...]
    keyword: tuple[Taken, ...]
    returns: tuple[str, ...]

    @property
    def is_of_copy(self) -> bool:
        """Whether it is that of an op that copies what another one views."""
        return self.base.endswith("_copy")

    def of_view(self) -> Signature:
        """That of the view that an op copies."""
        return self._replace(base=self.base.replace("_copy", "")) if self.is_of_copy else self

    def __str__(self) -> str:
        """As a schema without names of results."""
        taken = [f"{each.type} {each.name}" for each in self.positional]
        if self.keyword:
            taken += ["*", *(f"{each.type} {each.name}" for each in self.keyword)]
        returns = self.returns[0] if len(self.returns) == 1 else f"({', '.join(self.returns)})"
        name = f"__{self.base}__" if self.is_operator else self.base
        return f"{name}({', '.join(taken)}) -> {returns}"


def read(schema: _Schema) -> tuple[Variant, Signature]:
    """How an overload hands back its result, and its signature.

    Args:
        schema: of an overload that the dispatcher knows.
    """
    base, is_operator, is_inplace = _named(schema.name.partition("::")[2])
    positional = [each for each in schema.arguments if not each.kwarg_only]
    out = [each for each in schema.arguments if each.kwarg_only and _is_written(each)]
    keyword = [each for each in schema.arguments if each.kwarg_only and not _is_written(each)]
    behind_self = positional
    if own := [place for place, each in enumerate(positional) if each.name == "self"]:
        behind_self = positional[own[0] + 1 :]
    if is_inplace:
        variant = Variant.INPLACE
    elif out:
        variant = Variant.MUTABLE if any(each.name.startswith("_scratch_") for each in out) else Variant.OUT
    elif any(map(_is_written, behind_self)):
        variant = Variant.MUTABLE
    elif any(each.alias_info is not None and not _is_written(each) for each in schema.returns):
        variant = Variant.VIEW
    else:
        variant = Variant.FUNCTIONAL
    written = [each for each in (*(positional[place] for place in own), *out, *behind_self) if _is_written(each)]
    returned = {_memory(each) for each in schema.returns}
    returns = (*schema.returns, *(each for each in written if _memory(each) not in returned))
    types = tuple([str(each.type) for each in returns])
    return variant, Signature(base, is_operator, (*_taken(positional),), (*_taken(_without_options(keyword)),), types)


def _named(packet: str) -> tuple[str, bool, bool]:
    """Base, whether it is an operator of Python's, and whether it works in place."""
    if operator := re.fullmatch("__([^_]+)__", packet):
        name = operator[1]
        if name[0] == "i" and name[1:] in _AUGMENTED:
            return name[1:], True, True
        return name, True, False
    is_inplace = packet.endswith("_")
    return packet.removesuffix("_").removesuffix("_functional"), False, is_inplace


def _is_written(argument: torch._C.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _memory(argument: torch._C.Argument) -> frozenset[str] | None:
    return frozenset(argument.alias_info.before_set) if argument.alias_info is not None else None


def _without_options(keyword: list[torch._C.Argument]) -> list[torch._C.Argument]:
    names = [each.name for each in keyword]
    count = len(_TENSOR_OPTIONS)
    for place in range(len(names) - count + 1):
        if names[place : place + count] == _TENSOR_OPTIONS:
            return keyword[:place] + keyword[place + count :]
    return keyword


def _taken(arguments: Sequence[torch._C.Argument]) -> Iterator[Taken]:
    for each in arguments:
        yield Taken(each.name, str(each.type), each.N)  # type: ignore[attr-defined]
