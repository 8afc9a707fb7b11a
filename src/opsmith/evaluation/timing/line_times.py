"""How long each line of a kernel's file takes in one call, the device waited for after each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from opsmith.core.evidence import LineTimes

#: Lines that are told, those that take longest.
MOST_LINES = 200
#: A call that runs more lines than that is not followed further.
MOST_EVENTS = 200_000


def line_times(
    run: Callable[[], object], root: Path, paths: Sequence[str], wait: Callable[[], None]
) -> LineTimes | None:
    """Time the lines of one call, in this thread; those of the file that takes longest. None where none ran.

    A line's time includes what it calls outside of the kernel's files. In Triton's interpreter the lines of its
    functions are followed, too; on a device they are one launch.

    Args:
        run: makes the call.
        root: the folder that the kernel was loaded from.
        paths: its files, relative to ``root``.
        wait: for the device.
    """
    times: dict[str, dict[int, float]] = {path: {} for path in paths}
    own = {os.path.realpath(root / path): path for path in paths}
    files: dict[str, str | None] = {}
    last: list[tuple[str, int]] = []
    since, events = 0.0, 0

    def settle() -> None:
        """What passed since the last event is the last line's."""
        nonlocal since
        wait()
        if last:
            path, line = last[-1]
            times[path][line] = times[path].get(line, 0.0) + 1e6 * (time.perf_counter() - since)
        since = time.perf_counter()

    def of_line(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal events, since
        path = files[frame.f_code.co_filename]
        assert path is not None
        events += 1
        if events > MOST_EVENTS:
            sys.settrace(None)
            return None
        settle()
        if event == "line":
            last[-1] = (path, frame.f_lineno)
        elif event == "return":
            last.pop()  # The caller's line goes on.
        since = time.perf_counter()
        return of_line

    def of_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal since
        name = frame.f_code.co_filename
        if name not in files:
            files[name] = own.get(os.path.realpath(name))
        path = files[name]
        if path is None:
            return None
        settle()
        last.append((path, frame.f_lineno))
        since = time.perf_counter()
        return of_line

    outer = sys.gettrace()
    sys.settrace(of_call)
    try:
        run()
    finally:
        sys.settrace(outer)
    path = max(times, key=lambda name: sum(times[name].values()), default=None)
    if path is None or not times[path]:
        return None
    longest = sorted(times[path].items(), key=lambda item: -item[1])[:MOST_LINES]
    return LineTimes(file=path, us={line: round(us, 2) for line, us in sorted(longest)})
