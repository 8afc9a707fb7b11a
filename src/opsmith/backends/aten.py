"""PyTorch's own kernels through the judge's door: the reference, which must score 100 %."""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.solutions import class_kernel, entry_of
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.task import Task


class Aten:
    """Answers every op with the op itself and every problem with its Model; the only backend that is trusted."""

    name = "aten"
    trusted = True

    def kernel_for(self, task: Task) -> Kernel | None:
        if task.kind.of_problems:
            file = Path(task.op.schema)
            name = entry_of(file, "Model", task)
            return class_kernel(task.name, file, name, backend=self.name, loader=Loader.ATEN)
        return Kernel(task=task.name, backend=self.name, loader=Loader.ATEN, entry=task.op.name, dsl="aten")
