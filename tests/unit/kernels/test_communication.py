"""Opsmith's communicating kernels on ranks that share memory, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.communication_in_shared_memory import BUFFER_BYTES, PAD_BYTES, cases, problem, tasks
from tests.ranks_in_shared_memory import mapped
from torch.utils._pytree import tree_map

from opsmith.kernels.communication.experts import _counts

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240
#: What a result in a dtype may be off by, of its largest: sums of some hundred terms, rounded on their way.
TOLERANCE = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def answers_of_ranks(folder: Path, ranks: int) -> list[dict[str, list[list[torch.Tensor]]]]:
    """Run all ranks as processes; what each of them answered."""
    for name, size_bytes in (("buffers", BUFFER_BYTES), ("pads", PAD_BYTES)):
        mapped(folder, name, ranks, size_bytes)[0].zero_()
    command = [sys.executable, "-m", "tests.communication_in_shared_memory", str(folder)]
    running = [subprocess.Popen([*command, str(rank), str(ranks)], cwd=ROOT) for rank in range(ranks)]
    try:
        assert [0] * ranks == [process.wait(TIMEOUT_S) for process in running]
    finally:
        for process in running:
            process.kill()
    assert not any(pad.any() for pad in mapped(folder, "pads", ranks, PAD_BYTES)), "a signal was not taken away"
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def in_float64(leaf: Any) -> Any:
    """A leaf of some inputs, its floats in float64."""
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def assert_close(right: torch.Tensor, found: torch.Tensor, where: str) -> None:
    """Equal, or as close as its type allows."""
    assert right.shape == found.shape, where
    if not found.is_floating_point():
        assert torch.equal(right, found), where
    elif found.numel():
        off = (right - found.double()).abs().max() / right.abs().max().clamp(min=1)
        assert off <= TOLERANCE[found.dtype], (where, float(off))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_rank_has_what_the_problems_say(tmp_path: Path, ranks: int) -> None:
    """Of every size, dtype and layout, and the same bits where all ranks have the same result."""
    of_ranks = answers_of_ranks(tmp_path, ranks)
    for task in tasks():
        loaded = problem(task)
        for label, inputs in cases(loaded, ranks):
            programs: list[Any] = [([tuple(tree_map(in_float64, own))], [0], []) for own in inputs]
            for rank, reference in enumerate(loaded.reference(*programs)):
                right = reference[0] if isinstance(reference[0], (tuple, list)) else [reference[0]]
                for answers in of_ranks[rank][f"{task} {label}"]:
                    for number, (own, found) in enumerate(zip(right, answers, strict=True)):
                        assert_close(own, found, f"{task} {label}, rank {rank}, result {number}")
                        if number in loaded.replicated:
                            first = of_ranks[0][f"{task} {label}"][0][number]
                            assert torch.equal(first, found), f"{task} {label}, rank {rank}: other bits than rank 0"


@pytest.mark.parametrize("experts", [1, 24, 256])
@pytest.mark.parametrize("choices", [0, 1, 2500])
def test_the_choices_of_each_expert_are_counted(choices: int, experts: int) -> None:
    """Of many programs' choices, and where the experts are no power of two."""
    chosen = torch.randint(experts, (choices,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.bincount(chosen, minlength=experts), _counts(chosen, experts))
