"""A workbench whose judge reads the verdict in the kernel's source: everything but the judging is real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
from tests.campaigns import ReadingSession

from opsmith.agents.workbench import Workbench
from opsmith.core.op import folder_name
from opsmith.core.run import Options, Summary
from opsmith.session import Session


def source(comment: str, op: str = "relu.default") -> str:
    """A kernel that tells the judge what it is worth."""
    return f"def {folder_name(op)}_kernel_impl(self):\n    return self  # {comment}\n"


class ReadingBench(Workbench):
    """A workbench over :class:`tests.campaigns.ReadingSession`, which is told no facts of torch.

    Args:
        tasks: names.
        folder: of the workbench.
        timing: as of a run.
    """

    def __init__(self, tasks: Sequence[str], folder: Path, *, timing: str = "quick") -> None:
        self.reading = ReadingSession(tasks, timing=timing)
        super().__init__(self.reading.options, folder, dsl="cpp")
        self._facts = {}

    def _open_session(self) -> Session:
        return self.reading  # type: ignore[return-value]

    def _evaluate(self, options: Options, run: Path) -> Summary:
        judged = self.reading.judge(options.ops[0], Path(options.backend))
        (run / "verdicts.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in judged.verdicts))
        return SimpleNamespace(per_op={options.ops[0]: judged.summary})  # type: ignore[return-value]
