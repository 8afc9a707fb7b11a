"""Kernels to be reviewed, and runs that judged them."""

from __future__ import annotations

from pathlib import Path

from tests.dispatch_tables import kernel_file
from tests.report_runs import write_run

from opsmith.backends.directory import KernelDirectory
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import PlannedOp, RunDirectory
from opsmith.core.task import Task
from opsmith.runner.plan.snapshot import take_snapshot

HALVES = "from .shared import half\n\n\ndef kernel(self):\n    return self * half  # <b>\n"
#: The entry's file of such a kernel, and the files that it imports.
ENTRY, SHARED, DATA = "relu__default_implementation_v1.py", "shared.py", "data.py"


def kernels_of_files(folder: Path, **files: str) -> Path:
    """A kernel directory whose kernel imports :data:`SHARED`, which imports :data:`DATA`.

    Args:
        folder: is made.
        files: stem -> text, instead of those that it has or beside them.
    """
    kernel_file(folder, "relu.default", HALVES)
    for name, text in {"shared": "from .data import half\n", "data": "half = 0.5\n", "other": "", **files}.items():
        (folder / "relu__default" / f"{name}.py").write_text(text)
    return folder


def run_of_kernel(kernels: Path, folder: Path) -> RunDirectory:
    """A run that judged the kernel for ``relu.default`` of a directory."""
    op = OpSchema(name="relu.default", schema="aten::relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL)
    found = KernelDirectory(kernels).kernel_for(Task(name="relu.default", op=op, suite="opinfo"))
    assert found is not None
    planned = PlannedOp(
        op=op.name, schema=op.schema, cases=1, error_cases=0, kernel=found, kernel_hash=found.content_hash
    )
    run = write_run(folder, [planned], [])
    run.kernels_path.mkdir()
    take_snapshot(found, run.kernels_path)
    return run
