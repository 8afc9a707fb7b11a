"""What plans make of Triton's launches: each parameter in the place and width in which the device's code takes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from opsmith.backends import manifest
from opsmith.backends.shipped import Shipped
from opsmith.dispatch.plans.triton_launches import Unrepeatable, repeatable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def offline() -> dict[str, Any]:
    """Launches of the shipped kernels as this Triton compiles them for an H100, and their plans."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.offline_launches"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_parameters_are_those_of_the_compiled_code(offline: dict[str, Any]) -> None:
    """As many as the code of the device takes, pointers where it takes pointers, and none wider than it takes it."""
    for launch in offline["launches"]:
        taken = [(int(bits), bool(pointer)) for bits, pointer in launch["parameters"]]
        scratch = [len(taken) - 2, len(taken) - 1]
        assert len(taken) == len(launch["slots"])
        assert [*map(int, launch["pointers"]), *scratch] == [n for n, (_, pointer) in enumerate(taken) if pointer]
        assert all(slot < 1 << bits for slot, (bits, _) in zip(launch["slots"], taken, strict=True))


def test_parameters_have_the_values_that_triton_passes(offline: dict[str, Any]) -> None:
    """Its launcher gets the same, tuples and constants included, from triton's own binding of arguments."""
    for launch in offline["launches"]:
        filled = [launch["pointers"].get(str(n), slot) for n, slot in enumerate(launch["slots"])]
        assert [*launch["passed"], 0, 0] == filled


def test_a_kernel_that_overlaps_waits_before_it_reads_or_writes(offline: dict[str, Any]) -> None:
    """In its code for the device."""
    assert [[True, "griddepcontrol.wait"]] * len(offline["launches"]) == [
        one["overlaps"] for one in offline["launches"]
    ]


def test_the_rest_of_a_launch_is_the_compiled_kernels(offline: dict[str, Any]) -> None:
    """Its handle, its threads, its shared memory."""
    for launch in offline["launches"]:
        assert launch["function"]
        assert launch["warps"][0] == launch["warps"][1]
        assert launch["shared"][0] == launch["shared"][1]
    kernels = {
        "map_kernel",
        "fold_kernel",
        "softmax_rows_kernel",
        "standardize_rows_kernel",
        "matmul_kernel",
        "attention_kernel",
        "copy_kernel",
        "gather_kernel",
        "scatter_kernel",
        "copy_named_kernel",
        "list_kernel",
        "draw_kernel",
        "lookup_kernel",
        "scan_kernel",
        "count_kernel",
        "running_sum_kernel",
        "masked_scatter_kernel",
        "sequence_kernel",
        "scaled_product_kernel",
        "scaled_groups_kernel",
    }
    assert kernels == {launch["kernel"] for launch in offline["launches"]}


def test_every_launch_of_triton_is_counted(offline: dict[str, Any]) -> None:
    """That is how one which went past the door is found out."""
    assert len(offline["launches"]) == offline["counted"]


def test_a_kernel_of_each_family_has_a_plan(offline: dict[str, Any]) -> None:
    """The manifest promises that its host code depends on a signature only.

    A sum over much needs two launches, as do a list of 80 tensors and draws by a running sum; what is written into a
    copy one more than the copy; a complex product writes both factors out before; sums of half types go through a
    workspace, whose part that is named may be a small one.
    """
    several = {
        **dict.fromkeys(("sum.default", "cat.default", "index_put.default", "_foreach_add_.Scalar"), 2),
        "multinomial.default": 2,
        **dict.fromkeys(("index_add_.default", "masked_scatter.default", "bmm.default"), 3),
        "scatter_add.default": 4,
    }
    assert {op: several.get(op, 1) for op in offline["plans"]} == offline["plans"]
    entries = manifest.read(Shipped().path).kernels
    assert all(entries[op].plans for op in offline["plans"])


