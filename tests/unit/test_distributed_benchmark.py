"""What is measured of collectives is what nccl-tests would measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.distributed.bandwidth import SIZES, size_bytes
from benchmarks.distributed.rates import algorithm_gb_s, bus_gb_s

ROOT = Path(__file__).parents[2]


def test_algorithm_bandwidth_is_size_over_time() -> None:
    """In units of 1e9 bytes."""
    assert 2.0 == algorithm_gb_s(4_000_000_000, 2.0)


@pytest.mark.parametrize(
    ("collective", "ranks", "expected"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 2, 0.5),
        ("broadcast", 4, 1.0),
    ],
)
def test_bus_bandwidth_counts_what_a_rank_sends_at_least(collective: str, ranks: int, expected: float) -> None:
    """For 1 GB in 1 s that is the factor itself."""
    assert pytest.approx(expected) == bus_gb_s(collective, ranks, 1_000_000_000, 1.0)


def test_sizes_are_read_with_their_units() -> None:
    """The default ones reach from 1 KiB to 1 GiB."""
    sizes = [size_bytes(size) for size in SIZES.split(",")]
    assert 1 << 10 == sizes[0]
    assert 1 << 30 == sizes[-1]
    assert sorted(sizes) == sizes
    with pytest.raises(ValueError, match="write for example 64KiB"):
        size_bytes("64KB")


@pytest.mark.slow
def test_the_script_measures_and_compares_on_the_cpu(tmp_path: Path) -> None:
    """With gloo instead of NCCL; the sums of both sides are equal."""
    record = tmp_path / "record.json"
    command = [*(sys.executable, "-m", "benchmarks.distributed.bandwidth", "--device", "cpu", "--ranks", "2")]
    command += ["--sizes", "1KiB", "--dtype", "f32", "-o", str(record)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    found = json.loads(record.read_text())
    assert [] == found["wrong"]
    [row] = found["all_reduce"]
    # On 2 ranks an all-reduce has to send its size once.
    assert row["ours"]["algorithm_gb_s"] == row["ours"]["bus_gb_s"]
    assert pytest.approx(row["library"]["us"] / row["ours"]["us"], rel=0.01) == row["speedup"]
