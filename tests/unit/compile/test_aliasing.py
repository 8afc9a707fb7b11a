"""What eager returns in memory of its own lies in memory of its own, and is read between the same writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.graphs import in_aten
from torch import Tensor, fx

from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.compile.pass_registry import choose_passes
from opsmith.compile.report import PassReport

aten = torch.ops.aten

NEUTRAL: dict[str, Callable[[Tensor], Tensor]] = {
    "x * 1": lambda x: x * 1.0,
    "x - 0": lambda x: x - 0.0,
    "x / 1": lambda x: x / 1.0,
    "x ** 1": lambda x: x**1,
    "-(-x)": lambda x: torch.neg(-x),
    "x.double().float()": lambda x: x.double().float(),
}
NEUTRAL_OF_INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "x | 0": lambda x: x | 0,
    "x ^ 0": lambda x: x ^ 0,
    "x * 1": lambda x: x * 1,
    "x.long().int()": lambda x: x.long().int(),
}
OPERATIONS = [
    *((name, rule, torch.float32) for name, rule in NEUTRAL.items()),
    *((name, rule, torch.int32) for name, rule in NEUTRAL_OF_INTEGERS.items()),
]
USES: dict[str, Callable[..., Any]] = {
    "the result": lambda neutral, x, y: neutral(x),
    "a view of the result": lambda neutral, x, y: neutral(x).view(2, 3)[1:],
    "the result after a write to the input": lambda neutral, x, y: (neutral(x), x.add_(100))[0],
    "what is made of the result after a write": lambda neutral, x, y: (neutral(x), x.add_(100))[0] + 1,
    "a write of what the input was": lambda neutral, x, y: (old := neutral(x), x.copy_(y), y.copy_(old))[1:],
    "the result of a view of the input": lambda neutral, x, y: neutral(x[1:]),
    "the result and that of another": lambda neutral, x, y: (made := x + y, neutral(made)),
    "a copy of views of the result": lambda neutral, x, y: (old := neutral(x), x.mul_(1), torch.stack([old, old]))[2:],
    "a write of a part": lambda neutral, x, y: (neutral(x), x[1:].copy_(x[:-1].clone()), y.mul_(x))[:1],
    "the result with a part written, and the input": lambda neutral, x, y: (
        old := neutral(x),
        x.add_(1),
        old[-1:].zero_(),
    )[0],
    "the result with several parts written": lambda neutral, x, y: (
        old := neutral(x),
        x.copy_(y),
        old[1:3].add_(1),
        old.view(2, 3)[:, 0].mul_(2),
    )[:1],
    "the same of a view": lambda neutral, x, y: (old := neutral(x.view(2, 3)), x[1:].mul_(2), old[0].zero_())[0],
    "two results": lambda neutral, x, y: (neutral(x), neutral(x)),
    "the result of a result": lambda neutral, x, y: neutral(neutral(x)),
}


def _run(function: Callable[..., Any], dtype: torch.dtype, backend: Any = None) -> list[Any]:
    """What a function returns and leaves, then after writes to what it returned, then of a second call."""
    torch._dynamo.reset()
    run = function if backend is None else torch.compile(function, backend=backend)
    given = [torch.arange(6).to(dtype), torch.arange(6).to(dtype) + 10]
    found: list[Any] = []
    for _ in range(2):
        results = run(*given)
        results = [results] if isinstance(results, Tensor) else list(results)
        found += [one.tolist() for one in (*results, *given)]
        for one in results:
            one.add_(1000)
            found += [other.tolist() for other in (*results, *given)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(("neutral", "dtype"), [one[1:] for one in OPERATIONS], ids=[one[0] for one in OPERATIONS])
def test_a_neutral_operation_makes_a_tensor(
    neutral: Callable[[Tensor], Tensor], dtype: torch.dtype, use: Callable[..., Any]
) -> None:
    """The caller may write to a result, and the graph to its input, and neither sees the other's writes."""

    def function(x: Tensor, y: Tensor) -> Any:
        return use(neutral, x, y)

    reports: list[PassReport] = []
    with torch.no_grad():
        assert _run(function, dtype) == _run(function, dtype, in_aten(choose_passes(), reports))
    assert [] == [one.undone for one in reports if one.undone]


