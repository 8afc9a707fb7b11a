"""Knobs: the constants of a Triton kernel that may be others, and the source with other values."""

from __future__ import annotations

import ast

from opsmith.generate.tuning.knobs import knobs, together, turned

SOURCE = """import triton
import triton.language as tl

BLOCK_K: tl.constexpr = 64
ROWS_PER_PROGRAM = 16
EPS = 16


@triton.jit
def first(x, n, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr, GROUP: tl.constexpr = 8):
    for _ in range(n):
        pass  # 1024


def run(é, n):
    first[triton.cdiv(n, 1024), triton.cdiv(n, 1024)](é, n, YBLOCK=1024, XBLOCK=1024, num_warps=8)
    first[(n // 256,)](é, n, XBLOCK=256, YBLOCK=BLOCK_K, num_stages=2)
    first[lambda meta: (1,)](é, n, **{})
"""


def test_tiles_warps_and_stages_are_found() -> None:
    """With a place in the grid where a tile divides one; numbers of other meaning are left alone."""
    assert {
        ("BLOCK_K", 64, 1),
        ("ROWS_PER_PROGRAM", 16, 1),
        ("GROUP", 8, 1),
        ("XBLOCK", 1024, 2),
        ("YBLOCK", 1024, 2),
        ("num_stages", 3, 1),
        ("num_warps", 8, 1),
        ("XBLOCK", 256, 2),
        ("num_warps", 4, 1),
        ("num_stages", 2, 1),
    } == {(knob.name, knob.value, len(knob.places)) for knob in knobs(SOURCE)}


def test_a_tile_is_turned_in_its_grid_too() -> None:
    """The first axis by the first tile, behind letters of several bytes."""
    [x] = [knob for knob in knobs(SOURCE) if (knob.name, knob.value) == ("XBLOCK", 1024)]
    changed = turned(SOURCE, {x: 512})
    assert "first[triton.cdiv(n, 512), triton.cdiv(n, 1024)](é, n, YBLOCK=1024, XBLOCK=512, num_warps=8)" in changed
    [row] = [new for new, old in zip(changed.splitlines(), SOURCE.splitlines(), strict=True) if new != old]
    assert "pass" not in row


def test_what_a_launch_does_not_say_is_put_behind_its_arguments() -> None:
    """The file stays Python, whatever is turned, and keeps its other lines."""
    found = knobs(SOURCE)
    changed = turned(SOURCE, {knob: knob.values[-1] for knob in found})
    ast.parse(changed)
    assert "num_warps=32, num_stages=5)" in changed or "num_stages=5" in changed
    assert [knob.values[-1] for knob in found] == [knob.value for knob in knobs(changed)]


def test_launches_that_do_the_same_are_tuned_alike() -> None:
    """A file of the compiler's has one for each kind of calls, and the clock sees few of them."""
    source = SOURCE.replace("XBLOCK=256", "XBLOCK=1024").replace("n // 256", "n // 1024")
    [tile] = [knob for knob in together(knobs(source)) if knob.name == "XBLOCK"]
    changed = turned(source, {tile: 2048})
    assert 2 == changed.count("XBLOCK=2048")
    assert "first[(n // 2048,)]" in changed
    assert "YBLOCK=1024" in changed


def test_stages_are_for_loops() -> None:
    """Triton pipelines nothing else."""
    assert "num_stages" not in {knob.name for knob in knobs(SOURCE.replace("for _ in range(n):", "if n:"))}


def test_a_file_without_triton_has_none() -> None:
    """Nor has one that is no Python."""
    assert [] == knobs("BLOCK_K = 64")
    assert [] == knobs("@triton.jit\ndef (")
