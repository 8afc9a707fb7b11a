"""Kernels compile for a GPU, which running them under the interpreter does not show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.forks import Forks, forks_of

#: One op of each way of launching, small to compile.
OPS = (
    "relu.default,add.Tensor,sum.dim_IntList,_softmax.default,native_layer_norm.default,mm.default,cat.default,"
    "nonzero.default,_to_copy.default"
)


#: Compiles calls of the traces, as its arguments say.
COMPILING_TRACED = "from tests.offline_compile import main; main()"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Of a process where Triton compiles instead of interpreting."""
    with forks_of("tests.offline_compile", TRITON_INTERPRET="0") as found:
        yield found


def _compiled(forks: Forks, cache: Path, op: str, dtype: str, most: int) -> dict[str, list[str]]:
    """The PTX of what the first traced calls of an op launch, by kernel."""
    arguments = ["--ops", op, "--dtypes", dtype, "--most", str(most), "--suites", "traces"]
    assert 0 == forks.run(COMPILING_TRACED, *arguments, TRITON_CACHE_DIR=str(cache)).status
    codes: dict[str, list[str]] = {}
    for path in cache.glob("*/*.ptx"):
        codes.setdefault(path.stem, []).append(path.read_text())
    return codes


def test_one_op_of_each_family_compiles_for_hopper(forks: Forks) -> None:
    """What has been compiled on this machine is not compiled again."""
    shown = forks.run(COMPILING_TRACED, "--ops", OPS, "--most", "2", "--suites", "traces")
    assert 0 == shown.status, shown.output
    assert f"{{'compiled': {len(OPS.split(','))}}}" in shown.output


def test_factors_that_lie_along_the_result_are_read_16_bytes_at_a_time(forks: Forks, tmp_path: Path) -> None:
    """As the gradient of a weight has them: a turned left factor, and a right one that is row-major."""
    codes = _compiled(forks, tmp_path, "mm.default", "f16", 3)["matmul_kernel"]
    assert codes
    assert all("cp.async.cg.shared.global" in code and "ld.global.b16" not in code for code in codes)


@pytest.mark.parametrize(("dtype", "kernel"), [("f32", "scatter_kernel"), ("bf16", "add_repeats_kernel")])
def test_gradients_of_embeddings_are_added_four_at_a_time(
    forks: Forks, tmp_path: Path, dtype: str, kernel: str
) -> None:
    """Where 16 divides the size of a row: the index is of a whole row, within which places are neighbours."""
    codes = _compiled(forks, tmp_path, "embedding_dense_backward.default", dtype, 1)[kernel]
    assert codes
    assert all(".add.v4.f32" in code for code in codes)


def test_elements_of_a_ragged_call_are_moved_16_bytes_at_a_time(forks: Forks, tmp_path: Path) -> None:
    """The first traced one has 4 x 709 x 709 integers; only the last tile has a mask, and moves each by itself."""
    (code,) = _compiled(forks, tmp_path, "abs.default", "f16", 1)["map_kernel"]
    assert all(f"{access}.global.{width}" in code for access in ("ld", "st") for width in ("b64", "v2.b64"))


def test_long_rows_that_start_anywhere_are_moved_16_bytes_at_a_time(forks: Forks, tmp_path: Path) -> None:
    """Of 129,280, 128,256 and 128,100 elements: only the edges of a row are moved each by itself."""
    codes = _compiled(forks, tmp_path, "_log_softmax.default", "f16", 3)["softmax_contiguous_rows_kernel"]
    assert codes
    assert all(code.count("ld.global.b16") == code.count("st.global.b16") == 1 for code in codes)


def test_rows_of_a_tile_that_start_anywhere_are_moved_16_bytes_at_a_time(forks: Forks, tmp_path: Path) -> None:
    """Of 2,049 and 1,569 elements, among the first five traced ones: only the edges are moved each by itself."""
    codes = _compiled(forks, tmp_path, "_softmax.default", "f16", 5)["softmax_unaligned_rows_kernel"]
    assert codes
    assert all(code.count("ld.global.b16") == code.count("st.global.b16") == 1 for code in codes)


def test_planes_without_their_pads_are_written_16_bytes_at_a_time(forks: Forks, tmp_path: Path) -> None:
    """Rows of the gradient begin anywhere, those of the result of the traced calls do not."""
    codes = _compiled(forks, tmp_path, "reflection_pad2d_backward.default", "f32", 2)["mirrored_backward_kernel"]
    assert codes
    assert all("st.global.v4.b32" in code and "st.global.b32" not in code for code in codes)


def test_what_attention_has_summed_is_not_scaled_by_a_fused_difference(forks: Forks, tmp_path: Path) -> None:
    """``2^(a s - (b s))`` in one instruction is ``2^r`` for a = b, r being what rounding took off ``b s``."""
    codes = _compiled(forks, tmp_path, "_scaled_dot_product_flash_attention.default", "f16", 1)["attention_kernel"]
    assert codes
    for code in codes:
        made_by = _instructions(code)
        exponents = [made_by[argument][0] for name, argument in made_by.values() if name.startswith("ex2")]
        assert {"fma", "mul"} == {name.partition(".")[0] for name in exponents}


