"""Compile the shipped kernels for a GPU without having one.

The interpreter runs a kernel as Python and checks no types. Here each op's host code runs on fake CUDA tensors, and
every kernel that it would launch is compiled for an architecture, down to machine code. The calls are OpInfo's and
the recorded ones of the traces, which have real sizes.

    python -m tests.offline_compile --ops 'add.Tensor,_softmax*' --dtypes f32,bf16
    python -m tests.offline_compile --dtypes f32 --most 6 --suites traces --arch 90
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import MockTensor

import opsmith.kernels
from opsmith.core.case import CallRecord, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.run import Selection
from opsmith.kernels import launch
from opsmith.runner.suite_index import SuiteIndex
from opsmith.suites.opinfo import OpInfoSuite
from opsmith.suites.traces import Traces

FOLDER = Path(opsmith.kernels.__file__).parent
#: Of the GPU that is stood in for.
MULTIPROCESSORS = 132
#: What a block may have on a Hopper GPU.
SHARED_MEMORY_BYTES = 227 << 10
_DTYPES = {short: getattr(torch, long) for short, long in TENSOR_DTYPES.items()}


class AbsentGPU:
    """What Triton asks a driver for before it compiles."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        """The GPU that is compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, _device: int) -> int:
        """The default one."""
        return 0


class Compiled:
    """Kernels compiled so far; ``count`` is what the present op has launched."""

    def __init__(self) -> None:
        self.count = 0

    def launch(self, kernel: Any, grid: tuple[int, ...], _device: torch.device, *args: Any, **meta: Any) -> None:
        """Stands in for :func:`opsmith.kernels.launch.launch`."""
        if not all(0 < size < limit for size, limit in zip(grid, (2**31, 2**16, 2**16), strict=False)):
            raise ValueError(f"a grid of {grid} cannot be launched")
        mocked = map(_mocked, map(launch.settled, args))
        binary = kernel.warmup(*mocked, grid=grid, **{name: _mocked(value) for name, value in meta.items()})
        if binary.metadata.shared > SHARED_MEMORY_BYTES:
            raise ValueError(f"{kernel.__name__} takes {binary.metadata.shared} bytes of shared memory")
        self.count += 1


def _mocked(value: Any) -> Any:
    """Stand-ins for the tensors in an argument: Triton reads their dtype and their alignment."""
    if isinstance(value, torch.Tensor):
        return _pointer(value.dtype, int(value.storage_offset()) * value.element_size() % 16)
    return tuple(map(_mocked, value)) if isinstance(value, tuple) else value


def _pointer(dtype: torch.dtype, address: int) -> MockTensor:
    mock = MockTensor(dtype)
    mock.data_ptr = lambda: address
    return mock


def calls_of(op: str, dtype: str, most: int, suites: Sequence[str]) -> Iterator[CallRecord]:
    """Up to ``most`` calls of an op from each suite."""

    def wanted(name: str, _signature: str) -> bool:
        return name == op

    for name in suites:
        suite: OpInfoSuite | Traces
        # Calls of the traces are made for a GPU, which gets larger ones; OpInfo's hold tensors and have none.
        suite, entries, device = (
            (OpInfoSuite(), _entries(op, dtype), "cpu") if name == "opinfo" else (_traces(), [op], "cuda")
        )
        found = 0
        for entry in entries:
            if entry not in suite.entries(dtype, device):
                continue
            for call in suite.calls(entry, dtype, device, 0, wanted):
                record = getattr(call, "record", None)
                if record is None or record.op != op or getattr(call, "expects_error", False):
                    continue
                yield record
                found += 1
                if found == most:
                    break
            if found == most:
                break


@functools.cache
def _traces() -> Traces:
    suite = Traces()
    suite.select(Selection(top_inputs=8))
    return suite


@functools.cache
def _index(dtype: str) -> dict[str, list[str]]:
    index = SuiteIndex("opinfo", torch=torch.__version__, device="cpu", dtype=dtype).load()
    if index is None:
        sys.exit(f"list the suite once, for its index: opsmith ops --suite opinfo --device cpu --dtype {dtype}")
    return index


def _entries(op: str, dtype: str) -> list[str]:
    return [entry for entry, ops in _index(dtype).items() if op in ops]


