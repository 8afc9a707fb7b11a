"""Three backends that compute nothing: every result is zeros, ones or the first argument.

Each answers every overload. The real op runs on copies of the arguments, only to learn what the
result should look like (structure, dtypes, shapes, strides, which arguments it returns); then all
values are replaced. Arguments that the op writes to, in place or as ``out=``, receive the trivial
value as well.

::

    opsmith run --suite opinfo --backend tests.trivial.kernels:zeros --dtype bf16 --timing off
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.schemas import overload

#: Fills a tensor of the right form, in place. Arguments: the tensor, the leaf to fill it from or None.
Fill = Callable[[torch.Tensor, torch.Tensor | None], object]


def _fill_zeros(form: torch.Tensor, _first: torch.Tensor | None) -> None:
    form.zero_()


def _fill_ones(form: torch.Tensor, _first: torch.Tensor | None) -> None:
    form.fill_(1)


def _fill_first(form: torch.Tensor, first: torch.Tensor | None) -> None:
    """Copy ``first``: reshaped, broadcast or repeated and cut, whichever the shapes allow first."""
    if first is None:
        raise NotImplementedError("there is no tensor among the arguments")
    if first is form:
        return
    if first.numel() == 0:
        form.zero_()
        return
    source = first.real if first.is_complex() and not form.is_complex() else first
    if source.numel() == form.numel():
        form.copy_(source.reshape(form.shape))
        return
    try:
        form.copy_(source.expand(form.shape))
    except RuntimeError:
        form.copy_(source.flatten().repeat(form.numel() // source.numel() + 1)[: form.numel()].view(form.shape))


def _kernel(fill: Fill, op: str) -> Callable[..., Any]:
    """The trivial kernel of one overload."""
    called = overload(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        own_args, own_kwargs = _copied((args, kwargs))
        result = called(*own_args, **own_kwargs)
        written: dict[int, torch.Tensor] = {}
        sources = _first_argument((args, kwargs))
        for destination, own in _written(called, (args, kwargs), (own_args, own_kwargs)):
            if destination.shape != own.shape:
                destination.resize_(own.shape)
            fill(destination, next(sources))
            written[id(own)] = destination
        sources = _first_argument((args, kwargs))

        def answer(leaf: Any) -> Any:
            source = next(sources)
            if id(leaf) in written:
                return written[id(leaf)]
            if not isinstance(leaf, torch.Tensor):
                return _number(fill, leaf, source)
            # A view that is its first argument can be returned as it is.
            if called.is_view and fill is _fill_first and source is not None and source.shape == leaf.shape:
                return source
            return _filled(fill, leaf, source)

        return tree_map(answer, result)

    return kernel


def _copied(tree: Any) -> Any:
    """A copy of the arguments that keeps strides and shared memory."""
    memo: dict[int, Any] = {}
    return tree_map(lambda leaf: copy.deepcopy(leaf, memo) if isinstance(leaf, torch.Tensor) else leaf, tree)


def _first_argument(tree: Any) -> Iterator[torch.Tensor | None]:
    """The first tensor argument over and over, of a list of tensors one after the other; None where there is none."""
    arguments = [*tree[0], *tree[1].values()]
    for argument in arguments:
        tensors = [leaf for leaf in tree_leaves(argument) if isinstance(leaf, torch.Tensor)]
        if tensors:
            return itertools.cycle(tensors)
    return itertools.repeat(None)


def _written(called: torch._ops.OpOverload, tree: Any, own: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors that the schema says are written, each with its copy after the call."""
    for position, argument in enumerate(called._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        values = [
            arguments[position] if position < len(arguments) else keywords.get(argument.name)
            for arguments, keywords in (tree, own)
        ]
        pairs = zip(*map(tree_leaves, values), strict=True)
        yield from (pair for pair in pairs if isinstance(pair[0], torch.Tensor))


def _filled(fill: Fill, form: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
    if form.layout is not torch.strided:
        return form
    made = torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=form.device)
    fill(made, source)
    return made


def _number(fill: Fill, leaf: Any, source: torch.Tensor | None) -> Any:
    """A result that is a Python number; anything else that is no tensor stays as it is."""
    if not isinstance(leaf, (bool, int, float, complex)):
        return leaf
    dtype = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}[type(leaf)]
    made = torch.empty((), dtype=dtype)
    fill(made, source)
    return made.item()


zeros = functools.partial(_kernel, _fill_zeros)
ones = functools.partial(_kernel, _fill_ones)
first_argument = functools.partial(_kernel, _fill_first)