def test_what_draws_takes_its_counter_anew(offline: dict[str, Any]) -> None:
    """The plan says by how many words the generator is moved on."""
    drawing = {"bernoulli_.float", "native_dropout.default", "multinomial.default"}
    drawing |= {"rand.default", "randint.low", "normal.float_float"}
    assert dict.fromkeys(drawing, 4) == {op: words for op, words in offline["drawn"].items() if words}


def compiled(**signature: Any) -> Any:
    """A compiled kernel with these parameters."""
    metadata = {"num_warps": 4, "num_ctas": 1, "shared": 0, "launch_cooperative_grid": False, "launch_pdl": False}
    return SimpleNamespace(
        function=1,
        metadata=SimpleNamespace(**metadata, global_scratch_size=0, profile_scratch_size=0),
        src=SimpleNamespace(signature=signature, fn=SimpleNamespace(arg_names=[*signature])),
    )


@pytest.mark.parametrize(
    ("kind", "value", "slot"),
    [
        ("i32", -1, 0xFFFFFFFF),
        ("i64", -1, 0xFFFFFFFFFFFFFFFF),
        ("i8", -2, 0xFE),
        ("u16", 65535, 65535),
        ("u1", True, 1),
        ("i1", False, 0),
        ("fp32", 1.0, 0x3F800000),
        ("fp32", -0.0, 0x80000000),
        ("fp64", 1, 0x3FF0000000000000),
    ],
)
def test_numbers_are_packed_as_the_device_reads_them(kind: str, value: float, slot: int) -> None:
    """In the first bytes of eight; the others are nobody's."""
    launch = repeatable(compiled(x=kind), (3,), (value,), {}, place_of=lambda _: None)
    assert ((3, 1, 1), (slot, 0, 0), ()) == (launch.grid, launch.slots, launch.pointers)


class Pair(NamedTuple):
    """A named tuple, as kernels take sizes, strides and constants."""

    first: Any
    second: Any


def test_named_tuples_are_packed_entry_by_entry_without_their_constants() -> None:
    """As tuples are, at any depth."""
    signature = {"x": Pair("i32", Pair("constexpr", "fp32")), "y": Pair("constexpr", "constexpr")}
    args = Pair(7, Pair(1, 1.0)), Pair(8, None)
    launch = repeatable(compiled(**signature), (1,), args, {}, place_of=lambda _: None)
    assert (7, 0x3F800000, 0, 0) == launch.slots


@pytest.mark.parametrize(
    ("signature", "grid", "args"),
    [
        ({"x": "*fp32"}, (1,), (torch.ones(1),)),
        ({"x": "*fp32"}, (1,), (1 << 40,)),
        ({"x": "bf16"}, (1,), (1.0,)),
        ({"x": "nvTmaDesc"}, (1,), (object(),)),
        ({"x": "tensordesc<fp16[64, 64]>"}, (1,), (object(),)),
        ({"x": ("i32", "i32")}, (1,), ((1,),)),
        ({"x": "i32", "left_to_its_default": "i32"}, (1,), (1,)),
    ],
)
def test_what_cannot_be_repeated_is_refused(signature: dict[str, Any], grid: Any, args: tuple[Any, ...]) -> None:
    """Tensors that the plan does not know, descriptors, defaults."""
    with pytest.raises(Unrepeatable):
        repeatable(compiled(**signature), grid, args, {}, place_of=lambda _: None)


def test_a_grid_may_be_a_function_of_the_arguments() -> None:
    """As most kernels have it; options of the compiler are among the arguments by name."""
    launch = repeatable(
        compiled(count="i32", BLOCK="constexpr"),
        lambda meta: (meta["count"] // meta["BLOCK"], meta["num_warps"]),
        (64,),
        {"BLOCK": 16, "num_warps": 8},
        place_of=lambda _: None,
    )
    assert ((4, 8, 1), (64, 0, 0)) == (launch.grid, launch.slots)


def test_the_interpreter_compiles_nothing_that_could_be_repeated() -> None:
    """Its launches return None."""
    with pytest.raises(Unrepeatable):
        repeatable(None, (1,), (), {}, place_of=lambda _: None)
