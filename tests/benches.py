"""A workbench whose judge reads the verdict in the kernel's source: everything but the judging is real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace
from tests.campaigns import ReadingSession

from opsmith.agents.workbench import Workbench
from opsmith.backends.file import KernelFile
from opsmith.core.kernel import Kernel
from opsmith.core.op import folder_name
from opsmith.core.run import Options, PlannedOp, Summary
from opsmith.core.task import Task
from opsmith.errors import BadInput, UnknownName
from opsmith.report.scores import summarise_op
from opsmith.session import Judged, Session


def source(comment: str, op: str = "relu.default") -> str:
    """A kernel that tells the judge what it is worth."""
    return f"def {folder_name(op)}_kernel_impl(self):\n    return self  # {comment}\n"


class BenchSession(ReadingSession):
    """What a workbench needs of a session besides."""

    def kernel_in(self, source: Path, task: str) -> Kernel:
        """As the session's own."""
        self.planned(task, None)
        kernel = KernelFile(source).kernel_for(Task(name=task, op=self.tasks[task].op, suite="opinfo"))
        if kernel is None:
            raise BadInput(f"{source} defines no kernel for {task}")
        return kernel

    def planned(self, task: str, kernel: Kernel | None) -> PlannedOp:
        """As the session's own."""
        if task not in self.tasks:
            raise UnknownName("task", task, self.tasks)
        return PlannedOp(op=task, schema="", cases=1, error_cases=0, kernel=kernel, kernel_hash="k")

    def has_case(self, task: str, case: str) -> bool:
        """Every task has one case."""
        self.planned(task, None)
        return case == "c"

    def judge_kernel(
        self,
        task: str,
        kernel: Kernel,
        *,
        told: Any = None,
        case: str | None = None,
        timed: bool = True,
        **rest: Any,
    ) -> Judged:
        """As the session's own."""
        assert case in {None, "c"}
        judged = super().judge_kernel(task, kernel, **rest)
        if not timed:
            verdicts = tuple([replace(verdict, timings=()) for verdict in judged.verdicts])
            judged = replace(judged, verdicts=verdicts, summary=summarise_op(self.planned(task, kernel), verdicts))
        for verdict in judged.verdicts if told is not None else ():
            told(verdict)
        return judged

    def __exit__(self, *_: object) -> None: ...


class ReadingBench(Workbench):
    """A workbench over :class:`BenchSession`, which is told no facts of torch.

    Args:
        tasks: names.
        folder: of the workbench.
        timing: as of a run.
    """

    def __init__(self, tasks: Sequence[str], folder: Path, *, timing: str = "quick") -> None:
        self.reading = BenchSession(tasks, timing=timing)
        super().__init__(self.reading.options, folder, dsl="cpp")
        self._facts = {}

    def _open_session(self) -> Session:
        return self.reading  # type: ignore[return-value]

    def _evaluate(self, options: Options, run: Path) -> Summary:
        judged = self.reading.judge(options.ops[0], Path(options.backend))
        (run / "verdicts.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in judged.verdicts))
        return SimpleNamespace(per_op={options.ops[0]: judged.summary})  # type: ignore[return-value]
