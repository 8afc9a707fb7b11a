"""Everything that a run directory gets when the judging is done."""

from __future__ import annotations

from pathlib import Path

from opsmith.core.run import PAGE, RunDirectory, Summary
from opsmith.errors import BadInput
from opsmith.report.exports import write_exports
from opsmith.report.flashinfer_traces import write_flashinfer_traces
from opsmith.report.html import write_page
from opsmith.report.module_exports import write_module_exports
from opsmith.report.multi_kernel_bench import write_multi_kernel_bench
from opsmith.report.results import Results


def publish(run: RunDirectory) -> Summary:
    """Score a run and write ``summary.json``, ``report.html`` and the public exports into it.

    The run may be unfinished. What is there already is replaced, so it can be called again.

    Raises:
        BadInput: a file of the run is missing or damaged.
    """
    results = Results.read(run)
    publish_results(run, results)
    return results.summary


def publish_results(run: RunDirectory, results: Results, html: Path | None = None) -> Path:
    """As :func:`publish`, of a run that is read already.

    Args:
        run: the run directory.
        results: its content.
        html: where the page goes instead of into the run.

    Returns:
        where the page went.

    Raises:
        BadInput: ``html`` cannot be written.
    """
    run.write("summary.json", results.summary)
    write_exports(results)
    write_module_exports(results)
    write_flashinfer_traces(results)
    write_multi_kernel_bench(results)
    if html is None:
        write_page(results, run.path / PAGE)
        return run.path / PAGE
    try:
        write_page(results, html)
    except OSError as exc:
        raise BadInput(f"cannot write the page to {html}: {exc.strerror or exc}; name another file") from exc
    return html