def _instructions(code: str) -> dict[str, tuple[str, str]]:
    """Register -> the instruction of PTX that writes it, and its operands."""
    written = re.findall(r"^\s*(?:@\S+ )?([a-z0-9.]+)\s+(%\w+), (.*);", code, re.MULTILINE)
    return {register: (name, operands) for name, register, operands in written}


#: Compiles kernels of special functions for Hopper; no traced model calls them.
COMPILING = """
import torch
from torch._subclasses import FakeTensorMode
from opsmith.prewarm.compiling import Compiler
compiler = Compiler(90)
from opsmith.kernels.special import incomplete_gamma
from opsmith.kernels.special import special_functions
with FakeTensorMode(allow_non_fake_inputs=True):
    x = torch.empty(1029, 917, dtype=torch.bfloat16, device="cuda")
    special_functions.polygamma(2, x)
    special_functions.special_zeta(x, x)
    incomplete_gamma.igammac(x, x)
"""


def test_special_functions_are_short_enough_to_compile_in_seconds(forks: Forks, tmp_path: Path) -> None:
    """83,000 lines of PTX, as the sums of zeta were when their terms lay one after another, take half a minute."""
    assert 0 == forks.run(COMPILING, TRITON_CACHE_DIR=str(tmp_path)).status
    lengths = [len(path.read_text().splitlines()) for path in tmp_path.glob("*/map_kernel.ptx")]
    assert 3 == len(lengths)
    assert max(lengths) < 25_000


#: Compiles scatters of numbers and means of a graph's edges, of which each names a row of its nodes.
COMPILING_SCATTERS = """
import torch
from torch._subclasses import FakeTensorMode
from opsmith.prewarm.compiling import Compiler
compiler = Compiler(90)
from opsmith.kernels.indexing import scattering
with FakeTensorMode(allow_non_fake_inputs=True):
    nodes, edges = torch.empty(1000, 256, device="cuda"), torch.empty(40000, 256, device="cuda")
    index = torch.empty_strided(edges.shape, (1, 0), dtype=torch.int64, device="cuda")
    scattering.scatter_value(nodes, 0, index.narrow(1, 0, 128), 0.0)
    scattering.scatter_value(nodes, 0, index, 0.0)
    scattering.scatter_reduce_two(nodes, 0, index, edges, "mean", include_self=False)
print(compiler.launches)
"""


def test_rows_that_an_index_names_are_written_and_added_16_bytes_at_a_time(forks: Forks, tmp_path: Path) -> None:
    """Lanes run along the rows, not along the index; names alone are read and counted in the index's order."""
    assert (0, f"{2 + 3 + 5}\n") == forks.run(COMPILING_SCATTERS, TRITON_CACHE_DIR=str(tmp_path))
    codes = [path.read_text() for path in tmp_path.glob("*/scatter_kernel.ptx")]
    wide, added, counted = "st.global.v4.b32", "add.v4.f32", "add.u32"
    assert 1 == sum(wide in code for code in codes) == sum(added in code for code in codes)
    assert 1 == sum(counted in code for code in codes)
    assert all("st.global.b32" not in code for code in codes)


#: Compiles gradients of norms over a single element, which has one weight.
COMPILING_NORMS = """
import torch
from torch._subclasses import FakeTensorMode
from opsmith.prewarm.compiling import Compiler
compiler = Compiler(90)
from opsmith.kernels.norms import group_norm_backward
from opsmith.kernels.norms import layer_norm_backward
def empty(*sizes):
    return torch.empty(sizes, device="cuda")
with FakeTensorMode(allow_non_fake_inputs=True):
    rows, parameter = empty(200, 1), empty(1)
    statistics = rows, rows
    layer_norm_backward.layer_norm_backward(rows, rows, [1], *statistics, parameter, parameter, [True, False, False])
    x, statistics = empty(50, 4, 1), (empty(50, 4), empty(50, 4))
    group_norm_backward.group_norm_backward(x, x, *statistics, empty(4), 50, 4, 1, 4, [True, False, False])
"""


def test_an_element_that_is_its_own_mean_has_no_gradient(forks: Forks, tmp_path: Path) -> None:
    """``g - g`` of a product: a compiler that multiplies and subtracts at once would leave what its rounding took."""
    assert 0 == forks.run(COMPILING_NORMS, TRITON_CACHE_DIR=str(tmp_path)).status
    codes = [path.read_text() for path in tmp_path.glob("*/g*_kernel.ptx")]
    # The one that is left takes the products with x away.
    assert [1, 1] == [code.count("fma.rn.f32") for code in codes]


#: Compiles gradients of softmaxes over few long rows whose neighbours in memory belong to other rows.
COMPILING_SOFTMAX = """
import torch
from torch._subclasses import FakeTensorMode
from opsmith.prewarm.compiling import Compiler
compiler = Compiler(90)
from opsmith.kernels.softmax import softmax_backward
with FakeTensorMode(allow_non_fake_inputs=True):
    x = torch.empty(2, 300000, 4, device="cuda")
    softmax_backward.softmax_backward(x, x, 1, x.dtype)
print(compiler.launches)
"""


