"""Write the table of calls in which enabled kernels are faster, which opsmith ships for a GPU.

::

    export XDG_CACHE_HOME=DIR
    python -m benchmarks.compile.models DIR/models.jsonl --ours enabled --columns eager,enabled
    python -m benchmarks.dispatch.shipped_trials DIR/opsmith/choices/*.jsonl --device 'NVIDIA H200' --torch 2.11.0+cu130

Reads the books of trials that runs left in their cache and writes ``GPU.json`` in the folder ``tables`` of
:mod:`opsmith.dispatch.choice`. Rows of the table before stay if they are about the kernels that are shipped now.
The last line says how many classes there are, and in how many the kernel is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.shipped import Shipped
from opsmith.core.task import Task
from opsmith.dispatch.choice.choosing import EAGER, KERNEL, timed_content
from opsmith.dispatch.choice.shipped_trials import ShippedTrials, TimedKernel, table_file
from opsmith.trials.book import Trial, TrialBook


def kernels() -> dict[str, str]:
    """Overload -> what names the content of the kernel that is shipped for it."""
    backend, found = Shipped(), {}
    for name, schema in aten_schemas().items():
        record = backend.kernel_for(Task(name=name, op=schema, suite="dispatch"))
        if record is not None:
            found[name] = timed_content(record)
    return found


def rows(books: list[Path], shipped: dict[str, str], *, any_content: bool) -> Iterator[tuple[str, str, Trial]]:
    """Overload, class and trial, of the kernels that are shipped."""
    for book in books:
        for key, trial in TrialBook(book).trials().items():
            op, device_type, kernel, _ = key.split(" ", 3)
            is_shipped = op in shipped and (any_content or shipped[op] == kernel)
            if is_shipped and device_type == "cuda" and EAGER in trial.us:
                yield op, trial.call, trial


def text_of(table: ShippedTrials) -> str:
    """A table as JSON, with a line for each class."""
    ops = ",\n".join(
        f'  {json.dumps(op)}: {{"kernel": {json.dumps(timed.kernel)}, "classes": {{\n'
        + ",\n".join(f"   {json.dumps(text)}: {json.dumps(us)}" for text, us in timed.classes.items())
        + "\n  }}"
        for op, timed in table.ops.items()
    )
    head = f' "device": {json.dumps(table.device)},\n "torch": {json.dumps(table.torch)}'
    return f'{{\n{head},\n "ops": {{\n{ops}\n }}\n}}\n'


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", nargs="+", type=Path)
    parser.add_argument("--device", required=True, help="the GPU's name, as torch says it")
    parser.add_argument("--torch", required=True, help="the version that ran")
    parser.add_argument(
        "--any-content",
        action="store_true",
        help="take trials of other contents of a kernel, too: what changed since costs no time",
    )
    options = parser.parse_args()
    file, shipped = table_file(options.device), kernels()
    classes: dict[str, dict[str, tuple[float, float | None]]] = {}
    if file.exists():
        before = msgspec.json.decode(file.read_bytes(), type=ShippedTrials)
        classes = {op: dict(timed.classes) for op, timed in before.ops.items() if shipped.get(op) == timed.kernel}
    for op, text, trial in rows(options.books, shipped, any_content=options.any_content):
        classes.setdefault(op, {})[text] = (trial.us[EAGER], trial.us.get(KERNEL))
    ops = {op: TimedKernel(kernel=shipped[op], classes=dict(sorted(classes[op].items()))) for op in sorted(classes)}
    table = ShippedTrials(device=options.device, torch=options.torch, ops=ops)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text_of(table))
    trials = [table.find(op, timed.kernel, text) for op, timed in ops.items() for text in timed.classes]
    faster = sum(trial is not None and trial.is_faster(KERNEL, EAGER) for trial in trials)
    print(f"{file}: {len(trials)} classes of {len(ops)} overloads; the kernel is faster in {faster}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
