"""Views, new memory and numbers read from tensors: the same sizes, strides, places and errors as eager's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import eager, kernel, ops_of
from torch import Tensor

import opsmith
from opsmith.aten.schemas import aten_schemas
from opsmith.dispatch.exclusions import REASONS, why_excluded
from opsmith.kernels.views.strided_views import View, expanded, reshaped
from opsmith.prewarm.warming import shipped_entries

FILES = ("views/views.py", "views/empties.py", "views/host_numbers.py")
OWN = sorted(op for file in FILES for op in ops_of(file))

#: Calls after a tensor of shape (3, 4, 1, 5), which lies in several ways.
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("alias.default", ()),
    ("detach.default", ()),
    ("lift_fresh.default", ()),
    ("permute.default", ([2, 0, -1, 1],)),
    ("transpose.int", (0, -1)),
    ("transpose.int", (1, 1)),
    ("squeeze.default", ()),
    ("squeeze.dim", (2,)),
    ("squeeze.dim", (0,)),
    ("squeeze.dims", ([0, -2],)),
    ("unsqueeze.default", (0,)),
    ("unsqueeze.default", (2,)),
    ("unsqueeze.default", (-1,)),
    ("expand.default", ([3, 4, 7, -1],)),
    ("expand.default", ([2, 1, -1, -1, 6, 5],)),
    ("select.int", (1, -2)),
    ("slice.Tensor", (1, 1, -1)),
    ("slice.Tensor", (-1, None, None, 2)),
    ("slice.Tensor", (0, -9, 99, 3)),
    ("slice.Tensor", (0, 2, 1)),
    ("split.Tensor", (3, 1)),
    ("split.Tensor", (9,)),
    ("unsafe_split.Tensor", (2, -1)),
    ("split_with_sizes.default", ([3, 0, 1], 1)),
    ("unbind.int", (3,)),
    ("diagonal.default", ()),
    ("diagonal.default", (-1, 1, 0)),
    ("diagonal.default", (2, 1, -1)),
    ("diagonal.default", (9, 0, 1)),
    ("unfold.default", (1, 3, 1)),
    ("unfold.default", (-1, 2, 2)),
    ("unfold.default", (0, 0, 1)),
    ("as_strided.default", ([2, 3], [3, 1])),
    ("as_strided.default", ([2, 3], [0, 2], 1)),
    ("as_strided.default", ([0, 9], [99, 99], 7)),
    ("empty_like.default", ()),
    ("new_empty.default", ([2, 0, 3],)),
    ("new_empty_strided.default", ([2, 3], [1, 2])),
    ("transpose_.default", (0, 2)),
    ("squeeze_.default", ()),
    ("squeeze_.dim", (2,)),
    ("squeeze_.dims", ([1, 2],)),
    ("unsqueeze_.default", (3,)),
    ("as_strided_.default", ([4, 2], [1, 3], 2)),
    ("resize_.default", ([6, 2],)),
    ("resize_.default", ([3, 4, 1, 5],)),
    ("resize_.default", ([30, 20],)),
    ("resize_as_.default", (torch.empty(7, 2),)),
]
#: As above, for which a keyword says more.
FORMATS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("empty_like.default", (), {"memory_format": torch.channels_last}),
    ("empty_like.default", (), {"memory_format": torch.contiguous_format, "dtype": torch.int8}),
    ("new_empty.default", ([4],), {"dtype": torch.complex64}),
    ("resize_.default", ([2, 3, 4, 5],), {"memory_format": torch.channels_last}),
    ("resize_as_.default", (torch.empty(2, 3, 4, 5).permute(0, 3, 1, 2),), {"memory_format": torch.preserve_format}),
    ("resize_as_.default", (torch.empty(2, 3, 4, 5),), {"memory_format": torch.preserve_format}),
    ("resize_as_.default", (torch.empty(2, 1, 1, 1),), {"memory_format": torch.preserve_format}),
]


def lying() -> Iterator[Tensor]:
    """Tensors of shape (3, 4, 1, 5): dense, turned, with gaps and an offset, expanded."""
    yield torch.arange(60.0).reshape(3, 4, 1, 5)
    yield torch.arange(60.0).reshape(5, 1, 4, 3).permute(3, 2, 1, 0)
    yield torch.arange(600.0).reshape(6, 10, 1, 10)[1::2, 2:6, :, 5:]
    yield torch.arange(12.0).reshape(3, 4, 1, 1).expand(3, 4, 1, 5)
    yield torch.arange(60.0).reshape(3, 5, 4, 1).permute(0, 2, 3, 1)


def forms_of(result: Any) -> Any:
    """What tells a view: its form, and where it lies in its storage."""
    if isinstance(result, (list, tuple)):
        return [forms_of(one) for one in result]
    return result.dtype, result.shape, result.stride(), result.storage_offset(), result.is_conj(), result.is_neg()


def base_of(result: Any) -> int:
    """The storage that one or several views look at."""
    first = result[0] if isinstance(result, (list, tuple)) else result
    return int(first.untyped_storage().data_ptr())


def assert_form_as_eager(op: str, make: Any, *args: Any, **kwargs: Any) -> None:
    """Of the two results, and that both or neither share the argument's memory."""
    mine, theirs = make(), make()
    actual, expected = kernel(op)(mine, *args, **kwargs), eager(op)(theirs, *args, **kwargs)
    assert forms_of(expected) == forms_of(actual)
    assert (base_of(expected) == base_of(theirs)) == (base_of(actual) == base_of(mine))
    assert (expected is theirs) == (actual is mine)


