"""Re-exports the public name whose documented path this is."""

from __future__ import annotations

from opsmith.dispatch.serving import FallbackWarning

__all__ = ["FallbackWarning"]
