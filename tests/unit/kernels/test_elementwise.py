"""What the manifest calls elementwise may write over an argument, and what may is called so.

Launch plans let ``x.relu_()`` write into ``x`` at once where the manifest says so of the functional kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import MANIFEST, kernel, small_tiles
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.core.op import Variant
from opsmith.dispatch.plans.recorder import _ALLOCATIONS
from opsmith.kernels.common import tiles
from opsmith.kernels.common.elementwise import map_into, same
from opsmith.kernels.pointwise.basic import mul_of

IN_PLACE = {
    schema.functional
    for name, schema in aten_schemas().items()
    if schema.variant is Variant.INPLACE and schema.functional in MANIFEST and name not in MANIFEST
}
FLAGGED = sorted(
    op for op, entry in MANIFEST.items() if entry.get("elementwise") and not overload(op)._schema.is_mutable
)
#: Kernels that answer an in-place overload and are not elementwise.
REASONS = {
    "addbmm.default": "a program reads whole rows and columns of the factors, one of which may be self",
    "addmm.default": "as addbmm",
    "addmv.default": "as addbmm",
    "baddbmm.default": "as addbmm",
    "conj_physical.default": "two launches, or none for real numbers",
    "cumprod.default": "as cumsum",
    "cumsum.default": "a program goes on along its row after it has written",
    "index_reduce.default": "writes where indices say",
    "masked_scatter.default": "reads where a count of the mask says",
    "renorm.default": "each element is scaled by the norm of its slice",
    "scatter.reduce": "writes where indices say",
    "scatter.value_reduce": "as scatter.reduce",
    "scatter_reduce.two": "as scatter.reduce",
}

SHAPE = (8, 9)
#: Arguments that are not as large as the result, by name.
SHAPES: dict[str, tuple[int, ...]] = {"value": (), "vec1": SHAPE[:1], "vec2": SHAPE[1:]}
#: Arguments without a default, or whose default is None, which are 1 elsewhere.
NUMBERS = {
    "self": 5,
    "other": 3,
    "p": 2,
    "value": 1.5,
    "rounding_mode": "floor",
    "eps": 0.1,
    "min": -0.5,
    "max": 0.5,
    "min_val": -0.5,
    "max_val": 0.5,
}
DTYPES = (torch.float32, torch.int32, torch.bool)
#: How the argument lies that is written over, and whether the others are broadcast.
FORMS = {"alike": (False, False), "transposed": (True, False), "others broadcast": (False, True)}


class Overwriting(TorchDispatchMode):
    """Lets the first allocation that has the form of a tensor be that tensor's memory."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensor, self.done = tensor, False

    def __torch_dispatch__(self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _ALLOCATIONS or self.done or form(result) != form(self.tensor):
            return result
        self.done = True
        return self.tensor.view(result.dtype)


def form(tensor: Tensor) -> tuple[Any, ...]:
    """What decides whether memory can be shared."""
    return tensor.shape, tensor.stride(), tensor.dtype.itemsize


def arguments(
    op: str, dtype: torch.dtype, *, transposed: bool, broadcast: bool
) -> tuple[list[Any], dict[str, Any], int]:
    """By position and by name, reproducible, and the position of the argument that is written over."""
    generator = torch.Generator().manual_seed(0)
    args: list[Any] = []
    named: dict[str, Any] = {}
    target = None

    def tensor(name: str, *, is_target: bool) -> Tensor:
        kind = torch.bool if name in {"condition", "mask"} else dtype
        shape = SHAPES.get(name, SHAPE[1:] if broadcast and not is_target else SHAPE)
        if transposed and is_target:
            return tensor_of(shape[::-1], kind, generator).t()
        return tensor_of(shape, kind, generator)

    for argument in overload(op)._schema.arguments:
        if "Tensor" in str(argument.type):
            is_target = target is None and argument.name != "condition"
            value: Any = tensor(argument.name, is_target=is_target)
            target = len(args) if is_target else target
        elif argument.has_default_value() and argument.default_value is not None:
            value = argument.default_value
        else:
            value = 1 if dtype is torch.bool else NUMBERS.get(argument.name, 1)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            args.append(value)
    assert target is not None
    return args, named, target


def tensor_of(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Both signs and both sides of 1 for floats; integers that can be divided and shifted by."""
    if dtype.is_floating_point:
        return torch.rand(shape, generator=generator, dtype=dtype) * 4 - 2
    return (
        torch.randint(1, 7, shape, generator=generator).to(dtype) if dtype != torch.bool else mask_of(shape, generator)
    )


def mask_of(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Both values."""
    return torch.rand(shape, generator=generator) < 0.5


@contextmanager
def several_programs() -> Iterator[None]:
    """As on a device: what one program has written over, another one would read."""
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch, 32)
        tiles.tiles_of.cache_clear()
        yield
    tiles.tiles_of.cache_clear()


def written_over(function: Callable[..., Any], args: list[Any], named: dict[str, Any], target: int) -> Any:
    """The result in memory of its own and over an argument, or None where that has another form than the result."""
    expected = function(*args, **named)
    first = expected[0] if isinstance(expected, tuple) else expected
    if first.dtype != args[target].dtype:
        return None
    with several_programs(), Overwriting(args[target]) as mode:
        actual = function(*args, **named)
    if not mode.done:
        return None
    assert (actual[0] if isinstance(actual, tuple) else actual).data_ptr() == args[target].data_ptr()
    return expected, actual


class Spreading(TorchDispatchMode):
    """Allocates with gaps and in another order than asked for."""

    def __torch_dispatch__(self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _ALLOCATIONS or result.shape != SHAPE:
            return result
        return torch.empty_strided(SHAPE, (3, 3 * SHAPE[0] + 2), dtype=result.dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # The interpreter computes with numpy.
@pytest.mark.parametrize("op", FLAGGED)
def test_what_is_called_elementwise_writes_at_the_strides_of_its_memory(op: str) -> None:
    """So that a plan lets it write into a strided argument at once."""
    function, shown = kernel(op), False
    for dtype in DTYPES:
        args, named, _ = arguments(op, dtype, transposed=False, broadcast=False)
        try:
            expected = function(*args, **named)
        except (TypeError, ValueError, NotImplementedError):
            continue  # Another type is defined for it.
        with Spreading():  # type: ignore[no-untyped-call]
            actual = function(*args, **named)
        pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
        for one, other in pairs:
            assert other.stride() != one.stride()
            torch.testing.assert_close(other, one, equal_nan=True)
        shown = True
        break
    assert shown


@pytest.mark.corpus
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # The interpreter computes with numpy.
@pytest.mark.parametrize("op", FLAGGED)
def test_what_is_called_elementwise_gives_the_same_over_its_argument(op: str) -> None:
    """Also with an argument of another layout, and with others that are broadcast."""
    shown = set()
    several = sum("Tensor" in str(argument.type) for argument in overload(op)._schema.arguments) > 1
    for name, (transposed, broadcast) in FORMS.items():
        for dtype in DTYPES if several or not broadcast else ():
            try:
                found = written_over(kernel(op), *arguments(op, dtype, transposed=transposed, broadcast=broadcast))
            except (TypeError, ValueError, NotImplementedError):
                continue  # Another type is defined for it.
            if found is not None:
                torch.testing.assert_close(found[1], found[0], equal_nan=True)
                shown.add(name)
                break
    assert "alike" in shown


def turned(x: Tensor) -> Tensor:
    """Each element goes to another place."""
    out = torch.empty_like(x)
    map_into(out, same, [x.t()], [x.dtype])
    return out


def times_first_row(x: Tensor) -> Tensor:
    """A part of the argument is broadcast."""
    out = torch.empty_like(x)
    map_into(out, mul_of, [x, x[0]], [x.dtype] * 2)
    return out


@pytest.mark.parametrize("wrong", [turned, times_first_row])
def test_a_kernel_that_reads_other_elements_is_not_the_same_over_its_argument(wrong: Callable[..., Tensor]) -> None:
    """Else the test above could not fail."""
    x = tensor_of(SHAPE[:1] * 2, torch.float32, torch.Generator().manual_seed(0))
    found = written_over(wrong, [x], {}, 0)
    assert found is not None
    assert not torch.equal(*found)


def test_each_kernel_behind_an_in_place_overload_is_elementwise_or_has_a_reason() -> None:
    """Without ``"elementwise": true`` an in-place call moves twice the bytes: the result is copied into its place."""
    assert sorted(REASONS) == sorted(IN_PLACE.difference(FLAGGED))
