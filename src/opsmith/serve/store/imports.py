"""Run directories, taken into the service's tables to be looked at beside what was submitted."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from sqlalchemy import Connection, insert, select

from opsmith.core.case import digest
from opsmith.core.kernel import Kernel
from opsmith.core.run import PlannedOp, RunDirectory, RunManifest, TimedCase
from opsmith.core.verdict import Verdict
from opsmith.generate.reward import why_not
from opsmith.report.results import Results
from opsmith.report.scores import summarise_by_dtype
from opsmith.reviews.of_run import judged_kernel, reviews_about
from opsmith.reviews.scope import reviewed_files, reviewed_hash
from opsmith.serve.store.database import Database
from opsmith.serve.store.queue import Found, cell_rows, summary_values, verdict_rows
from opsmith.serve.store.reviews import keep_reviews
from opsmith.serve.store.schema import MOST_PATH_CHARACTERS, State, cells, judgements, runs, verdicts
from opsmith.serve.store.sources import keep_covered, keep_sources
from opsmith.serve.store.tokens import now_utc


def keep_run(database: Database, run: RunDirectory) -> int:
    """Take a finished run in; one that is there already stays as it is. Servers that start together take turns.

    Returns:
        its id.

    Raises:
        BadInput: a file of the run is missing or damaged.
    """
    results = Results.read(run)
    manifest = results.manifest
    origin = hashlib.sha256(msgspec.json.encode((str(run.path.resolve()), manifest.started_utc))).hexdigest()
    with database.writing_in_turn() as connection:
        known = connection.execute(select(runs.c.id).where(runs.c.origin == origin)).scalar_one_or_none()
        if known is not None:
            return int(known)
        made = insert(runs).values(
            name=run.path.name,
            contender=manifest.options.backend,
            suite=manifest.options.suite,
            device_name=manifest.environment.device_name,
            tasks_asked=max(1, results.summary.ops["asked"]),
            facts=_facts(manifest, results.summary.void),
            ceilings=msgspec.json.encode(manifest.clock.ceilings).decode() if manifest.clock else None,
            origin=origin,
            created_utc=manifest.started_utc,
        )
        number = int(connection.execute(made.returning(runs.c.id)).scalar_one())
        _keep_ops(connection, number, results, run)
        return number


def _facts(manifest: RunManifest, void: Mapping[str, str]) -> str:
    facts = {
        "options": manifest.options,
        "environment": manifest.environment,
        "sandbox": manifest.sandbox,
        "sandbox_missing": manifest.sandbox_missing,
        "void": void,
    }
    return msgspec.json.encode(facts).decode()


def _keep_ops(connection: Connection, number: int, results: Results, run: RunDirectory) -> None:
    found: defaultdict[str, list[Verdict]] = defaultdict(list)
    timed: defaultdict[str, list[TimedCase]] = defaultdict(list)
    for verdict in results.verdicts:
        found[verdict.op].append(verdict)
    for each in results.timed_cases:
        timed[each.op].append(each)
    for planned in results.plan.ops:
        if planned.kernel is not None and planned.op in results.summary.per_op:
            _keep_op(connection, number, run, results, planned, found[planned.op], timed[planned.op])
    keep_reviews(connection, reviews_about(run.path, results.manifest))


def _keep_op(
    connection: Connection,
    number: int,
    run: RunDirectory,
    results: Results,
    planned: PlannedOp,
    of_op: Sequence[Verdict],
    timed: Sequence[TimedCase],
) -> None:
    kernel, judged, source = planned.kernel, judged_kernel(run.path, planned), _source(run, planned)
    assert kernel is not None
    entry, texts = kernel.entry.rpartition(":")[0], {} if judged is None else _covered(judged)
    content = None if judged is None or not texts else reviewed_hash(judged)
    found = Found(
        kernel_hash=planned.kernel_hash,
        dsl=kernel.dsl,
        summary=results.summary.per_op[planned.op],
        by_dtype=summarise_by_dtype(planned, of_op),
        detail=why_not(of_op),
        verdicts=tuple(of_op),
        timed=tuple(timed),
        device_s=0.0,
        reviewed_hash=content,
        entry_file=None if content is None else entry,
    )
    if content is not None:
        keep_covered(connection, content, {path: text for path, text in texts.items() if path != entry})
    made = insert(judgements).values(
        run_id=number,
        suite=results.manifest.options.suite,
        task=planned.op,
        source_hash=None if source is None else keep_sources(connection, [source])[0],
        provenance=msgspec.json.encode(kernel.provenance).decode(),
        state=State.JUDGED,
        tries=1,
        created_utc=results.manifest.started_utc,
        judged_utc=results.manifest.finished_utc or now_utc(),
        **summary_values(found),
    )
    judgement = int(connection.execute(made.returning(judgements.c.id)).scalar_one())
    if rows := verdict_rows(judgement, found):
        connection.execute(insert(verdicts), rows)
    if rows := cell_rows(judgement, number, planned.op, found):
        connection.execute(insert(cells), rows)


def _source(run: RunDirectory, planned: PlannedOp) -> str | None:
    """The text of a kernel's file as the run keeps it."""
    kernel = planned.kernel
    if kernel is None or kernel.snapshot_name is None:
        return None
    file = run.kernels_path / kernel.snapshot_name / kernel.entry.rpartition(":")[0]
    try:
        return file.read_bytes().decode().replace("\x00", "\ufffd")
    except (OSError, UnicodeDecodeError):
        return None


def _covered(kernel: Kernel) -> dict[str, str]:
    """The files that a review of a kernel covers: path -> text.

    It is empty where one of them is no text, or not the one that was judged: who decides must have seen all that is
    decided about.
    """
    texts: dict[str, str] = {}
    for path, content in (reviewed_files(kernel) or {}).items():
        text = _text(Path(kernel.root or "") / path, content)
        if text is None or len(path) > MOST_PATH_CHARACTERS:
            return {}
        texts[path] = text
    return texts


@lru_cache(maxsize=1024)
def _text(file: Path, content: str) -> str | None:
    """The text of a file; None where it is none, or has another content hash."""
    try:
        data = file.read_bytes()
        return None if digest(data) != content or b"\x00" in data else data.decode()
    except (OSError, UnicodeDecodeError):
        return None
