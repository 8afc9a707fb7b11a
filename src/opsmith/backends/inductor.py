"""torch.compile as a backend: every op compiled by Inductor on its own."""

from __future__ import annotations

from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind
from opsmith.core.task import Task


class Inductor:
    """Answers every op with ``torch.compile`` of a call to it; compiled for each new signature."""

    name = "inductor"
    trusted = False

    def kernel_for(self, task: Task) -> Kernel | None:
        if task.kind is not TaskKind.OP:
            return None
        return Kernel(task=task.name, backend=self.name, loader=Loader.INDUCTOR, entry=task.op.name, dsl="inductor")