def test_the_sums_of_several_rows_of_a_tile_are_merged(forks: Forks, tmp_path: Path) -> None:
    """A tile of splits and one of elements have masks of two shapes, which is an error where one name is both."""
    assert (0, "2\n") == forks.run(COMPILING_SOFTMAX, TRITON_CACHE_DIR=str(tmp_path))


#: Of ops whose kernels hold two tiles or read both parts of a number; the traces have no complex calls of them.
COMPLEX_CALLS = """
from opsmith.core.case import CallRecord, ComplexValue, TensorValue
from opsmith.prewarm.compiling import Compiler, kernel_function
from opsmith.prewarm.warming import shipped_entries

compiler, entries = Compiler(90), shipped_entries()
matrix, turned = (TensorValue(0, "c64", (3, 20, 20), strides, 0, "cuda:0") for strides in ((400, 20, 1), (400, 1, 20)))
for op, args in {
    "add.Tensor": (matrix, turned),
    "div.Scalar": (matrix, ComplexValue(1, 2)),
    "sgn.default": (matrix,),
    "angle.default": (matrix,),
    "mean.default": (matrix,),
    "bmm.default": (turned, matrix),
    "_linalg_solve_ex.default": (turned, matrix),
    "linalg_inv_ex.default": (matrix,),
}.items():
    before = compiler.launches
    compiler.call(kernel_function(entries[op]), CallRecord(op=op, args=args, kwargs={}, storages=()))
    print(op, compiler.launches - before)
"""


def test_kernels_of_complex_numbers_compile_for_hopper(forks: Forks, tmp_path: Path) -> None:
    """A product copies the turned factor and writes out the other one; a solution has three steps."""
    shown = forks.run(COMPLEX_CALLS, TRITON_CACHE_DIR=str(tmp_path))
    assert 0 == shown.status, shown.output
    launches = dict(line.split() for line in shown.output.splitlines())
    assert {"bmm.default": "3", "_linalg_solve_ex.default": "3", "angle.default": "1"}.items() <= launches.items()


#: Compiles what the low-precision problems launch at their full sizes, and grouped rows, which are no problem.
LOW_PRECISION = """
import torch
from torch._subclasses import FakeTensorMode
from opsmith.backends import manifest
from opsmith.core.kernel import SHIPPED_KERNELS
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.prewarm.compiling import Compiler, kernel_function
from opsmith.tasks.problem_module import import_problem

compiler, files = Compiler(90), problem_files(SHIPPED_PROBLEMS)
with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), torch.no_grad():
    for task, entry in manifest.read(SHIPPED_KERNELS).modules.items():
        problem = import_problem(files[task])
        kernel_function(entry.entry)(*problem.get_init_inputs())(*problem.get_inputs())
    a, b = torch.empty(4096, 2048).to(torch.float8_e4m3fn), torch.empty(8, 1024, 2048).to(torch.float8_e4m3fn)
    ends = torch.empty(8, dtype=torch.int32)
    grouped = kernel_function("low_precision/grouped_products.py:scaled_grouped_mm")
    grouped(a, b.mT, torch.empty(4096), torch.empty(8, 1024), ends, out_dtype=torch.bfloat16)
print(compiler.launches)
"""


#: Of a tile of 128 x 128 in 256 threads.
SUMS_OF_A_THREAD = 64


@pytest.mark.slow
def test_formats_of_8_bits_and_fewer_use_the_units_of_hopper(forks: Forks, tmp_path: Path) -> None:
    """Products of 8 bits, conversions to them, and tensor cores for what is widened; sums start anew at each step."""
    shown = forks.run(LOW_PRECISION, TRITON_CACHE_DIR=str(tmp_path))
    assert (0, "21\n") == shown, shown.output
    codes: dict[str, list[str]] = {}
    for path in tmp_path.glob("*/*.ptx"):
        codes.setdefault(path.stem, []).append(path.read_text())
    for name in ("scaled_product_kernel", "scaled_groups_kernel"):
        for code in codes[name]:
            assert re.search(r"wgmma\.mma_async\S*\.f32\.e4m3\.e4m3", code)
            assert "cp.async.cg.shared.global" in code
            # Each of a thread's sums is added, or scaled and added, to one that the tensor cores do not hold.
            assert SUMS_OF_A_THREAD <= len(re.findall(r"\b(?:add|fma)(?:\.rn)?\.f32", code))
    assert all(re.search(r"wgmma\.mma_async\S*\.f32\.bf16\.bf16", code) for code in codes["microscaled_product_kernel"])
    for name in ("quantize_groups_kernel", "norm_quantize_kernel"):
        assert all("cvt.rn.satfinite.e4m3x2.f32" in code for code in codes[name])
    assert all("cvt.rn.satfinite.e5m2x2.f32" in code for code in codes["delayed_kernel"])
