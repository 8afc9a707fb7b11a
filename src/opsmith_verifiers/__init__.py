"""The plug-in of verifiers: it finds tasksets and environments by the name of a top-level package."""

from opsmith.agents.verifiers_env import KernelEnv, KernelTaskset

__all__ = ["KernelEnv", "KernelTaskset"]
