"""What tests of formats share: a cache of their own, cases of a task, and its solutions called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.backends.solutions import solutions_in
from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord
from opsmith.core.kernel import Kernel
from opsmith.core.problems import problem_files
from opsmith.core.run import Selection
from opsmith.core.task import Task
from opsmith.formats.readers import problems_from
from opsmith.runner.worker.loading import load_kernel
from opsmith.suites import Skipped, SuiteCall
from opsmith.suites.modules import Modules
from opsmith.tasks import registry

CPU = torch.device("cpu")
DATA = Path(__file__).parents[2] / "data" / "formats"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    registry.use_problems({}, "cpu")


class Asked:
    """The tasks of a file or folder, as a referee asks them on the CPU."""

    def __init__(self, path: Path, *, small: bool = False) -> None:
        self.files = problem_files(problems_from(path))
        registry.use_problems(self.files, "cpu", small=small)

    def calls(self, task: str, *, seed: int = 1) -> tuple[dict[str, CallRecord], list[str]]:
        """The records of its cases by ``source:sample``, and why others are not asked."""
        suite = Modules()
        suite.select(Selection())
        found = list(suite.calls(task, "f32", "cpu", seed, lambda op, signature: True))
        records = {
            f"{call.address.source}:{call.address.sample}": call.record
            for call in found
            if isinstance(call, SuiteCall) and call.record is not None
        }
        return records, [call.reason for call in found if isinstance(call, Skipped)]

    def kernels(self, task: str, path: Path) -> tuple[Kernel, ...]:
        """The solutions in a file or folder."""
        return solutions_in(path, Task(name=task, op=registry.schema_of(task), suite="modules"), backend="them")

    def answers(self, task: str, kernel: Kernel, record: CallRecord) -> tuple[Any, Any]:
        """(what the task's Model answers, what a solution answers) on one case."""
        assert kernel.root is not None
        (schema,) = registry.loaded_schemas([task])
        call = load_kernel(kernel, Path(kernel.root), schema)
        mine, theirs = rebuild(record, CPU), rebuild(record, CPU)
        with torch.no_grad():
            expected = registry.reference(task)(*mine.args, **mine.kwargs)
            return expected, call(*theirs.args, **theirs.kwargs)


@pytest.fixture
def asked() -> Callable[..., Asked]:
    """Makes an :class:`Asked` of a path."""
    return Asked


@pytest.fixture
def data() -> Path:
    """The folder with small files of every format."""
    return DATA
