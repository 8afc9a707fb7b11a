"""Auditing sets of module problems: each in a process of its own, which may die or hang without the others."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from opsmith.core.audit import AuditFinding, Check, ProblemAudit
from opsmith.runner.processes.isolated import NoAnswer, answer_of

#: What the parent of those processes imports.
_PRELOADED = ["opsmith.audit.preload"]


def audit_all(
    files: Mapping[str, Path], *, device: str, sizes: str, jobs: int, timeout_s: float
) -> Iterator[ProblemAudit]:
    """Audit problems and yield what was found, in the order in which they are done.

    Args:
        files: task name -> problem file.
        device: where values are looked at, a torch device string.
        sizes: at which sizes that is: ``full`` or ``small``.
        jobs: problems at a time.
        timeout_s: of one problem.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    todo: queue.SimpleQueue[tuple[str, Path]] = queue.SimpleQueue()
    for item in files.items():
        todo.put(item)
    done: queue.SimpleQueue[ProblemAudit] = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                task, file = todo.get_nowait()
            except queue.Empty:
                return
            done.put(_audited(context, task, file, device=device, sizes=sizes, timeout_s=timeout_s))

    for _ in range(min(jobs, len(files))):
        threading.Thread(target=work, daemon=True).start()
    for _ in files:
        yield done.get()


def _audited(
    context: multiprocessing.context.ForkServerContext,
    task: str,
    file: Path,
    *,
    device: str,
    sizes: str,
    timeout_s: float,
) -> ProblemAudit:
    try:
        answer = answer_of(context, _serve, task, str(file), device, sizes, timeout_s=timeout_s)
        return msgspec.msgpack.decode(answer, type=ProblemAudit)
    except NoAnswer as exc:
        finding = AuditFinding(check=Check.NOT_AUDITED, detail=str(exc))
    return ProblemAudit(problem=task, findings=(finding,), figures=None, sizes=sizes, took_s=timeout_s)


def _serve(sender: Connection, task: str, file: str, device: str, sizes: str) -> None:
    """Audit one problem in this process, which ends with it."""
    import warnings

    import torch

    from opsmith.audit import audit

    warnings.simplefilter("ignore")  # What a problem's libraries have to say is not about the problem.
    torch.set_num_threads(1)
    sender.send_bytes(msgspec.msgpack.encode(audit(task, Path(file), device, small=sizes == "small")))
