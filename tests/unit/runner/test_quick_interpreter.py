"""Triton's interpreter replaces its language once a launch."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from opsmith.runner.child.triton_start import make_interpreter_quick


def add_to_itself(number: Any) -> Any:
    """A function within a kernel."""
    return number + number


doubled = triton.jit(add_to_itself)


@triton.jit  # type: ignore[untyped-decorator]
def add_one(out: Any, numbers: Any) -> None:
    """To each of four numbers."""
    places = tl.arange(0, 4)
    tl.store(out + places, tl.load(numbers + places) + 1)


def double_sums(out: Any, rows: Any, columns: tl.constexpr) -> None:
    """Twice the sum of each row; ``tl.sum`` is a function of its own, and sees the language by another name."""
    row = tl.program_id(0)
    total = tl.sum(tl.load(rows + row * columns + tl.arange(0, columns)), axis=0)
    tl.store(out + row, doubled(total))


rows_kernel = triton.jit(double_sums)


def sums(rows: torch.Tensor) -> list[float]:
    """What the kernel makes of some rows."""
    out = torch.empty(len(rows))
    rows_kernel[(len(rows),)](out, rows, columns=rows.shape[1])
    found: list[float] = out.tolist()
    return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the interpreter looks through, each time that it does, once it was made quick."""
    monkeypatch.setattr(interpreter, "_patch_lang", inspect.unwrap(interpreter._patch_lang))
    make_interpreter_quick()
    names: list[str] = []
    look = interpreter._patch_builtin

    def noted(language: object, *arguments: object) -> None:
        names.append(str(language))
        look(language, *arguments)

    monkeypatch.setattr(interpreter, "_patch_builtin", noted)
    return names


def test_programs_and_functions_do_not_look_again(looks: list[str]) -> None:
    """A launch of one program looks as often as one of many, each of which calls two functions."""
    assert [8.0] == sums(torch.ones(1, 4))
    looks.clear()
    assert [8.0] == sums(torch.ones(1, 4))
    of_one = len(looks)
    assert [2.0, 10.0, 18.0, 26.0, 34.0, 42.0] == sums(torch.arange(12.0).reshape(6, 2))
    assert of_one == len(looks) - of_one > 0


def test_the_language_is_itself_after_a_launch(looks: list[str]) -> None:
    """So the next launch replaces it again."""
    for _ in range(2):
        looks.clear()
        assert [8.0] == sums(torch.ones(1, 4))
        assert looks
        assert tl.core.is_builtin(tl.load)
        assert tl.core.is_builtin(tl.tensor.__add__)


def test_it_is_made_quick_once(looks: list[str]) -> None:
    """A process may begin with one in which it was."""
    replace = interpreter._patch_lang
    make_interpreter_quick()
    assert replace is interpreter._patch_lang
    assert not looks


def test_no_overflow_is_computed_that_nobody_is_told_of(looks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum wraps around, as on a GPU, and is made once."""
    numbers, out = torch.tensor([0, 1, 2, 2**31 - 1], dtype=torch.int32), torch.empty(4, dtype=torch.int32)
    sums_made: list[object] = []
    builder = type(interpreter.interpreter_builder)
    create = builder.create_add

    def noted(*given: object) -> object:
        sums_made.append(given)
        return create(*given)

    monkeypatch.setattr(builder, "create_add", noted)
    add_one[(1,)](out, numbers)
    assert [1, 2, 3, -(2**31)] == out.tolist()
    assert 1 == len(sums_made)
    assert looks


def test_types_are_looked_up_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of numbers, pointers, and blocks of both."""
    look_up = inspect.unwrap(interpreter._get_np_dtype)
    monkeypatch.setattr(interpreter, "_get_np_dtype", look_up)
    monkeypatch.setattr(interpreter, "_patch_lang", inspect.unwrap(interpreter._patch_lang))
    make_interpreter_quick()
    scalars = [tl.int1, tl.uint8, tl.int64, tl.float16, tl.bfloat16, tl.float32, tl.float8e5, tl.pointer_type(tl.int8)]
    for dtype in [*scalars, *[tl.block_type(scalar, [4]) for scalar in scalars]] * 2:
        assert look_up(dtype) == interpreter._get_np_dtype(dtype)
