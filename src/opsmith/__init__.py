"""opsmith judges, writes and installs kernels for PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsmith.errors import OpsmithError

if TYPE_CHECKING:
    from opsmith.dispatch.install import active, disable, disabled, enable, enabled

__all__ = ["OpsmithError", "__version__", "active", "disable", "disabled", "enable", "enabled"]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """What is public, whether or not it was imported yet."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for: the judge and ``opsmith --help`` do without."""
    if name not in {"active", "disable", "disabled", "enable", "enabled"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsmith.dispatch import install

    return getattr(install, name)
