"""The all-reduce of the examples on ranks that share memory, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest
import torch
from tests.ranks_in_shared_memory import BUFFER_BYTES, CASES, PAD_BYTES, SHOTS, inputs, mapped

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120


def expected(number: int, ranks: int) -> torch.Tensor:
    """The reduction of all inputs in float64 or their own integers."""
    reduction, dtype, _ = CASES[number]
    given = [inputs(number, rank) for rank in range(ranks)]
    wide = [x.double() if dtype.is_floating_point else x for x in given]
    of_two = {"max": torch.maximum, "min": torch.minimum, "product": torch.mul}.get(reduction, torch.add)
    total = reduce(of_two, wide)
    return (total / ranks if reduction == "avg" else total).to(dtype)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_ranks_have_the_reduction_of_all(tmp_path: Path, ranks: int) -> None:
    """In one shot and in two, again and again in the same memory; what signals have written is taken away."""
    sizes = {"buffers": BUFFER_BYTES, "pads": PAD_BYTES}
    for name, size_bytes in sizes.items():
        mapped(tmp_path, name, ranks, size_bytes)[0].zero_()
    command = [sys.executable, "-m", "tests.ranks_in_shared_memory", str(tmp_path)]
    running = [subprocess.Popen([*command, str(rank), str(ranks)], cwd=ROOT) for rank in range(ranks)]
    try:
        assert [0] * ranks == [process.wait(TIMEOUT_S) for process in running]
    finally:
        for process in running:
            process.kill()
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(ranks)]
    for number in range(len(CASES)):
        right = expected(number, ranks)
        for shots in SHOTS:
            for again in range(2):
                for rank, result in enumerate(results):
                    where = f"{CASES[number]} in {shots}, rank {rank}"
                    assert torch.equal(right, result[shots, number, again]), where
    assert not any(pad.any() for pad in mapped(tmp_path, "pads", ranks, PAD_BYTES))
