"""Progress on stderr: a bar with rate and remaining time on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from opsmith.report.strangers import one_line


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


#: Where stderr is no terminal, a line at most this often.
LINE_INTERVAL_S = 15.0


class StageProgress:
    """Draws one bar a stage; see :class:`opsmith.pipeline.Progress`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,  # The verdict comes first.
        )
        self._task: TaskID | None = None
        self._next_line = time.monotonic() + LINE_INTERVAL_S

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._finish()
        self._bars.stop()

    def stage(self, name: str, total: int) -> None:
        self._finish()
        self._task = self._bars.add_task(name, total=total or None, note="")

    def advance(self, done: int, note: str = "") -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done, note=one_line(note))
            if not self._console.is_terminal and time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + LINE_INTERVAL_S
                self._print_line(self._bars.tasks[self._task])

    def waiting(self, seconds: float) -> None:
        self._console.print(
            f"opsmith: other runs time on this device or fill its memory; waiting ({seconds:.0f} s so far)"
        )

    def _print_line(self, task: Task) -> None:
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        total = f" of {task.total:.0f}" if task.total else ""
        self._console.print(f"opsmith: {task.description}: {task.completed:.0f}{total}, {rate:,.0f}/s", highlight=False)

    def _finish(self) -> None:
        if self._task is not None:
            task = self._bars.tasks[self._task]
            finished = task.total or 1
            self._bars.update(self._task, total=finished, completed=finished, note="")
