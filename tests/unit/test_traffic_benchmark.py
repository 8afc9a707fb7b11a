"""What the benchmark of compiled models' traffic reads off Nsight Compute, and what it counts itself."""

from __future__ import annotations

import pytest
from benchmarks.compile.traffic import L2_BYTES, MEMORY_BYTES, Call, called, read_counters, table

RAW = """==PROF== Connected to process 7
{"launches": 2, "bytes": 96}
==PROF== Disconnected
"ID","Process ID","Kernel Name","dram__bytes.sum","lts__t_bytes.sum"
"","","","Kbyte","byte"
"0","7","spin_kernel","7","7"
"0","7","triton_poi_fused_0","1,024.5","2048"
"1","7","gemm, of a library","0.5","1,000"
"2","7","at::cuda::spin_kernel(long)","7","7"
"3","7","triton_poi_fused_1","2","3"
"""


def test_counters_are_summed_over_kernels_in_bytes() -> None:
    """Of each call by itself, whatever their unit, and however numbers are grouped."""
    first = (2, {L2_BYTES: 3048, MEMORY_BYTES: 1_025_000})
    assert [first, (1, {L2_BYTES: 3, MEMORY_BYTES: 2000})] == read_counters(RAW)
    assert [] == read_counters("nothing was profiled\n")


@pytest.mark.slow
def test_calls_are_counted_as_explain_counts_them() -> None:
    """Fewer launches and bytes where calls fuse."""
    eager, inductor, ours = (called("L2/1_SwiGLU", column, small=True) for column in ("eager", "inductor", "opsmith"))
    assert eager["launches"] > inductor["launches"] >= 1
    assert eager["bytes"] > inductor["bytes"] > 0
    assert inductor == ours


def test_the_table_has_what_was_said_and_what_was_seen() -> None:
    """Rows of counters only where there were any."""
    said = Call(said_launches=4, said_bytes=8_000_000)
    seen = Call(said_launches=2, said_bytes=2_000_000, launches=2, l2_bytes=3_000_000, memory_bytes=1_000_000)
    columns = ("eager", "inductor", "opsmith")
    lines = table({"A": dict.fromkeys(columns, seen), "B": dict.fromkeys(columns, said)})
    rows = [line.split()[:3] for line in lines.splitlines()[1:]]
    assert [["A", "launches", "said"], ["A", "launches", "seen"], ["A", "MB", "said"], ["A", "MB", "seen"]] == rows[:4]
    assert [["A", "MB", "memory"], ["B", "launches", "said"], ["B", "MB", "said"]] == rows[4:]
