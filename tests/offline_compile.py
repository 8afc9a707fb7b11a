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
import itertools
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch

from opsmith.core.case import CallRecord, TensorValue
from opsmith.prewarm.compiling import Compiler, kernel_function
from opsmith.prewarm.fake_calls import recorded_calls, traced_calls
from opsmith.prewarm.warming import shipped_entries
from opsmith.runner.plan.suite_index import SuiteIndex
from opsmith.suites.opinfo import OpInfoSuite

#: Inputs of an op among the traced ones that calls are taken from.
TRACED = 8


def calls_of(op: str, dtype: str, most: int, suites: Sequence[str]) -> Iterator[CallRecord]:
    """Up to ``most`` calls of an op from each suite."""
    # Calls of the traces are made for a GPU, which gets larger ones; OpInfo's hold tensors and have none.
    if "opinfo" in suites:
        yield from itertools.islice(_opinfo_calls(op, dtype), most)
    if "traces" in suites:
        yield from itertools.islice(traced_calls(op, dtype, TRACED), most)


def _opinfo_calls(op: str, dtype: str) -> Iterator[CallRecord]:
    suite = OpInfoSuite()
    for entry in _entries(op, dtype):
        yield from recorded_calls(suite, entry, op, dtype, "cpu")


@functools.cache
def _index(dtype: str) -> dict[str, list[str]]:
    index = SuiteIndex("opinfo", torch=torch.__version__, device="cpu", dtype=dtype).load()
    if index is None:
        sys.exit(f"list the suite once, for its index: opsmith ops --suite opinfo --device cpu --dtype {dtype}")
    return index


def _entries(op: str, dtype: str) -> list[str]:
    return [entry for entry, ops in _index(dtype).items() if op in ops]


def compile_calls(function: Callable[..., Any], calls: Iterable[CallRecord], compiler: Compiler) -> tuple[str, str]:
    """Compile what calls of an op launch.

    Returns:
        ``compiled``, ``declined`` (every call), ``no calls`` or ``failed``; and how many, or the first error, which
        may be that of a call that eager refuses as well.
    """
    launches, served, declined = compiler.launches, 0, 0
    errors = []
    for record in calls:
        try:
            compiler.call(function, record)
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
    return "compiled", f"{compiler.launches - launches} launches, {served} calls, {declined} declined"


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
    compiler = Compiler(options.arch)
    patterns = options.ops.split(",")
    counts: Counter[str] = Counter()
    for op, entry in shipped_entries().items():
        if not any(fnmatch.fnmatchcase(op, pattern) for pattern in patterns):
            continue
        function = kernel_function(entry)
        for dtype in options.dtypes.split(","):
            start = time.perf_counter()
            calls = calls_of(op, dtype, options.most, options.suites.split(","))
            status, detail = compile_calls(function, calls, compiler)
            counts[status] += 1
            sys.stdout.write(f"{op:44} {dtype:5} {status:9} {time.perf_counter() - start:5.1f} s  {detail}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(counts)}\n")
    sys.exit(bool(counts["failed"]))


if __name__ == "__main__":
    main()
