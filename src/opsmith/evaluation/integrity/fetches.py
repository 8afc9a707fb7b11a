"""What somebody fetched to call it past the dispatcher, where no policy reaches: ATen's kernels, groups' backends."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed import ProcessGroup

_OPSMITH = str(Path(__file__).parents[2])
_TORCH = str(Path(torch.__file__).parent)


class Fetches:
    """Notes every call of ``torch.library.get_kernel`` and of a process group's ``_get_backend``; one a process.

    Attributes:
        tell: takes the op or the process group of each, and a line with it and the ``file:line``; those of opsmith
            and of torch itself are left out.
    """

    def __init__(self) -> None:
        self.tell: Callable[[Any, str], None] | None = None
        torch.library.get_kernel = self._noting(torch.library.get_kernel, "kernel of {}")
        group: Any = ProcessGroup
        group._get_backend = self._noting(group._get_backend, "backend of a process group")

    def _noting(self, fetch: Callable[..., Any], what: str) -> Callable[..., Any]:
        @functools.wraps(fetch)
        def noted(of: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            if self.tell is not None and not caller.f_code.co_filename.startswith((_OPSMITH, _TORCH)):
                place = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
                self.tell(of, f"fetched the {what.format(of)} past the dispatcher at {place}")
            return fetch(of, *args, **kwargs)

        return noted
