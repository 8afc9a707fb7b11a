"""The way into a kernel: what is called below this frame is the kernel's, whoever wrote the code that calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def enter(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call a kernel, which may be a function or a layer of torch's under another name."""
    return kernel(*arguments)
