"""CUDA graphs of compiled inference: recorded where that is safe, kept where that is faster."""

from opsmith.compile.replay.repeatable import why_not_repeatable
from opsmith.compile.replay.replayed import Replayed

__all__ = ["Replayed", "why_not_repeatable"]
