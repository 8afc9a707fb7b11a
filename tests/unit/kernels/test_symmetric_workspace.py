"""Symmetric memory of a group is met in once, and again when torch has made another workspace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed._symmetric_memory as symm_mem

from opsmith.kernels.communication import symmetric

GROUP = "a group of this test"


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each meeting of ranks, as torch's function would make them."""
    made: list[int] = []
    workspaces: dict[str, torch.Tensor] = {}

    def get_symm_mem_workspace(group: str, min_size: int) -> object:
        if group not in workspaces or workspaces[group].numel() < min_size:
            workspaces[group] = torch.empty(min_size, dtype=torch.uint8)
        made.append(min_size)
        return object()

    monkeypatch.setattr(symm_mem, "_group_name_to_workspace_tensor", workspaces)
    monkeypatch.setattr(symm_mem, "get_symm_mem_workspace", get_symm_mem_workspace)
    monkeypatch.setattr(symmetric, "_workspaces", {})
    monkeypatch.setattr(symmetric, "INTERPRETED", False)
    return made


def test_ranks_meet_once_for_calls_that_fit(meetings: list[int]) -> None:
    """A smaller call takes what is there."""
    first = symmetric.memory_of(GROUP, symmetric.LEAST_BYTES)
    assert symmetric.memory_of(GROUP, 1) is first
    assert meetings == [symmetric.LEAST_BYTES]


def grow() -> None:
    """As somebody else's call does that needs more."""
    symm_mem.get_symm_mem_workspace(GROUP, 4 * symmetric.LEAST_BYTES)  # type: ignore[arg-type]


def forget() -> None:
    """As where a new group bears the name of an old one."""
    symm_mem._group_name_to_workspace_tensor.clear()


@pytest.mark.parametrize("change", [grow, forget])
def test_ranks_meet_again_where_torch_has_another_workspace(meetings: list[int], change: Callable[[], object]) -> None:
    """Nobody reads what lies in the old one."""
    first = symmetric.memory_of(GROUP, 1)
    change()
    before = len(meetings)
    second = symmetric.memory_of(GROUP, 1)
    assert second is not first
    assert len(meetings) == before + 1
    assert symmetric.memory_of(GROUP, 1) is second


def test_ranks_meet_again_for_a_larger_call(meetings: list[int]) -> None:
    """Which the old workspace would be too small for."""
    symmetric.memory_of(GROUP, 1)
    symmetric.memory_of(GROUP, 2 * symmetric.LEAST_BYTES)
    assert meetings == [symmetric.LEAST_BYTES, 2 * symmetric.LEAST_BYTES]