def fake(record: CallRecord) -> tuple[list[Any], dict[str, Any]]:
    """A call's arguments with fake CUDA tensors. Of a call for a GPU, 0-dim tensors on the CPU stay there."""
    values = [*record.args, *record.kwargs.values()]
    has_device = any(isinstance(value, TensorValue) and value.device != "cpu" for value in values)
    args = [_fake(value, has_device=has_device) for value in record.args]
    return args, {name: _fake(value, has_device=has_device) for name, value in record.kwargs.items()}


def _fake(value: Value, *, has_device: bool) -> Any:
    if isinstance(value, TensorValue):
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True) if size)
        device = "cpu" if has_device and value.device == "cpu" and not value.shape else "cuda"
        whole = torch.empty(value.offset + span, dtype=_DTYPES[value.dtype], device=device)
        return whole.as_strided(value.shape, value.strides, value.offset)
    if isinstance(value, SequenceValue):
        items = [_fake(item, has_device=has_device) for item in value.items]
        return tuple(items) if value.is_tuple else items
    if isinstance(value, NamedValue):
        return torch.device("cuda") if value.kind == "device" else getattr(torch, value.name)
    return value


def prepare(architecture: int) -> Compiled:
    """Put the stand-ins in place; must run before any module of kernels is imported."""
    compiled = Compiled()
    triton.runtime.driver.set_active(AbsentGPU(architecture))
    launch.launch = compiled.launch  # type: ignore[assignment]
    launch.multiprocessors = lambda _device: MULTIPROCESSORS  # type: ignore[assignment]
    # Nothing is counted without a GPU; one element broadcasts with whatever comes along in the call.
    importlib.import_module("opsmith.kernels.masking").read_count = lambda _sums: 1  # type: ignore[attr-defined]
    return compiled


def compile_calls(function: Callable[..., Any], calls: Iterable[CallRecord], compiled: Compiled) -> tuple[str, str]:
    """Compile what calls of an op launch.

    Returns:
        ``compiled``, ``declined`` (every call), ``no calls`` or ``failed``; and how many, or the first error, which
        may be that of a call that eager refuses as well.
    """
    compiled.count = served = declined = 0
    errors = []
    for record in calls:
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                args, kwargs = fake(record)
                function(*args, **kwargs)
        except NotImplementedError:
            declined += 1
        except Exception as exc:  # noqa: BLE001 - whatever the kernel raises is what is looked for
            errors.append(_story(exc, record))
        else:
            served += 1
    if errors:
        return "failed", f"{len(errors)} of {served + declined + len(errors)} calls, {errors[0]}"
    if not served:
        return ("declined", f"{declined} calls") if declined else ("no calls", "")
    return "compiled", f"{compiled.count} launches, {served} calls, {declined} declined"


def _story(exc: Exception, record: CallRecord) -> str:
    shapes = [(value.dtype, value.shape, value.strides) for value in record.args if isinstance(value, TensorValue)]
    lines = "".join(traceback.format_exception(exc)).strip().splitlines()
    # What the compiler objects to comes first, who called it last.
    told = lines if len(lines) <= 32 else [*lines[:18], "...", *lines[-14:]]
    return "\n    ".join([f"on {shapes}", *told])


def main() -> None:
    """Compile, print a line for each op and dtype, exit 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="*", help="comma-separated wildcards")
    parser.add_argument("--dtypes", default="f32")
    parser.add_argument("--most", type=int, default=4, help="calls of each suite for an op and dtype")
    parser.add_argument("--suites", default="opinfo,traces")
    parser.add_argument("--arch", type=int, default=90)
    options = parser.parse_args()
    compiled = prepare(options.arch)
    entries = json.loads((FOLDER / "manifest.json").read_text())["kernels"]
    patterns = options.ops.split(",")
    counts: Counter[str] = Counter()
    for op, entry in entries.items():
        if not any(fnmatch.fnmatchcase(op, pattern) for pattern in patterns):
            continue
        file, _, name = entry["entry"].partition(":")
        function = getattr(importlib.import_module(f"opsmith.kernels.{Path(file).stem}"), name)
        for dtype in options.dtypes.split(","):
            start = time.perf_counter()
            calls = calls_of(op, dtype, options.most, options.suites.split(","))
            status, detail = compile_calls(function, calls, compiled)
            counts[status] += 1
            sys.stdout.write(f"{op:44} {dtype:5} {status:9} {time.perf_counter() - start:5.1f} s  {detail}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(counts)}\n")
    sys.exit(bool(counts["failed"]))


if __name__ == "__main__":
    main()
