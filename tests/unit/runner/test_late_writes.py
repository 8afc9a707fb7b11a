"""What is written after a call has returned shows."""

from __future__ import annotations

import torch

from opsmith.runner.worker.late_writes import KeptMemory


def test_memory_that_stays_has_not_changed() -> None:
    """Of any dtype and layout, empty ones too."""
    wide = torch.randn(6, 8)
    kept = KeptMemory([wide[::2, ::3].t(), torch.empty(0), torch.tensor(True), torch.randn(3).to(torch.bfloat16)])
    assert not kept.has_changed()


def test_one_bit_of_one_element_is_enough() -> None:
    """Wherever in a strided tensor it is."""
    wide = torch.zeros(6, 8)
    kept = KeptMemory([torch.ones(2), wide[::2, ::3]])
    wide[4, 6] = -0.0
    assert kept.has_changed()


def test_what_lies_between_elements_is_nobodys() -> None:
    """A peer may write its own part of the memory that a result is a view of."""
    wide = torch.zeros(6, 8)
    kept = KeptMemory([wide[::2]])
    wide[1] = 1
    assert not kept.has_changed()
