"""``opsmith ops``: what is asked and what is answered."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from opsmith import plugins
from opsmith.backends.resolve import resolve
from opsmith.cli import selection
from opsmith.cli.document import Json, print_json
from opsmith.cli.preflight import op_patterns
from opsmith.cli.progress import StageProgress
from opsmith.core.columns import EAGER
from opsmith.core.counts import counted
from opsmith.core.op import TaskKind
from opsmith.core.run import Options, PlannedOp
from opsmith.errors import UnknownName
from opsmith.pipeline import survey
from opsmith.suites.traits import traits_of
from opsmith.whole_models.pipeline import survey_models

EPILOG = """
Examples:

  opsmith ops --suite opinfo --dtype bf16

  opsmith ops --suite opinfo --backend my_kernels/ --ops 'add*' --json
"""


def ops(
    suite: selection.Suite = "opinfo",
    backend: Annotated[str, typer.Option(help="Show what this backend answers.", show_default="none")] = "",
    ops: selection.Ops = "",
    dtype: selection.Dtype = "",
    device: selection.Device = "",
    dataset: selection.Dataset = None,
    top_inputs: selection.TopInputs = None,
    spread_inputs: selection.SpreadInputs = None,
    sample: selection.Sample = None,
    models: selection.Models = "",
    overhead_dominated: selection.OverheadDominated = "with",
    problems: selection.Problems = None,
    sizes: selection.Sizes = "full",
    trials: selection.Trials = selection.DEFAULT_TRIALS,
    json_output: Json = False,
) -> None:
    """List the ops of a suite with their number of cases, and who answers them."""
    if suite not in plugins.names(plugins.SUITES):
        raise UnknownName("suite", suite, plugins.names(plugins.SUITES))
    whole_models = traits_of(suite).tasks is TaskKind.MODEL
    on = selection.parse_device(device)
    options = Options(
        suite=suite,
        backend=backend or (EAGER if whole_models else "aten"),
        device=on,
        dtypes=selection.parse_dtype(dtype, suite=suite, device=on),
        ops=op_patterns(selection.parse_ops(ops), suite=suite),
        selection=selection.parse_selection(
            suite,
            dataset=dataset,
            top_inputs=top_inputs,
            spread_inputs=spread_inputs,
            sample=sample,
            models=models,
            overhead_dominated=overhead_dominated,
            problems=problems,
            sizes=sizes,
            trials=trials,
        ),
    )
    with StageProgress() as progress:
        if whole_models:
            plan = survey_models(options, progress=progress)
        else:
            resolve(options.backend)
            plan = survey(options, progress=progress)
    rows = [_row(planned, answered=bool(backend)) for planned in plan.ops]
    void = any(planned.void for planned in plan.ops)
    if void:
        rows = [row | {"void": planned.void or ""} for row, planned in zip(rows, plan.ops, strict=True)]
    if json_output:
        print_json(rows)
        return
    further = [*(["answered by"] if backend else []), *(["void"] if void else [])]
    table = Table("op", "cases", "bad calls", *further, title=counted(len(rows), "op"))
    for row in rows:
        table.add_row(*[str(value) for value in row.values()])
    Console().print(table)


def _row(planned: PlannedOp, *, answered: bool) -> dict[str, object]:
    row: dict[str, object] = {"op": planned.op, "cases": planned.cases, "error_cases": planned.error_cases}
    if answered:
        kernel = planned.kernel
        how = "" if kernel is None else f"{kernel.dsl}{' (derived)' if kernel.derived_from else ''}"
        row["answered_by"] = how
    return row
