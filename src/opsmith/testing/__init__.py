"""Kernels in other people's tests: :func:`check` judges one, and raises unless it is accepted.

::

    from opsmith.testing import check

    def test_my_gelu():
        check("kernels/gelu.py", "gelu.default")
"""

from __future__ import annotations

import inspect
import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from opsmith.core.run import Options, RunDirectory, Summary
from opsmith.errors import BadInput

__all__ = ["NotAccepted", "check"]

#: Width of the tables in the message of a test that fails.
WIDTH = 100


class NotAccepted(AssertionError):
    """A kernel is not accepted; its text is what ``opsmith check`` prints.

    Args:
        text: what was found.
        summary: the run's scores.
    """

    def __init__(self, text: str, summary: Summary) -> None:
        self.summary = summary
        super().__init__(text)


def check(
    kernel: str | Path | Callable[..., Any],
    task: str,
    *,
    suite: str = "opinfo",
    dtype: str = "",
    device: str = "",
    policy: Literal["native", "any"] = "native",
    tolerance: Literal["strict", "backendbench", "kernelbench"] = "strict",
    timing: Literal["off", "quick", "full"] = "off",
    seed: int | None = None,
) -> Summary:
    """Judge one kernel against one op, in processes of its own.

    Args:
        kernel: a file that defines the kernel, ``FILE.py:FUNCTION``, or a function at the top of a file, which is
            judged as its file has it.
        task: the overload that it implements, ``gelu.default``.
        suite: whose cases of the task.
        dtype: comma-separated; the suite's default where empty.
        device: torch device string; CUDA where there is an NVIDIA GPU, else the CPU, where empty.
        policy: whose code may compute.
        tolerance: how close a value must be.
        timing: whether a right kernel is timed.
        seed: of all values; a fresh one if None.

    Returns:
        the scores of an accepted kernel.

    Raises:
        NotAccepted: some case did not pass.
        UsageError: the request cannot be carried out as written.
    """
    from rich.console import Console

    from opsmith.aten.native_functions import functional_names
    from opsmith.backends.entry_names import entry_for
    from opsmith.cli import selection
    from opsmith.cli.preflight import op_patterns
    from opsmith.pipeline import evaluate
    from opsmith.report.results import Results
    from opsmith.report.tables import print_results

    (op,) = op_patterns((task,), suite=suite)
    file, entry = _place(kernel)
    function = entry_for(file, op, entry, functional=op in functional_names())
    on = selection.parse_device(device)
    options = Options(
        suite=suite,
        backend=str(file) if function is None else f"{file}:{function}",
        device=on,
        dtypes=selection.parse_dtype(dtype, suite=suite, device=on),
        ops=(op,),
        policy=policy,
        tolerance=tolerance,
        timing=timing,
        selection=selection.parse_selection(suite, tolerance=tolerance),
    )
    with tempfile.TemporaryDirectory(prefix="opsmith-testing-") as folder:
        out = Path(folder) / "run"
        summary = evaluate(options, out, seed=seed, command=("opsmith", "check", str(file), "--task", op))
        if summary.accepted:
            return summary
        text = io.StringIO()
        print_results(Results.read(RunDirectory(out)), Console(file=text, width=WIDTH, color_system=None))
    raise NotAccepted(text.getvalue(), summary)


def _place(kernel: str | Path | Callable[..., Any]) -> tuple[Path, str | None]:
    """The file of a kernel, and the function that is named.

    Raises:
        BadInput: a function does not stand at the top of a file, so no other process could load it; or its file
            imports opsmith, which would be held against it.
    """
    if isinstance(kernel, str | Path):
        file, separator, entry = str(kernel).rpartition(":")
        return (Path(file), entry) if separator and file.endswith(".py") else (Path(kernel), None)
    name = getattr(kernel, "__qualname__", "")
    source = inspect.getsourcefile(kernel) if inspect.isfunction(kernel) else None
    if source is None or not name.isidentifier():
        raise BadInput(f"{name or kernel} is no function at the top of a file, and kernels are judged as files")
    if re.search(r"^\s*(import|from)\s+opsmith\b", Path(source).read_text(encoding="utf-8"), re.MULTILINE):
        raise BadInput(f"{source} imports opsmith, which no kernel may; put {name} into a file of its own")
    return Path(source), name
