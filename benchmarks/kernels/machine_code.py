"""Machine code of what calls of the shipped kernels launch, compiled for Hopper without a GPU, and what differs.

A change of a kernel's source that is to leave its speed alone leaves its machine code alone. Run ``record`` in a tree
before the change and in one after it, then ``compare``:

    python -m benchmarks.kernels.machine_code record before.json --families attention,matmul
    python -m benchmarks.kernels.machine_code compare before.json after.json

Launches are compared in their order: grids, registers, spills, shared memory, and SASS as ``nvdisasm`` prints it
without addresses and the kernel's name, so kernels may be renamed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"  # Read when Triton is imported.

import torch
import triton
from torch import Tensor
from torch._subclasses import FakeTensorMode

from opsmith.prewarm.compiling import Compiler, kernel_function
from opsmith.prewarm.warming import shipped_entries

BF16, F16, F32, F64, I32 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32
Call = tuple[str, tuple[Any, ...]]
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def empty(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    """A dense tensor of a GPU that is not there."""
    return torch.empty(shape, dtype=dtype, device="cuda")


def softmaxes() -> Iterator[Call]:
    """Rows that fit a tile, short, long, unaligned and strided ones."""
    cases = [
        (empty(4096, 1024), -1),
        (empty(512, 4096, dtype=F32), -1),
        (empty(4096, 33, dtype=F16), -1),
        (empty(512, 2049, dtype=F16), -1),
        (empty(8, 129280), -1),
        (empty(4096, 128256), -1),
        (empty(64, 50257, dtype=F32), -1),
        (empty(64, 30000, 16), 1),
        (empty(8, 512, 64, 32), 1),
        (empty(2, 300000, 4, dtype=F32), 1),
        (empty(1, 1), -1),
    ]
    for x, dim in cases:
        for name in ("_softmax", "_log_softmax"):
            yield f"{name}.default", (x, dim, False)
            yield f"{name}_backward_data.default", (x, x, dim, x.dtype)
        yield "_safe_softmax.default", (x, dim)
        yield "logsumexp.default", (x, [dim])


def norms() -> Iterator[Call]:
    """Layer, group, batch and RMS norms and their gradients, of rows that fit a tile and of longer ones."""
    for x, shape in (
        (empty(4096, 1024), [1024]),
        (empty(64, 77, 768, dtype=F32), [768]),
        (empty(300, 33, 5, dtype=F16), [33, 5]),
        (empty(8, 1000000), [1000000]),
        (empty(512, 4096, 2).transpose(0, 2), [4096, 512]),
    ):
        for parameter in (empty(*shape, dtype=x.dtype), None):
            yield "native_layer_norm.default", (x, shape, parameter, parameter, 1e-5)
            rows = [*x.shape[: x.ndim - len(shape)], *[1] * len(shape)]
            statistic = empty(*rows, dtype=F32)
            mask = [True, parameter is not None, parameter is not None]
            args = (x, x, shape, statistic, statistic, parameter, parameter, mask)
            yield "native_layer_norm_backward.default", args
            yield "_fused_rms_norm.default", (x, shape, parameter, 1e-6)
            yield "_fused_rms_norm_backward.default", (x, x, shape, statistic, parameter, mask[:2])
    for x in (empty(32, 64, 56, 56), empty(32, 56, 56, 64, dtype=F32).permute(0, 3, 1, 2)):
        weight, statistic = empty(64, dtype=F32), empty(64, dtype=F32)
        yield "native_batch_norm.default", (x, weight, weight, statistic, statistic, True, 0.1, 1e-5)
        yield "native_batch_norm.default", (x, None, None, None, None, True, 0.1, 1e-5)
        yield "native_group_norm.default", (x, weight.to(x.dtype), weight.to(x.dtype), 32, 64, 56 * 56, 8, 1e-5)


def products() -> Iterator[Call]:
    """All layouts, alignments, precisions and types of two factors, sums that are split and sums in parts."""
    sizes = [
        (4096, 4096, 4096),
        (1024, 1024, 1024),
        (512, 512, 64),
        (300, 500, 700),
        (1002, 1004, 1006),
        (64, 64, 8192),
        (1, 4096, 4096),
        (4096, 16, 4096),
        (64, 256, 30522),
        (7, 9, 11),
    ]
    for m, n, k in sizes:
        for dtype in (BF16, F32):
            a, b = empty(m, k, dtype=dtype), empty(k, n, dtype=dtype)
            yield "mm.default", (a, b)
            yield "addmm.default", (empty(n, dtype=dtype), a, empty(n, k, dtype=dtype).t())
            yield "mm.default", (empty(k, m, dtype=dtype).t(), b)
    yield "mm.default", (empty(64, 500000), empty(500000, 64))
    yield "mm.default", (empty(4096, 12544, dtype=F16), empty(12544, 4096, dtype=F16))
    for dtype in (F64, I32, F16):
        yield "bmm.default", (empty(8, 128, 256, dtype=dtype), empty(8, 256, 128, dtype=dtype))
        odd = empty(8, 99, 65, dtype=dtype), empty(8, 65, 96, dtype=dtype)
        yield "baddbmm.default", (empty(8, 1, 96, dtype=dtype), *odd)
        yield "addbmm.default", (empty(99, 96, dtype=dtype), *odd)
    ends = torch.empty(8, dtype=I32, device="cuda")
    yield "_grouped_mm.default", (empty(4096, 512), empty(8, 512, 768), ends)
    yield "_grouped_mm.default", (empty(4096, 512), empty(8, 768, 512).mT, ends)
    yield "_grouped_mm.default", (empty(512, 4096), empty(4096, 768), ends)
    yield "_grouped_mm.default", (empty(4096, 512).t(), empty(4096, 768), ends)


def tf32_products() -> Iterator[Call]:
    """Products of float32 where torch allows TF32."""
    for m, n, k in ((4096, 4096, 4096), (300, 500, 700), (64, 64, 8192)):
        yield "mm.default", (empty(m, k, dtype=F32), empty(k, n, dtype=F32))


def convolutions() -> Iterator[Call]:
    """One of each way: implicit GEMM, depthwise and of single positions; with their gradients."""
    for dtype in (BF16, F32):
        for x, w, groups, stride in (
            (empty(32, 64, 56, 56, dtype=dtype), empty(128, 64, 3, 3, dtype=dtype), 1, 2),
            (empty(32, 64, 56, 56, dtype=dtype), empty(64, 1, 3, 3, dtype=dtype), 64, 1),
            (empty(32, 64, 57, 55, dtype=dtype), empty(64, 16, 1, 1, dtype=dtype), 4, 1),
        ):
            rule = ([stride] * 2, [w.shape[2] // 2] * 2, [1, 1])
            yield "convolution.default", (x, w, None, *rule, False, [0, 0], groups)
            out = [-(-size // stride) for size in x.shape[2:]]
            dy = empty(x.shape[0], w.shape[0], *out, dtype=dtype)
            args = (dy, x, w, None, *rule, False, [0, 0], groups, [True, True, False])
            yield "convolution_backward.default", args


def heads(batch: int, count: int, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Of a projection: rows first in memory."""
    return empty(batch, rows, count, columns, dtype=dtype).transpose(1, 2)


