"""A functional kernel and a copy do what eager's in-place and out= overloads do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.derivation import DerivedKernel
from opsmith.aten.schemas import aten_schemas, overload

X = torch.linspace(-2, 2, 12).reshape(3, 4)
Y = torch.linspace(3, -1, 12).reshape(3, 4)


def derived(op: str, kernel: Any = None) -> DerivedKernel:
    """The variant ``op`` on top of eager's functional overload, or of ``kernel``."""
    functional = aten_schemas()[op].functional
    assert functional is not None
    return DerivedKernel(kernel or overload(functional), overload(op), overload(functional))


CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("relu_.default", (X,), {}),
    ("add_.Tensor", (X, Y), {"alpha": 2}),
    ("lt_.Tensor", (X, Y), {}),
    ("index_put_.default", (X, [torch.tensor([0, 2])], Y[:2]), {"accumulate": True}),
    ("cumsum_.default", (X, 1), {}),
    ("_foreach_add_.Scalar", ([X, Y], 2), {}),
    ("add.out", (X, Y), {"out": torch.empty(3, 4)}),
    ("add.out", (X, Y), {"out": torch.empty(4, 3).t()}),
    ("add.out", (X.t(), Y.t()), {"out": torch.empty(0)}),
    ("add.out", (X, Y), {"alpha": 3, "out": torch.empty(3, 4, dtype=torch.float64)}),
    ("cat.out", ([X, Y], 1), {"out": torch.empty(3, 8)}),
    ("sum.IntList_out", (X, [1], True), {"out": torch.empty(3, 1)}),
    ("max.dim_max", (X, 1), {"max": torch.empty(0), "max_values": torch.empty(0, dtype=torch.int64)}),
    ("native_layer_norm.out", (X, [4], None, None, 1e-5), {name: torch.empty(0) for name in ("out0", "out1", "out2")}),
    (
        "_native_batch_norm_legit.out",
        (X, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5),
        {name: torch.empty(0) for name in ("out", "save_mean", "save_invstd")},
    ),
    ("split_copy.Tensor_out", (X, 2, 1), {"out": [torch.empty(3, 2), torch.empty(3, 2)]}),
    ("arange.start_out", (1, 7, 2), {"out": torch.empty(3, dtype=torch.int32)}),
    ("zeros.out", ([2, 3],), {"out": torch.ones(2, 3, dtype=torch.float64)}),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), CASES, ids=[f"{op}-{i}" for i, (op, _, _) in enumerate(CASES)])
def test_a_derived_variant_does_what_eager_does(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Equal results, equal arguments afterwards, and the very tensors that were given come back."""

    def copied(value: Any) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value

    eager_call, own_call = tree_map(copied, (args, kwargs)), tree_map(copied, (args, kwargs))
    expected = overload(op)(*eager_call[0], **eager_call[1])
    actual = derived(op)(*own_call[0], **own_call[1])
    for wanted, got in zip(tree_leaves((expected, eager_call)), tree_leaves((actual, own_call)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        if isinstance(wanted, torch.Tensor):
            assert wanted.stride() == got.stride()
    given = {id(leaf) for leaf in tree_leaves(own_call)}
    assert all(id(leaf) in given for leaf in tree_leaves(actual) if isinstance(leaf, torch.Tensor))


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "message"),
    [
        ("add_.Tensor", (X.long(), Y), {}, "cannot be cast to the torch.int64 of self"),
        ("add_.Tensor", (torch.ones(3), torch.ones(2, 3)), {}, r"of shape \[2, 3\] does not fit self of shape \[3\]"),
        ("add.out", (X, Y), {"out": torch.empty(3, 4, dtype=torch.int32)}, "cannot be cast to the torch.int32 of out"),
        ("add.out", (X, Y), {"out": torch.empty(3, 4, device="meta")}, "cannot be written to out on meta"),
        ("relu_.default", (torch.ones(1).expand(3),), {}, "single memory location"),
    ],
)
def test_what_eager_refuses_is_refused(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    """A destination that cannot hold the result raises, in eager and here."""
    with pytest.raises(RuntimeError):
        overload(op)(*args, **kwargs)
    with pytest.raises(RuntimeError, match=message):
        derived(op)(*args, **kwargs)


def test_a_refused_call_writes_nothing() -> None:
    """All destinations are checked before the first one is written."""
    values, indices = torch.full((3,), 9.0), torch.ones(3, dtype=torch.bool)
    with pytest.raises(RuntimeError, match=r"cannot be cast to the torch.bool of max_values"):
        derived("max.dim_max")(X, 1, max=values, max_values=indices)
    assert [9.0] * 3 == values.tolist()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returned a NoneType where out needs a tensor"),
        ((X, X), "returned 2 results where out needs a tensor"),
    ],
)
def test_a_kernel_of_the_wrong_structure_is_told(result: Any, message: str) -> None:
    """Not a shape error somewhere in a copy."""
    with pytest.raises(TypeError, match=message):
        derived("relu.out", lambda *_: result)(X, out=torch.empty(3, 4))


def test_a_kernel_with_too_few_results_is_told() -> None:
    """The schema says how many there are."""
    with pytest.raises(TypeError, match="returned a Tensor; its schema has 2 results"):
        derived("max.dim_max", lambda x, *_: x)(X, 1, max=torch.empty(0), max_values=torch.empty(0).long())


def test_every_variant_of_aten_can_be_paired_with_its_functional_overload() -> None:
    """The schemas of this torch hold no pair whose results and written arguments do not match."""
    for schema in aten_schemas().values():
        if schema.functional is not None and "inplace_view" not in schema.tags:
            pair = derived(schema.name)
            assert pair._result_count == len(pair._written), schema.name
