"""Every page of a block's results is read before the block ends, whatever the results are."""

from __future__ import annotations

import ctypes
import mmap
import resource
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from opsmith.calls.live import LiveCall
from opsmith.evaluation.timing.result_memory import ResultMemory, written_arguments

PAGES = 64


def untouched(pages: int = PAGES) -> torch.Tensor:
    """Memory of which no page was ever read."""
    return torch.frombuffer(mmap.mmap(-1, pages * mmap.PAGESIZE), dtype=torch.uint8)


def pages_read(read: Callable[[], None]) -> int:
    """Pages that were not there before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    read()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def warm(memory: ResultMemory) -> None:
    """So that nothing else causes a page fault."""
    memory.read([torch.zeros(PAGES * mmap.PAGESIZE, dtype=torch.uint8)] * 3, [])


@pytest.mark.parametrize(
    ("results", "pages"),
    [
        (lambda: [untouched() for _ in range(3)], 3 * PAGES),
        (lambda: [(untouched(), untouched(), 3) for _ in range(2)], 4 * PAGES),
        (lambda: [[untouched(), None, [untouched()]]], 2 * PAGES),
        (lambda: [{"one": untouched(), "other": untouched()}], 2 * PAGES),
        (lambda: [untouched().view(2, -1).t()], PAGES),
        (lambda: [untouched()[:: mmap.PAGESIZE]], PAGES),
        (lambda: [torch.nn.Parameter(untouched().view(torch.float32))], PAGES),
        (lambda: [[untouched()], [untouched(), untouched()]], 3 * PAGES),
        (lambda: [untouched()[1 : -mmap.PAGESIZE]], PAGES - 1),
    ],
    ids=["tensors", "tuples", "lists", "dicts", "transposed", "strided", "parameter", "lengths", "unaligned"],
)
def test_every_page_is_read(results: Callable[[], list[Any]], pages: int) -> None:
    """Once, in whatever the calls return."""
    memory = ResultMemory("neg.default")
    warm(memory)
    made = results()
    assert pages <= pages_read(lambda: memory.read(made, [])) <= pages + 8
    assert pages_read(lambda: memory.read(made, [])) <= 8


def test_results_that_differ_in_size_are_each_read_as_a_whole() -> None:
    """A block's are taken to be alike until one was seen that is not."""
    memory = ResultMemory("nonzero.default")
    warm(memory)
    memory.compare([untouched(1), untouched(PAGES)])
    made = [untouched(1), untouched(PAGES)]
    assert pages_read(lambda: memory.read(made, [])) > PAGES


def test_nothing_is_read_of_what_has_no_memory_on_the_host() -> None:
    """Empty results, other devices, other layouts, no results at all."""
    memory = ResultMemory("neg.default")
    for results in ([], [None], [torch.empty(0)], [torch.empty(3, device="meta")], [torch.eye(3).to_sparse()], [1.5]):
        memory.read(results, [])
        memory.compare(results)
        assert [] == memory.spans(results, [])


def test_arguments_that_a_call_writes_to_are_read() -> None:
    """Where they are not what it returns."""
    assert (0,) == written_arguments("_foreach_add_.Scalar")
    assert () == written_arguments("add_.Tensor")
    assert () == written_arguments("add.out")
    assert () == written_arguments("a module")
    memory = ResultMemory("_foreach_neg_.default")
    warm(memory)
    live = cast("LiveCall", type("Live", (), {"args": ([untouched(), untouched()],), "kwargs": {}}))
    assert pages_read(lambda: memory.read([None], [live])) >= 2 * PAGES


def test_spans_are_those_of_elements() -> None:
    """From the first one to behind the last one."""
    tensor = torch.arange(100, dtype=torch.int16)[10:20]
    start = ctypes.addressof(ctypes.c_char.from_address(tensor.data_ptr()))
    assert [(start, start + 20)] == ResultMemory("neg.default").spans([tensor, tensor], [])


def test_arguments_that_are_only_read_have_spans_too() -> None:
    """Their memory may be protected against being written between two blocks."""
    result, argument = torch.zeros(10), torch.zeros(30)
    expected = [(tensor.data_ptr(), tensor.data_ptr() + 4 * len(tensor)) for tensor in (result, argument)]
    assert sorted(expected) == ResultMemory("neg.default").spans([result], [argument, torch.empty(0)])
