"""CUDA graphs of compiled inference: recorded where that is safe, kept where that is faster."""

from opsmith.compile.replay.repeatable import Repeatability, repeatability
from opsmith.compile.replay.replayed import Replayed

__all__ = ["Repeatability", "Replayed", "repeatability"]
