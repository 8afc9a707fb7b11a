"""Symmetric memory that was connected ahead is what kernels allocate."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from opsmith.runner.worker.symmetric_pool import SymmetricPool


@pytest.fixture
def pool() -> SymmetricPool:
    """Two small blocks and a large one; what ranks got in each is its name."""
    return SymmetricPool(
        [(torch.zeros(size, dtype=torch.uint8), name) for name, size in zip("abc", (64, 64, 256), strict=True)]
    )


def test_a_tensor_lies_at_the_start_of_the_smallest_block(pool: SymmetricPool) -> None:
    """Where its peers' parts are is what ranks got when they met there."""
    one, large, other = pool.empty(4, 4), pool.empty((2, 20), dtype=torch.float32), pool.empty(3, dtype=torch.bfloat16)
    assert ["a", "c", "b"] == [pool.rendezvous(tensor, None) for tensor in (one, large, other)]
    assert [(4, 4), (2, 20), (3,)] == [tuple(tensor.shape) for tensor in (one, large, other)]


def test_a_block_is_given_out_again_when_its_tensor_is_gone(pool: SymmetricPool) -> None:
    """A kernel may allocate in each call."""
    assert ["a", "b", "c", "a", "b"] == [pool.rendezvous(pool.empty(16)) for _ in range(5)]
    kept = [pool.empty(16), pool.empty(16), pool.empty(16)]
    with pytest.raises(MemoryError, match="no symmetric memory"):
        pool.empty(16)
    name = pool.rendezvous(kept.pop(1))
    assert name == pool.rendezvous(pool.empty(16))


def test_what_ranks_never_met_in_is_refused(pool: SymmetricPool) -> None:
    """With what to do."""
    with pytest.raises(ValueError, match="symmetric_memory.empty"):
        pool.rendezvous(torch.empty(4))


def test_only_what_somebody_has_is_spoiled(pool: SymmetricPool) -> None:
    """The whole block, since peers may write beyond a tensor."""
    tensor = pool.empty(4)
    pool.spoil()
    assert bool(tensor.isnan().all())
    assert [255, 0, 0] == [int(content.max()) for content, _ in pool._blocks]


def test_torchs_module_gives_them_out(pool: SymmetricPool) -> None:
    """Under the names that people use."""
    module: Any = ModuleType("symmetric")
    pool.offer(module)
    assert "a" == module.rendezvous(module.empty(8), "group")