@pytest.mark.parametrize(("op", "args"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("number", range(5))
def test_a_view_lies_where_eagers_does(op: str, args: tuple[Any, ...], number: int) -> None:
    """Sizes, strides and offset to the last, also of dimensions of size 1, and in the argument's own memory."""
    assert_form_as_eager(op, lambda: next(itertools.islice(lying(), number, None)), *args)


@pytest.mark.parametrize(("op", "args", "kwargs"), FORMATS)
def test_memory_comes_in_the_format_asked_for(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Of a type, with the channels last, or as another tensor has it."""
    assert_form_as_eager(op, lambda: torch.arange(60.0).reshape(3, 4, 1, 5), *args, **kwargs)


@pytest.mark.parametrize("op", ["t.default", "t_.default"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 5)])
def test_t_turns_matrices_alone(op: str, shape: tuple[int, ...]) -> None:
    """A vector stays a vector."""
    assert_form_as_eager(op, lambda: torch.ones(shape), *())


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("unsqueeze.default", (-1,)),
        ("expand.default", ([2, 1],)),
        ("squeeze.dim", (-1,)),
        ("transpose.int", (0, -1)),
        ("permute.default", ([],)),
        ("unfold.default", (0, 1, 1)),
        ("unfold.default", (0, 0, 1)),
        ("view.default", ([1, -1],)),
        ("empty_like.default", ()),
    ],
)
def test_a_tensor_without_dimensions_has_views(op: str, args: tuple[Any, ...]) -> None:
    """Where eager lets it pass for one of a single element."""
    assert_form_as_eager(op, lambda: torch.ones(4)[2], *args)


def test_every_shape_over_every_layout_is_a_view_exactly_where_it_is_eagers() -> None:
    """`view` is the one whose strides may not exist: thousands of small cases, both answers among them."""
    draw = random.Random(4)
    refused = 0
    for _ in range(2000):
        before = [draw.choice((1, 1, 2, 3, 0 if draw.random() < 0.1 else 2)) for _ in range(draw.randrange(5))]
        x = torch.empty([size + draw.randrange(2) for size in before]).permute(
            draw.sample(range(len(before)), len(before))
        )
        for dim, size in enumerate(x.shape):
            x = x.narrow(dim, 0, max(size - draw.randrange(2), min(size, 1)))
        after = draw.sample([1, 2, 3, *x.shape, -1], draw.randrange(len(x.shape) + 3))
        try:
            expected = x.view(after)
        except RuntimeError:
            refused += 1
            with pytest.raises(RuntimeError):
                kernel("view.default")(x, after)
            continue
        assert forms_of(expected) == forms_of(kernel("view.default")(x, after)), (x.shape, x.stride(), after)
    assert 100 < refused < 1900


def test_new_memory_follows_a_model_as_eagers_does() -> None:
    """Repeated dimensions and equal strides leave the order open, and eager's own choice is kept."""
    draw = random.Random(5)
    for _ in range(2000):
        sizes = [draw.choice((1, 2, 3)) for _ in range(draw.randrange(5))]
        model = torch.empty(200).as_strided(sizes, [draw.choice((0, 1, 2, 3, 6, 12)) for _ in sizes])
        assert torch.empty_like(model).stride() == kernel("empty_like.default")(model).stride(), model.stride()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
def test_pairs_and_complex_numbers_share_memory(kind: torch.dtype) -> None:
    """At offsets and strides that are whole numbers of pairs."""
    pairs = torch.arange(48, dtype=kind).reshape(4, 6, 2)[1:, ::2]
    assert_form_as_eager("view_as_complex.default", lambda: pairs)
    numbers = torch.view_as_complex(pairs)
    assert_form_as_eager("view_as_real.default", lambda: numbers)
    assert_form_as_eager("_conj.default", lambda: numbers)
    assert_form_as_eager("_conj.default", numbers.conj)
    assert_form_as_eager("view_as_real.default", lambda: torch._neg_view(numbers))


@pytest.mark.parametrize("op", ["transpose.int", "select.int", "slice.Tensor"])
def test_a_view_of_conjugates_stays_one(op: str) -> None:
    """The bit that says so is no part of sizes and strides."""
    lazy = torch._neg_view(torch.ones(3, 4, dtype=torch.complex64).conj())
    args = (0, 1)
    assert_form_as_eager(op, lambda: lazy, *args)
    assert torch.equal(eager(op)(lazy, *args), kernel(op)(lazy, *args))


def test_new_memory_has_the_shape_and_strides_asked_for() -> None:
    """Also of ops that follow no tensor."""
    for op, args, kwargs in (
        ("empty.memory_format", ([2, 0, 3],), {}),
        ("empty.memory_format", ([2, 3, 4, 5],), {"memory_format": torch.channels_last, "dtype": torch.bool}),
        ("empty.memory_format", ([2, 3, 4, 5, 6],), {"memory_format": torch.channels_last_3d}),
        ("empty_strided.default", ([3, 2], [1, 5]), {"dtype": torch.int64}),
        ("empty_strided.default", ([3, 2], [0, 0]), {}),
        ("empty_permuted.default", ([3, 2, 5], [1, 2, 0]), {"dtype": torch.float64}),
    ):
        expected, actual = eager(op)(*args, **kwargs), kernel(op)(*args, **kwargs)
        assert forms_of(expected) == forms_of(actual)
        assert expected.untyped_storage().nbytes() == actual.untyped_storage().nbytes()
        assert 0 == actual.zero_().sum()


def test_a_tensor_that_grows_keeps_what_it_held() -> None:
    """`resize_` gives the storage more memory, and what lay there lies there."""
    x = torch.arange(6.0)[2:]
    assert x is kernel("resize_.default")(x, [30])
    assert [2.0, 3.0, 4.0, 5.0] == x[:4].tolist()
    assert 32 * 4 == x.untyped_storage().nbytes()


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("permute.default", ([0, 1],)),
        ("permute.default", ([0, 0, 1],)),
        ("permute.default", ([0, 1, 3],)),
        ("transpose.int", (0, 3)),
        ("transpose_.default", (-4, 0)),
        ("t.default", ()),
        ("squeeze.dim", (3,)),
        ("squeeze.dims", ([0, 0],)),
        ("unsqueeze.default", (4,)),
        ("unsqueeze_.default", (-5,)),
        ("expand.default", ([2, 3],)),
        ("expand.default", ([5, 3, 4],)),
        ("expand.default", ([-1, 2, 3, 4],)),
        ("view.default", ([5, 5],)),
        ("view.default", ([-1, -1],)),
        ("view.default", ([-2, 12],)),
        ("view.default", ([0, -1],)),
        ("select.int", (0, 2)),
        ("select.int", (3, 0)),
        ("slice.Tensor", (0, 0, 1, 0)),
        ("slice.Tensor", (5,)),
        ("split.Tensor", (-1,)),
        ("split.Tensor", (0,)),
        ("split_with_sizes.default", ([1, 2], 0)),
        ("split_with_sizes.default", ([3, -1], 0)),
        ("unbind.int", (7,)),
        ("diagonal.default", (0, 1, 1)),
        ("diagonal.default", (0, 1, 3)),
        ("unfold.default", (0, 3, 1)),
        ("unfold.default", (0, 1, 0)),
        ("as_strided.default", ([2, 3], [1])),
        ("as_strided.default", ([2, 3], [-1, 1])),
        ("as_strided.default", ([2, 13], [12, 1])),
        ("as_strided.default", ([2], [1], -1)),
        ("as_strided_.default", ([25], [1])),
        ("view_as_real.default", ()),
        ("view_as_complex.default", ()),
        ("new_empty.default", ([2, -1],)),
        ("new_empty_strided.default", ([2], [1, 1])),
        ("resize_.default", ([-2],)),
    ],
)
def test_a_bad_call_raises_what_eager_raises(op: str, args: tuple[Any, ...]) -> None:
    """``IndexError`` for a place that does not exist, ``RuntimeError`` for the rest."""
    with pytest.raises((IndexError, RuntimeError)) as expected:
        eager(op)(torch.ones(2, 3, 4), *args)
    with pytest.raises((IndexError, RuntimeError)) as actual:
        kernel(op)(torch.ones(2, 3, 4), *args)
    assert expected.type is actual.type


@pytest.mark.parametrize(
    ("op", "args"), [("select.int", (0, 0)), ("slice.Tensor", ()), ("split.Tensor", (1,)), ("unbind.int", ())]
)
def test_a_number_has_no_parts(op: str, args: tuple[Any, ...]) -> None:
    """As eager, which calls some of them an index out of range."""
    with pytest.raises((IndexError, RuntimeError)) as expected:
        eager(op)(torch.tensor(1.0), *args)
    with pytest.raises(expected.type):
        kernel(op)(torch.tensor(1.0), *args)


def test_layouts_without_strides_are_declined() -> None:
    """And pinned memory: both before anything is made."""
    with pytest.raises(NotImplementedError, match="layout"):
        kernel("alias.default")(torch.eye(2).to_sparse())
    with pytest.raises(NotImplementedError, match="pinned"):
        kernel("new_empty.default")(torch.ones(2), [2], pin_memory=True)


@pytest.mark.parametrize("value", [True, 7, -1.5, 2 - 3j])
def test_a_number_is_the_first_element(value: complex) -> None:
    """Of Python's type for the tensor's, wherever the element lies."""
    for tensor in (torch.tensor(value), torch.tensor([value] * 3)[1:], torch.tensor([[value]])):
        number = kernel("_local_scalar_dense.default")(tensor)
        assert (type(value), value) == (type(number), number)
    assert value == kernel("_local_scalar_dense.default")(torch.tensor(value, dtype=torch.complex64).conj()).conjugate()
    with pytest.raises(RuntimeError, match="without elements"):
        kernel("_local_scalar_dense.default")(torch.ones(0))


def test_views_and_memory_are_left_to_pytorch_where_kernels_are_installed() -> None:
    """They move nothing, so a call through Python is a loss; and autograd follows views by itself."""
    assert OWN
    assert set() == {op for op in OWN if why_excluded(aten_schemas()[op]) is None}
    with opsmith.enabled(
        "opsmith", ops=["relu", "view", "detach", "empty*", "new_empty*", "_unsafe_view", "unsafe_split"]
    ):
        active = opsmith.active()
        assert {"relu"} == {one.op.partition(".")[0].removesuffix("_") for one in active.ops}
        assert REASONS["memory"] == active.excluded["empty_like.default"]
        assert REASONS["memory"] == active.excluded["unsafe_split.Tensor"]
        assert REASONS["view"] == active.excluded["detach.default"]


def test_what_launches_nothing_is_not_compiled_beforehand() -> None:
    """``opsmith prewarm`` calls kernels with tensors that have no memory to look at."""
    assert not {*OWN} & shipped_entries().keys()
    assert "lift_fresh_copy.default" in shipped_entries()


def test_the_arithmetic_needs_no_tensor() -> None:
    """Of sizes and strides alone."""
    assert View(3, (2, 5, 4), (0, 0, 1)) == expanded(View(3, (1, 4), (9, 1)), [2, 5, -1])
    assert View(0, (2, 2, 3), (6, 3, 1)) == reshaped(View(0, (4, 3), (3, 1)), [2, -1, 3])
