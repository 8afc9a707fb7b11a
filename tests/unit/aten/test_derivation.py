"""An ``out=`` overload that a functional kernel answers refuses the destinations that eager refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

from opsmith.aten.derivation import DerivedKernel, derived_exactly

aten = torch.ops.aten
INDEX = torch.tensor([[0, 2, 1], [2, 1, 0]])

#: Variant, functional overload, and the arguments that one tensor ``[2, 3]`` makes.
Case: TypeAlias = tuple[Any, Any, Callable[[Tensor], tuple[Any, ...]], Callable[[Tensor], dict[str, Any]]]
REFUSED: dict[str, Case] = {
    "reads what it gathers into": (
        aten.gather.out,
        aten.gather.default,
        lambda x: (x, 1, INDEX),
        lambda x: {"out": x},
    ),
    "joins what it writes to": (aten.cat.out, aten.cat.default, lambda x: ([x],), lambda x: {"out": x}),
    "writes one element several times": (
        aten.index_select.out,
        aten.index_select.default,
        lambda x: (x, 1, torch.tensor([1])),
        lambda _: {"out": torch.zeros(1, 1).expand(2, 1)},
    ),
    "reads a part of what it writes": (
        aten.add.out,
        aten.add.Tensor,
        lambda x: (x.view(-1)[:4], 1.0),
        lambda x: {"out": x.view(-1)[2:]},
    ),
    "grows into what it reads": (
        aten.gather.out,
        aten.gather.default,
        lambda x: (x, 1, INDEX.view(-1)[2:].view(2, 2)),
        lambda _: {"out": INDEX.view(-1)[:1]},
    ),
    "has a wider destination": (
        aten.gather.out,
        aten.gather.default,
        lambda x: (x, 1, INDEX),
        lambda x: {"out": x.double()},
    ),
    "has a wider second destination": (
        aten.aminmax.out,
        aten.aminmax.default,
        lambda x: (x,),
        lambda x: {"dim": 1, "min": x[:, 0].clone(), "max": x[:, 0].double()},
    ),
}
ANSWERED: dict[str, Case] = {
    "joins nothing in nothing": (
        aten.cat.out,
        aten.cat.default,
        lambda _: ([torch.empty(0), torch.empty(0)],),
        lambda _: {"out": torch.empty(0)},
    ),
    "adds to itself": (aten.add.out, aten.add.Tensor, lambda x: (x, x), lambda x: {"out": x}),
    "adds a product to what it writes": (
        aten.addmm.out,
        aten.addmm.default,
        lambda x: (x, torch.ones(2, 2), torch.ones(2, 3)),
        lambda x: {"out": x},
    ),
    "adds into another view of itself": (
        aten.add.out,
        aten.add.Tensor,
        lambda x: (x, 1.0),
        lambda x: {"out": x.view(3, 2).view(2, 3)},
    ),
    "adds into a wider type": (aten.add.out, aten.add.Tensor, lambda x: (x, x), lambda x: {"out": x.double()}),
    "joins into a wider type": (
        aten.cat.out,
        aten.cat.default,
        lambda x: ([x, x],),
        lambda _: {"out": torch.empty(4, 3).double()},
    ),
    "sums into a wider type": (
        aten.sum.IntList_out,
        aten.sum.dim_IntList,
        lambda x: (x, [1]),
        lambda _: {"out": torch.empty(2).double()},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_eager_refuses_is_refused_before_anything_is_written(case: str) -> None:
    """Copying the functional result would give an answer where eager has none."""
    variant, functional, args, kwargs = REFUSED[case]
    derived = DerivedKernel(functional, variant, functional), derived_exactly(functional, variant, functional)
    for call in (variant, *derived):
        x = torch.arange(6.0).view(2, 3)
        with pytest.raises(RuntimeError):
            call(*args(x), **kwargs(x))
        assert torch.equal(torch.arange(6.0).view(2, 3), x)


@pytest.mark.parametrize("case", ANSWERED)
def test_what_eager_answers_is_answered(case: str) -> None:
    """A destination may be an argument of an elementwise op, and wider where eager casts."""
    variant, functional, args, kwargs = ANSWERED[case]
    x, y = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    expected = variant(*args(x), **kwargs(x))
    got = DerivedKernel(functional, variant, functional)(*args(y), **kwargs(y))
    assert expected.dtype is got.dtype
    assert torch.equal(expected, got)
