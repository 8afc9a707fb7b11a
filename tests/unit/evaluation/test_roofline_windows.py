"""Unique bytes of windows, against a set of every byte that they touch."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsmith.aten.schemas import aten_schemas
from opsmith.core.case import CallRecord, GeneratedStorage, OutputTensor, TensorValue, Value
from opsmith.core.domains import Normal
from opsmith.evaluation.roofline.windows import Window, are_apart, fewest_bytes, most_bytes
from opsmith.evaluation.roofline.work import work_of

ITEMS = {"u8": 1, "f16": 2, "f32": 4}


@st.composite
def tensors(draw: st.DrawFn, *, dims: int = 3) -> TensorValue:
    """A window on storage 0 or 1: any strides, expanded and overlapping ones too."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=dims, max_size=dims)))
    strides = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 8, 12, 20]), min_size=dims, max_size=dims)))
    dtype = draw(st.sampled_from(sorted(ITEMS)))
    return TensorValue(draw(st.integers(0, 1)), dtype, shape, strides, draw(st.integers(0, 12)), "cuda")


def touched(tensor: TensorValue) -> set[int]:
    """Every byte of the storage that a tensor touches."""
    elements = {tensor.offset}
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        elements = {element + stride * step for element in elements for step in range(size)}
    item = ITEMS[tensor.dtype]
    return {element * item + byte for element in elements for byte in range(item)}


def window(tensor: TensorValue) -> Window:
    """Its window; it has elements."""
    found = Window.of(tensor)
    assert found is not None
    return found


@given(tensors())
def test_unique_bytes_are_never_too_many(tensor: TensorValue) -> None:
    """A rejection rests on them."""
    assert window(tensor).unique_bytes <= len(touched(tensor))
    assert max(touched(tensor)) + 1 == window(tensor).end


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((3, 4), (4, 1)),
        ((3, 4), (1, 3)),
        ((3, 4), (0, 1)),
        ((3, 4), (16, 2)),
        ((9, 4), (1, 1)),
        ((9, 4), (2, 1)),
        ((9, 4), (6, 3)),
        ((5, 3, 4), (4, 4, 1)),
    ],
)
def test_unique_bytes_are_exact_for_the_layouts_that_torch_makes(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Contiguous, transposed, expanded, sliced and unfolded tensors."""
    tensor = TensorValue(0, "f32", shape, strides, 0, "cuda")
    assert len(touched(tensor)) == window(tensor).unique_bytes


@given(st.lists(tensors(dims=2), min_size=1, max_size=4))
def test_the_bounds_of_a_union_hold(windows: list[TensorValue]) -> None:
    """The lower one never counts a byte twice; the upper one is never below it."""
    union = set[int]().union(*map(touched, windows))
    assert fewest_bytes([window(w) for w in windows]) <= len(union)
    assert fewest_bytes([window(w) for w in windows]) <= most_bytes([window(w) for w in windows])


@given(tensors(dims=2), tensors(dims=2))
def test_windows_that_are_called_apart_share_no_byte(one: TensorValue, other: TensorValue) -> None:
    """Also where their rows lie between each other."""
    assert not (are_apart(window(one), window(other)) and touched(one) & touched(other))


def test_halves_of_every_row_are_apart() -> None:
    """The parts of a split matrix share no byte, though their ranges overlap; shifted ones do."""
    left, right = (Window.of(TensorValue(0, "f16", (4, 3), (6, 1), offset, "cuda")) for offset in (0, 3))
    shifted = Window.of(TensorValue(0, "f16", (4, 3), (6, 1), 2, "cuda"))
    assert left
    assert right
    assert shifted
    assert are_apart(left, right)
    assert not are_apart(left, shifted)
    assert 4 * 6 * 2 == fewest_bytes([left, right, left]) == most_bytes([left, right, left])


def test_no_elements_are_no_window() -> None:
    """A size of zero touches nothing."""
    assert Window.of(TensorValue(0, "f32", (3, 0), (1, 1), 0, "cuda")) is None


OPS = {
    "relu.default": 1,
    "add.Tensor": 2,
    "mul_.Tensor": 2,
    "copy_.default": 2,
    "relu_.default": 1,
    "gather.default": 2,
    "sum.default": 1,
    "lerp.Tensor": 3,
}


@given(st.sampled_from(sorted(OPS)), st.data(), st.permutations(range(3)))
def test_the_least_is_part_of_the_traffic_and_neither_knows_the_order_of_dimensions(
    op: str, data: st.DataObject, order: list[int]
) -> None:
    """For any layout of the arguments, and whatever they share."""
    arguments = [data.draw(tensors()) for _ in range(OPS[op])]
    result = data.draw(tensors())

    def work(*, permuted: bool) -> tuple[int, int]:
        place = order if permuted else range(3)
        moved = [_permuted(argument, place) for argument in arguments]
        args: tuple[Value, ...] = (moved[0], 0, *moved[1:]) if op == "gather.default" else tuple(moved)
        storages = tuple(GeneratedStorage(4096, "u8", (4096,), (1,), 0, Normal(), 0) for _ in range(2))
        record = CallRecord(op=op, args=args, kwargs={}, storages=storages)
        schema = aten_schemas()[op]
        output = _permuted(moved[0] if "_." in op else result, range(3) if "_." in op else place)
        outputs = [
            OutputTensor(
                output.dtype, output.shape, output.strides, output.offset, "cuda", "strided",
                output.storage if "_." in op else None, None, b"",
            )
        ]  # fmt: skip
        found = work_of(record, schema, outputs)
        assert found is not None
        return found.least_bytes, found.traffic_bytes

    least, traffic = work(permuted=False)
    assert least <= traffic
    assert (least, traffic) == work(permuted=True)
    assert traffic <= 5 * math.prod((5, 5, 5)) * 4


def _permuted(tensor: TensorValue, order: list[int] | range) -> TensorValue:
    shape, strides = (tuple(values[i] for i in order) for values in (tensor.shape, tensor.strides))
    return TensorValue(tensor.storage, tensor.dtype, shape, strides, tensor.offset, tensor.device)
