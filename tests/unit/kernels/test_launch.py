"""What is passed to a kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import triton.language as tl
from tests.unit.kernels.against_eager import FOLDER, files_of_kernels, kernel

from opsmith.kernels.common import launch
from opsmith.kernels.common.launch import constants, settled, workplace
from opsmith.kernels.copies import filling

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_tuples_of_tuples_end_with_a_constant() -> None:
    """At every depth, for Triton 3.6; tuples of numbers alone stay as they are."""
    assert (1, 2) == settled((1, 2))
    assert ((1, 2), (3,), 1) == settled(((1, 2), (3,)))
    assert (((1,), 2, 1), ((3,), 4, 1), 1) == settled((((1,), 2), ((3,), 4)))


class Tile(NamedTuple):
    """Two constants."""

    m: int
    n: int


class Other(NamedTuple):
    """Two more."""

    m: int
    n: int


class Sides(NamedTuple):
    """Named, of tuples alone."""

    left: tuple[int, ...]
    right: tuple[int, ...]


def test_named_tuples_of_tuples_keep_their_names() -> None:
    """Triton 3.6 forgets no constant of theirs."""
    found = settled(Sides((1, 2), (3,)))
    assert isinstance(found, Sides)
    assert Sides((1, 2), (3,)) == found


def test_constants_are_compiled_in() -> None:
    """None stays what it is; a tuple of another class with the same numbers is another one."""
    found = constants(Sides((1,), None))  # type: ignore[arg-type]
    assert isinstance(found, Sides)
    assert isinstance(found.left, tl.constexpr)
    assert found.right is None
    assert type(constants(Tile(64, 64))) is Tile
    assert type(constants(Other(64, 64))) is Other


@pytest.mark.parametrize(
    ("asked", "interpreted", "place"),
    [
        (CPU, False, GPU),
        (CPU, True, CPU),
        (None, False, GPU),
        (torch.device("cuda", 1), False, torch.device("cuda", 1)),
    ],
)
def test_what_is_asked_for_on_the_host_is_written_beside_the_argument(
    monkeypatch: pytest.MonkeyPatch, asked: torch.device | None, *, interpreted: bool, place: torch.device
) -> None:
    """Kernels run on the host under the interpreter alone."""
    monkeypatch.setattr(launch, "INTERPRETED", interpreted)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    model: Any = SimpleNamespace(device=GPU)
    assert place == workplace(asked, model)
    assert CPU == workplace(asked if asked == CPU else None, torch.ones(1))


def test_nothing_goes_to_the_host_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for it would end the capture with an error; eager's own fill on the host does not."""
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    model: Any = SimpleNamespace(device=GPU)
    with pytest.raises(NotImplementedError, match="captured"):
        workplace(CPU, model)
    assert GPU == workplace(None, model)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("ones_like.default", ()),
        ("zeros_like.default", ()),
        ("full_like.default", (2.5,)),
        ("new_zeros.default", ([3, 2],)),
        ("new_ones.default", ([3, 2],)),
        ("new_full.default", ([3, 2], 2.5)),
        ("rand_like.default", ()),
        ("randn_like.default", ()),
        ("randint_like.default", (9,)),
        ("randint_like.low_dtype", (2, 9)),
    ],
)
def test_a_factory_hands_over_what_was_written_elsewhere(
    monkeypatch: pytest.MonkeyPatch, op: str, args: tuple[Any, ...]
) -> None:
    """In the layout, type and place asked for; the meta device stands for the host here, and the host for a GPU."""
    monkeypatch.setattr(filling, "workplace", lambda _device, model: model.device)
    out = kernel(op)(torch.ones(2, 3).t(), *args, dtype=torch.float64, device=torch.device("meta"), pin_memory=False)
    assert ("meta", torch.float64, (3, 2)) == (out.device.type, out.dtype, tuple(out.shape))
    assert ((1, 3) if op.partition(".")[0].endswith("_like") else (2, 1)) == out.stride()


#: Ranks meet in these kernels, which are launched behind all that was launched before.
COMMUNICATING = "communication/"


def launched_kernels() -> Iterator[Any]:
    """Each kernel that host code launches, by its place."""
    for file in files_of_kernels():
        tree = ast.parse((FOLDER / file).read_text("utf-8"))
        for one in tree.body:
            if not isinstance(one, ast.FunctionDef) or file.startswith(COMMUNICATING):
                continue
            if one.name.endswith("_kernel") and one.decorator_list:
                yield pytest.param(one, id=f"{file}:{one.name}")


@pytest.mark.parametrize("function", [*launched_kernels()])
def test_a_kernel_begins_by_waiting_for_those_before_it(function: ast.FunctionDef) -> None:
    """The GPU launches it while they run: what it read or wrote before would be theirs."""
    _docstring, first = function.body[:2]
    assert "pdl_prologue()" == ast.unparse(first)


def test_only_kernels_are_launched_and_by_their_names() -> None:
    """By which the test above finds them."""
    launched = set()
    for file in files_of_kernels():
        calls = [one for one in ast.walk(ast.parse((FOLDER / file).read_text("utf-8"))) if isinstance(one, ast.Call)]
        names = {ast.unparse(one.args[0]) for one in calls if ast.unparse(one.func) == "launch"}
        launched |= names
        assert all(name.endswith("kernel") for name in names), file
        own = file.endswith(("launch.py", f"{COMMUNICATING}symmetric.py"))
        assert own or not any(ast.unparse(one.func).endswith("[grid]") for one in calls)
    assert launched


def test_kernels_that_communicate_are_launched_in_their_own_way() -> None:
    """With the launch of all others they would begin before the kernel before them has ended."""
    files = [file for file in files_of_kernels() if file.startswith(COMMUNICATING)]
    assert len(files) > 5
    for file in files:
        for one in ast.walk(ast.parse((FOLDER / file).read_text("utf-8"))):
            if isinstance(one, ast.ImportFrom) and one.module == "common.launch":
                assert "launch" not in {alias.name for alias in one.names}, file
