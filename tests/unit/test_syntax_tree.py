"""Python source as a tree: from many threads, and with one kind of error."""

from __future__ import annotations

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from opsmith.core.syntax_tree import expression_tree, syntax_tree

SOURCE = "\n".join(f"def f{n}(x):\n    return ((x + {n})) if x else [[[x[{n}]]]]" for n in range(30))


@pytest.fixture
def _others_come_between() -> Iterator[None]:
    """Whatever allocates memory lets another thread run, as it does where a collection runs Python."""

    def give_way(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(20)
    gc.callbacks.append(give_way)
    yield
    gc.callbacks.remove(give_way)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_others_come_between")
def test_threads_parse_at_a_time() -> None:
    """Python 3.11 raises SystemError where two parse without a lock."""
    with ThreadPoolExecutor(8) as threads:
        trees = list(threads.map(syntax_tree, [SOURCE] * 64))
    assert {30} == {len(tree.body) for tree in trees}


@pytest.mark.parametrize("source", ["def f(:", "x = 1\0", "-" * 200_000 + "1", "(" * 1000])
def test_what_does_not_parse_is_a_syntax_error(source: str) -> None:
    """Whatever Python itself raises of it."""
    with pytest.raises(SyntaxError) as raised:
        syntax_tree(source)
    assert str(raised.value)


def test_an_expression_is_one() -> None:
    """As ast.parse has it."""
    assert isinstance(expression_tree("a + 1"), ast.BinOp)
