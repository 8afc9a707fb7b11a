"""``python -m opsmith.generate.inductor OPS -o DIR``: a kernel directory by torch's compiler.

OPS are overloads, packets or wildcards, comma-separated. The calls are those that the suite ``opinfo`` makes on a CPU.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import torch

from opsmith.aten.schemas import aten_schemas
from opsmith.backends import manifest
from opsmith.core.case import CallRecord
from opsmith.core.dtypes import parse_dtypes
from opsmith.core.kernel import Provenance
from opsmith.core.op import Variant, version_file
from opsmith.core.run import write_atomically
from opsmith.errors import UsageError
from opsmith.generate.inductor import Compiler, Language, NothingWritten, write_kernel
from opsmith.runner.plan.planning import select_ops
from opsmith.runner.plan.suite_index import SuiteIndex
from opsmith.suites import SuiteCall
from opsmith.suites.opinfo import OpInfoSuite


def main() -> int:
    """Write the directory; the status is 0 where every op has a kernel."""
    options = _parser().parse_args()
    known = [name for name, schema in aten_schemas().items() if schema.variant is Variant.FUNCTIONAL]
    try:
        ops = select_ops(options.ops.split(","), known) or ()
        dtypes = parse_dtypes(options.dtype)
    except UsageError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    calls = recorded_calls(ops, dtypes)
    entries = {}
    with Compiler() as compiler:
        for op in ops:
            try:
                written = write_kernel(aten_schemas()[op], calls[op], compiler=compiler, language=options.dsl)
            except NothingWritten as exc:
                sys.stderr.write(f"{exc}\n")
                continue
            file = options.out / version_file(op, 1)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(written.source, encoding="utf-8")
            author = f"Inductor of torch {compiler.facts.torch}"
            entries[op] = manifest.KernelEntry(best=1, dsl=options.dsl, provenance=Provenance(author=author))
            left_out = "".join(f"; {left.calls} calls without one: {left.reason}" for left in written.left_out)
            sys.stderr.write(f"{op}: {written.rows} rows{left_out}\n")
    if entries:
        write_atomically(options.out / manifest.NAME, msgspec.json.encode(manifest.Manifest(kernels=entries)))
    return 0 if len(entries) == len(ops) else 1


def recorded_calls(ops: Collection[str], dtypes: Sequence[str]) -> dict[str, list[CallRecord]]:
    """The distinct calls of some overloads in the suite ``opinfo`` on a CPU, by overload."""
    suite, found = OpInfoSuite(), {op: dict[str, CallRecord]() for op in ops}
    for dtype in dtypes:
        index = SuiteIndex(suite.name, torch=str(torch.__version__), device="cpu", dtype=dtype).load()
        for entry in suite.entries(dtype, "cpu"):
            if index is None or found.keys() & index.get(entry, ()):
                _record(suite, entry, dtype, found)
    return {op: list(calls.values()) for op, calls in found.items()}


def _record(suite: OpInfoSuite, entry: str, dtype: str, found: dict[str, dict[str, CallRecord]]) -> None:
    """Add the calls of one entry of the suite to what was found, each signature once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of eager, about samples that are meant to be odd.
        for call in suite.calls(entry, dtype, "cpu", 0, lambda op, key: op in found and key not in found[op]):
            if isinstance(call, SuiteCall) and call.record is not None and not call.expects_error:
                found[call.op].setdefault(call.signature, call.record)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m opsmith.generate.inductor", description=__doc__)
    parser.add_argument("ops", metavar="OPS")
    parser.add_argument("-o", "--out", metavar="DIR", type=Path, required=True)
    parser.add_argument("--dsl", type=Language, choices=list(Language), default=Language.CPP, help="to write in")
    parser.add_argument("--dtype", default="f32", help="of the calls, comma-separated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
