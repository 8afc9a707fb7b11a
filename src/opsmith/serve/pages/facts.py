"""What a kernel's page says besides its verdicts: who wrote it, how it was judged, and how to see a failure again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from opsmith.core.environment import Environment
from opsmith.core.run import Options
from opsmith.core.timing import Ceilings
from opsmith.core.verdict import Part, Verdict
from opsmith.report.strangers import one_line
from opsmith.serve.store.runs import JudgementRow, RunRow

Fact = tuple[str, str]


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was judged, as its row keeps it."""

    options: Options
    environment: Environment
    sandbox: tuple[str, ...] = ()
    sandbox_missing: dict[str, str] = {}
    void: dict[str, str] = {}


def _told(run: RunRow) -> RunFacts:
    return msgspec.json.decode(run.facts, type=RunFacts)


def policy_of(run: RunRow) -> str:
    """What its kernels might do."""
    return _told(run).options.policy


def ceilings_of(run: RunRow) -> Ceilings | None:
    """What the run's device was measured to reach; None where nothing was timed."""
    return None if run.ceilings is None else msgspec.json.decode(run.ceilings, type=Ceilings)


def run_facts(run: RunRow) -> Iterator[Fact]:
    """How a run was judged."""
    told = _told(run)
    options, environment = told.options, told.environment
    yield from _shown(
        {
            "Contender": run.contender,
            "Begun": run.created_utc[:19].replace("T", " "),
            "dtypes": ", ".join(options.dtypes),
            "Judged with": f"policy {options.policy}, tolerance {options.tolerance}, timing {options.timing}",
            "Isolation layers": ", ".join(told.sandbox) or "none",
            "Layers missing": ", ".join(told.sandbox_missing),
            "Void, in no figure": "; ".join(f"{task}: {reason}" for task, reason in told.void.items()),
            "Device": f"{environment.device} ({environment.device_name})",
            "torch": environment.torch,
            "triton": environment.triton,
            "opsmith": environment.opsmith,
        }
    )


def kernel_facts(row: JudgementRow, run: RunRow) -> Iterator[Fact]:
    """Who wrote a kernel, and when it was judged."""
    origin = row.provenance
    yield from _shown(
        {
            "Author": origin.author,
            "Model": origin.model,
            "Prompt": origin.prompt_hash,
            "Attempt": origin.attempt,
            "Parent": origin.parent,
            "Licence": origin.license,
            "Note": origin.note,
            "Written in": row.dsl,
            "Kernel": row.kernel_hash,
            "Run": run.name,
            "Submission": row.submission_id,
            "Submitted": row.created_utc[:19].replace("T", " "),
            "Judged": (row.judged_utc or "")[:19].replace("T", " "),
            "Judging took": f"{row.device_s:,.1f} s" if row.device_s else None,
            "Begun again": f"{row.tries - 1} times" if row.tries > 1 else None,
        }
    )


def _shown(facts: dict[str, Any]) -> Iterator[Fact]:
    return ((name, one_line(str(value))) for name, value in facts.items() if value not in {None, ""})


def repro(run: RunRow, row: JudgementRow, verdict: Verdict) -> str:
    """The command that judges a case again, with the kernel as it is downloaded; values will be others."""
    options = _told(run).options
    words = ["opsmith", "check", f"kernel-{row.id}.py", "--task", row.task, "--suite", run.suite]
    words += ["--dtype", verdict.dtype or ",".join(options.dtypes), "--device", options.device]
    if verdict.part is Part.CASE:
        words += ["--case", verdict.case]
    if options.policy != "native":
        words += ["--policy", options.policy]
    if options.tolerance != "strict":
        words += ["--tolerance", options.tolerance]
    return shlex.join(words)