def attentions() -> Iterator[Call]:
    """Flash and memory-efficient attention and their gradients."""
    for dtype, columns, rows, keys, group, causal in (
        (BF16, 128, 4096, 4096, 1, True),
        (BF16, 128, 2048, 2048, 4, True),
        (F16, 64, 1024, 1024, 1, False),
        (F16, 64, 1000, 777, 1, False),
        (BF16, 80, 500, 500, 1, False),
        (BF16, 256, 1024, 1024, 1, True),
        (F16, 128, 1, 4096, 8, False),
        (BF16, 64, 1, 300, 1, False),
    ):
        q, k = heads(2, 8, rows, columns, dtype), heads(2, 8 // group, keys, columns, dtype)
        yield "_scaled_dot_product_flash_attention.default", (q, k, k, 0.0, causal)
        lse, state = empty(2, 8, rows, dtype=F32), torch.empty(2, dtype=torch.uint64, device="cuda")
        yield (
            "_scaled_dot_product_flash_attention_backward.default",
            (q, q, k, k, q, lse, None, None, rows, keys, 0.0, causal, state, state),
        )
    state = torch.empty((), dtype=torch.int64, device="cpu")
    for dtype, columns, rows, with_bias, dropout, causal in (
        (F32, 64, 1024, False, 0.0, True),
        (F32, 32, 2048, False, 0.0, False),
        (F32, 128, 2048, False, 0.0, False),
        (F32, 64, 100, True, 0.0, False),
        (F32, 48, 77, True, 0.0, True),
        (F16, 64, 512, True, 0.0, False),
        (BF16, 40, 1000, True, 0.0, True),
        (BF16, 64, 512, False, 0.1, False),
        (F32, 64, 2048, True, 0.1, True),
    ):
        q = heads(2, 8, rows, columns, dtype)
        bias = empty(2, 8, rows, rows, dtype=dtype) if with_bias else None
        yield "_scaled_dot_product_efficient_attention.default", (q, q, q, bias, True, 0.0, causal)
        if dropout:
            yield "_scaled_dot_product_efficient_attention.default", (q, q, q, bias, True, dropout, causal)
        lse = empty(2, 8, -(-rows // 32) * 32, dtype=F32)
        mask = [True, True, True, with_bias]
        args = (q, q, q, q, bias, q, lse, state, state, 0.0, mask, causal)
        yield "_scaled_dot_product_efficient_attention_backward.default", args
    ragged, starts = empty(1, 3000, 8, 64), torch.empty(9, dtype=I32, device="cuda")
    yield "_efficient_attention_forward.default", (ragged, ragged, ragged, None, starts, starts, 512, 512, 0.0, 1, True)
    # A head of one row and one column: all strides that can be 1 are 1.
    one = empty(1, 1, 1, 1)
    yield "_scaled_dot_product_flash_attention.default", (one, one, one, 0.0, True)


FAMILIES: dict[str, Callable[[], Iterator[Call]]] = {
    "softmax": softmaxes,
    "norms": norms,
    "matmul": products,
    "tf32": tf32_products,
    "convolution": convolutions,
    "attention": attentions,
}


class Recorder(Compiler):
    """Keeps what each launch was compiled to."""

    def __init__(self) -> None:
        super().__init__(90)
        self.codes: list[dict[str, Any]] = []
        self._known: dict[str, dict[str, Any]] = {}

    def _launch(self, kernel: Any, grid: tuple[int, ...], device: torch.device, *args: Any, **meta: Any) -> Any:
        binary = super()._launch(kernel, grid, device, *args, **meta)
        if binary.hash not in self._known:
            self._known[binary.hash] = described(binary)
        self.codes.append({"kernel": kernel.__name__, "grid": list(grid), **self._known[binary.hash]})
        return binary


def described(binary: Any) -> dict[str, Any]:
    """The instructions of a compiled kernel, and what it takes of a multiprocessor."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        code = _run("nvdisasm", "-c", "-novliw", file.name)
        usage = _run("cuobjdump", "--dump-resource-usage", file.name)
    registers = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert registers, usage
    return {
        "registers": int(registers[1]),
        "stack": int(registers[2]),
        "shared": binary.metadata.shared,
        "warps": binary.metadata.num_warps,
        "sass": [normalised(line) for line in code.splitlines() if "/*" in line or line.lstrip().startswith(".L")],
    }


def _run(tool: str, *args: str) -> str:
    return subprocess.run([_TOOLS / tool, *args], capture_output=True, text=True, check=True).stdout  # noqa: S603 - Triton's own tools.


def normalised(line: str) -> str:
    """An instruction without its address and the kernel's name."""
    line = re.sub(r"/\*[0-9a-fx]+\*/", "", line).strip()
    return re.sub(r"\b\w+_kernel\b", "KERNEL", line)


def record(into: Path, families: Sequence[str]) -> None:
    """Compile the calls of some families, and write what they launch."""
    recorder, entries = Recorder(), shipped_entries()
    calls = {}
    for family in families:
        torch.backends.cuda.matmul.fp32_precision = "tf32" if family == "tf32" else "ieee"
        with FakeTensorMode(allow_non_fake_inputs=True):
            for number, (op, args) in enumerate(FAMILIES[family]()):
                before = len(recorder.codes)
                kernel_function(entries[op])(*args)
                calls[f"{family} {number} {op}"] = recorder.codes[before:]
    into.write_text(json.dumps(calls))
    print(f"{len(calls)} calls, {recorder.launches} launches, {recorder.compiled} kernels compiled")


def compare(before: Path, after: Path) -> int:
    """Tell which launches differ in what; 1 if any does."""
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    counts: Counter[tuple[str, bool]] = Counter()
    for call in old:
        launches = old[call], new.get(call, [])
        if len(launches[0]) != len(launches[1]):
            counts["launches", False] += 1
            print(call, *([one["kernel"] for one in found] for found in launches))
        for ours, theirs in zip(*launches, strict=False):
            differences = [name for name in ours if name != "kernel" and ours[name] != theirs[name]]
            counts[ours["kernel"], not differences] += 1
            if differences:
                pairs = [(name, ours[name], theirs[name]) for name in differences if name != "sass"]
                print(call, ours["kernel"], *pairs, "lines of SASS", len(ours["sass"]), len(theirs["sass"]))
    for (kernel, same), count in sorted(counts.items()):
        print(f"{kernel}: {count} {'same' if same else 'different'}")
    return int(any(not same for _, same in counts))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="compile the calls, and write what they launch")
    recording.add_argument("into", type=Path)
    recording.add_argument("--families", default=",".join(FAMILIES), help="of %(default)s")
    comparing = commands.add_parser("compare", help="tell what differs; 1 if anything does")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        return compare(options.before, options.after)
    record(options.into, options.families.split(","))
    return 0


if __name__ == "__main__":
    sys.exit(main())