def test_a_neutral_operation_inside_a_graph_goes() -> None:
    """As before: nobody sees its memory."""
    reports: list[PassReport] = []
    targets: list[str] = []
    with torch.no_grad():
        torch.compile(lambda x: (x * 1.0).sin() ** 1 + 2, backend=in_aten(choose_passes(), reports, targets))(
            torch.ones(3)
        )
    assert ["aten.sin.default", "aten.add.Tensor"] == [one for one in targets if one.startswith("aten")]


def test_equal_calls_of_two_outputs_are_both_made() -> None:
    """Else a write to one result would change the other."""

    def twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x + 1, (x + 1).view(3, 2), (x + 1).sin()

    with torch.no_grad():
        assert _run(twice, torch.float32) == _run(twice, torch.float32, in_aten(choose_passes()))


#: That Inductor itself does not take for their argument, as it does ``x.double().float()`` and ``x ** 1``.
COPIED = {one: NEUTRAL[one] for one in ("x * 1", "x / 1", "-(-x)")}


@pytest.mark.slow
@pytest.mark.parametrize("neutral", COPIED.values(), ids=COPIED)
def test_what_is_copied_into_an_input_is_not_returned(neutral: Callable[[Tensor], Tensor]) -> None:
    """Inductor writes a slice in place then: the result would be the input."""

    def write_and_return(x: Tensor, y: Tensor) -> Tensor:
        x[::2].add_(1)
        return neutral(x)

    with torch.no_grad():
        assert _run(write_and_return, torch.float32) == _run(write_and_return, torch.float32, "opsmith")


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[2:].fill_(5),
        lambda x: x.view(2, 3)[:, 0].fill_(5),
        lambda x: x.__setitem__(torch.tensor([1, 4]), 5.0),
    ],
    ids=["slice", "select", "index"],
)
def test_a_part_that_is_written_and_then_returned_is_no_input(write: Callable[[Tensor], Any]) -> None:
    """What is copied is another result then, and Inductor writes the part in place all the same."""

    def write_and_return(x: Tensor, y: Tensor) -> Tensor:
        write(x)
        result = x / 1
        x.div_(1)
        return result

    with torch.no_grad():
        assert _run(write_and_return, torch.float32) == _run(write_and_return, torch.float32, "opsmith")


@pytest.mark.slow
def test_a_written_view_of_a_written_input_is_copied_before_it_is_returned() -> None:
    """Without the view, what is returned would be made in the input's memory."""

    def write_and_return(x: Tensor, y: Tensor) -> Tensor:
        x.view(2, 3)[..., -1].mul_(2)
        copy = x.to(torch.float32, copy=True)
        x[0] = 1
        return copy

    reports: list[PassReport] = []
    with torch.no_grad():
        found = _run(write_and_return, torch.float32, in_aten(choose_passes(), reports))
        assert _run(write_and_return, torch.float32) == found
        assert found == _run(write_and_return, torch.float32, "opsmith")
    assert [] == [one.undone for one in reports if one.undone]


