"""A pass that fails is undone and named, and users can bring passes of their own."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.graphs import outcome
from torch import Tensor, fx

from opsmith.compile import choose_passes, forget_pass, graph_pass
from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.errors import BadInput, UnknownName

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "compile-a-model.md"


def _function(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return (x @ y.T).relu().sum(-1)


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _raises(graph: fx.Graph) -> int:
    graph.erase_node(graph.output_node())
    raise ValueError("out of cheese")


def _leaves_a_dangling_node(graph: fx.Graph) -> int:
    other = fx.Graph()
    _calls(graph)[-1].args = (other.placeholder("x"),)
    return 1


def _changes_the_dtype(graph: fx.Graph) -> int:
    returned: Any = graph.output_node().args[0]
    last: fx.Node = returned[0]
    with graph.inserting_after(last):
        new = graph.call_function(torch.ops.aten._to_copy.default, (last,), {"dtype": torch.float64})
    last.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    return 1


def _changes_the_shape(graph: fx.Graph) -> int:
    total = next(node for node in _calls(graph) if node.target is torch.ops.aten.sum.dim_IntList)
    total.args = (total.args[0], [-2])
    return 1


def _drops_a_write(graph: fx.Graph) -> int:
    write = next(node for node in _calls(graph) if node.target is torch.ops.aten.copy_.default)
    write.replace_all_uses_with(write.args[1])  # type: ignore[arg-type]
    graph.erase_node(write)
    return 1


@pytest.mark.parametrize(
    "broken", [_raises, _leaves_a_dangling_node, _changes_the_dtype, _changes_the_shape, _drops_a_write]
)
def test_a_failing_pass_is_undone_and_named(
    broken: Callable[[fx.Graph], int], caplog: pytest.LogCaptureFixture
) -> None:
    """The passes after it see the graph of before it, and the result is right."""
    after: list[int] = []

    def last(graph: fx.Graph) -> int:
        after.append(len(graph.nodes))
        return 0

    passes = [GraphPass(broken.__name__, Stage.LOWERED, broken), GraphPass("last", Stage.LOWERED, last)]
    with caplog.at_level(logging.WARNING, logger="opsmith"):
        found = outcome(_function, [X, X[:3] + 1], passes, gradients=False)
    undone = found.reports[0]
    assert [f"the pass {broken.__name__} is undone"] == [
        message.partition(" on a")[0] for message in caplog.messages if message.startswith("the pass")
    ]
    assert (0, undone.nodes_before, [undone.nodes_before]) == (undone.fired, undone.nodes_after, after)
    found.assert_equal()


def _drops_the_last_call(graph: fx.Graph) -> int:
    last = _calls(graph)[-1]
    last.replace_all_uses_with(last.args[0])  # type: ignore[arg-type]
    graph.erase_node(last)
    return 1


def test_a_traced_graph_that_is_put_back_compiles(caplog: pytest.LogCaptureFixture) -> None:
    """With the sources of its inputs, which the guards of the compiled graph are made of."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y.T).sum(-1, keepdim=True).expand(-1, 3).float()[:, 0]

    with caplog.at_level(logging.WARNING, logger="opsmith"):
        found = outcome(function, [X, X[:3] + 1], [GraphPass("drops", Stage.TRACED, _drops_the_last_call)])
    assert "outputs changed" in str(found.reports[0].undone)
    assert ["the pass drops is undone"] == [
        message.partition(" on a")[0] for message in caplog.messages if message.startswith("the pass")
    ]
    found.assert_equal()


@pytest.fixture
def documented() -> Iterator[str]:
    """The example of the documentation, executed as it stands there."""
    source = re.search(
        r"```python\n(import torch\nfrom opsmith\.compile import graph_pass.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert source is not None
    exec(source[1], {})
    yield source[1]
    forget_pass("double_negation")


def test_the_documented_pass_runs_and_is_short(documented: str) -> None:
    """Ten lines, from its decorator on, and it does what it says."""
    assert len(documented.partition("@graph_pass")[2].strip().splitlines()) <= 10
    found = outcome(lambda x: x.neg().neg() + 1, [X], choose_passes("double_negation"), gradients=False)
    assert 1 == found.fired
    found.assert_equal(rtol=0, atol=0)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("none", []),
        ("dead_code", ["dead_code"]),
        (["dead_code", "attention"], ["attention", "dead_code"]),
        ("dead_code,canonicalise", ["canonicalise", "dead_code"]),
    ],
)
def test_passes_are_chosen_by_name_and_run_in_their_own_order(wanted: str | list[str], names: list[str]) -> None:
    """As a list or with commas."""
    assert names == [one.name for one in choose_passes(wanted)]


def test_a_minus_leaves_a_pass_out() -> None:
    """And all others in."""
    assert {"attention"} == {one.name for one in choose_passes("all")} - {
        one.name for one in choose_passes("-attention")
    }


def test_a_wrong_name_is_told() -> None:
    """With the nearest one, or with whose name it is."""
    with pytest.raises(UnknownName, match="did you mean attention"):
        choose_passes("atention")
    with pytest.raises(BadInput, match="give yours another name"):
        graph_pass("attention")
    with pytest.raises(UnknownName, match="pass of yours"):
        forget_pass("nothing")
