"""How often Triton kernels were launched: did what a file declares run at all?"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

#: Where a launch begins: ``kernel[grid](...)`` and a compiled kernel called directly.
_LAUNCHERS = (
    ("triton.runtime.jit", "JITFunction", "run"),
    ("triton.runtime.interpreter", "InterpretedFunction", "run"),
    ("triton.compiler.compiler", "CompiledKernel", "launch_metadata"),
)


class Launches:
    """Counts launches from the time it is made; only one is made in a process."""

    def __init__(self) -> None:
        self.count = 0
        for module, kind, method in _LAUNCHERS:
            if module in sys.modules:
                launcher = getattr(sys.modules[module], kind)
                setattr(launcher, method, self._counting(getattr(launcher, method)))

    def _counting(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(launch)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return launch(*args, **kwargs)

        return counted