@pytest.mark.slow
def test_two_outputs_that_are_views_of_one_result_stay_so() -> None:
    """Inductor settles the layout of what they look at by the view between them, which therefore stays."""

    def write_through_a_view(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        made = x.view(2, 3) + y.view(2, 3)
        turned = made.movedim(1, 0)
        turned.mul_(2)
        return turned, made

    with torch.no_grad():
        assert _run(write_through_a_view, torch.float32) == _run(write_through_a_view, torch.float32, "opsmith")


def test_an_output_is_not_what_is_copied_into_an_input() -> None:
    """The other way round: what is copied stands for an equal result that is returned."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        result = y.sin()
        x.copy_(result * 1)
        return result

    reports: list[PassReport] = []
    targets: list[str] = []
    with torch.no_grad():
        expected = _run(function, torch.float32)
        assert expected == _run(function, torch.float32, in_aten(choose_passes(), reports, targets))
    assert [] == [one.undone for one in reports if one.undone]


# ---------------------------------------------------------------- passes of others


def _uses_the_source(graph: fx.Graph) -> int:
    """What a rule does that asks nobody: the source of ``x * 1`` stands for it."""
    for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        node.replace_all_uses_with(node.args[0])
    return 1


def _copies_directly(graph: fx.Graph) -> int:
    """As above, and what is copied stands for a copy: the second one takes what the first has left."""
    for node in graph.find_nodes(op="call_function", target=aten.copy.default):
        node.replace_all_uses_with(node.args[1])
    return _uses_the_source(graph)


def _reads_later(graph: fx.Graph) -> int:
    """The same in a traced graph."""
    for node in [node for node in graph.nodes if getattr(node.target, "__name__", "") == "mul"]:
        node.replace_all_uses_with(node.args[0])
    return 1


def _reads_earlier(graph: fx.Graph) -> int:
    """A call after a write is answered by an equal one before it."""
    first, second = (node for node in graph.nodes if node.target == "sin")
    second.replace_all_uses_with(first)
    return 1


def _makes_a_copy(graph: fx.Graph) -> int:
    """What eager returns as a view is returned in memory of its own."""
    (node,) = (node for node in graph.nodes if node.target == "view")
    with graph.inserting_after(node):
        copy = graph.call_method("clone", (node,))
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
    return 1


def _returns_one_twice(graph: fx.Graph) -> int:
    first, second = graph.find_nodes(op="call_function", target=aten.add.Tensor)
    second.replace_all_uses_with(first)
    return 1


def _late(x: Tensor, y: Tensor) -> Any:
    old = x * 1
    x.add_(y)
    return old + x


def _swapped(x: Tensor, y: Tensor) -> Any:
    old = x * 1
    x.copy_(y)
    y.copy_(old)
    return x + y


def _sines(x: Tensor, y: Tensor) -> Any:
    first = x.sin()
    x.add_(y)
    return x.sin() + 1, first + 1


@pytest.mark.parametrize(
    ("function", "run", "stage", "complaint"),
    [
        (lambda x, y: x * 1, _uses_the_source, Stage.LOWERED, "share memory"),
        (lambda x, y: (x * 1).view(-1), _uses_the_source, Stage.LOWERED, "share memory"),
        (lambda x, y: (x + 1, x + 1), _returns_one_twice, Stage.LOWERED, "share memory"),
        (lambda x, y: x.view(-1), _makes_a_copy, Stage.TRACED, "share memory"),
        (_late, _reads_later, Stage.TRACED, "before or after other writes"),
        (_swapped, _copies_directly, Stage.LOWERED, "before or after other writes"),
        (_sines, _reads_earlier, Stage.TRACED, "before or after other writes"),
    ],
)
def test_a_pass_that_changes_what_shares_memory_is_undone(
    function: Callable[..., Any], run: Callable[[fx.Graph], int], stage: Stage, complaint: str
) -> None:
    """Shapes, dtypes and strides are what they were, and the numbers would be wrong."""
    reports: list[PassReport] = []
    with torch.no_grad():
        backend = in_aten([GraphPass("wrong", stage, run)], reports)
        assert _run(function, torch.float32) == _run(function, torch.float32, backend)
    assert any(complaint in (one.undone or "") for one in reports)


def test_a_running_statistic_is_read_between_the_same_writes() -> None:
    """F.batch_norm writes to it in training, without a name that says so."""

    def function(x: Tensor, mean: Tensor, variance: Tensor) -> Any:
        before = mean * 1
        result = torch.nn.functional.batch_norm(x, mean, variance, training=True)
        return result, before + mean

    reports: list[PassReport] = []
    given = torch.randn(4, 3), torch.zeros(3), torch.ones(3)
    expected = function(*(one.clone() for one in given))
    compiled = torch.compile(function, backend=in_aten([GraphPass("wrong", Stage.TRACED, _reads_later)], reports))
    torch.testing.assert_close(compiled(*given), expected)
    assert any("other writes" in (one.undone or "") for one in reports)


def test_two_rewrites_of_one_graph_are_looked_at_apart() -> None:
    """Only one of them reads memory that is written, and the other reaches the same output."""

    def function(x: Tensor, y: Tensor) -> Any:
        x.copy_(x * 1 + 1)
        x.add_(1)
        return torch.ones_like(y).neg().neg() * torch.ones(()), x

    reports: list[PassReport] = []
    with torch.no_grad():
        expected, actual = (_run(function, torch.float32, one) for one in (None, in_aten(choose_passes(), reports)))
    assert expected == actual
    assert "constant_folding" in {one.name for one in reports if one.fired}
    assert [] == [one.undone for one in reports if one.undone]


def test_a_graph_with_transformed_tensors_compiles() -> None:
    """Those of vmap have no memory of their own that anybody may ask about."""
    reports: list[PassReport] = []
    compiled = torch.compile(
        torch.vmap(lambda row: row.clone().add_(1) * 1.0), backend=in_aten(choose_passes(), reports)
    )
    assert [[2.0, 2.0], [2.0, 2.0]] == compiled(torch.ones(2, 2)).tolist()
    assert [] == [one.undone for one in reports if one.undone]
