"""PyTorch's own kernels through the judge's door: the reference, which must score 100 %."""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.solutions import class_kernel
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind
from opsmith.core.task import Task


class Aten:
    """Answers every op with the op itself and every module with its Model; the only backend that is trusted."""

    name = "aten"
    trusted = True

    def kernel_for(self, task: Task) -> Kernel | None:
        if task.kind is TaskKind.MODULE:
            return class_kernel(task.name, Path(task.op.schema), "Model", backend=self.name, loader=Loader.ATEN)
        return Kernel(task=task.name, backend=self.name, loader=Loader.ATEN, entry=task.op.name, dsl="aten")
