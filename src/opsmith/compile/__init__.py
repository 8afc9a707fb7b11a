"""The backend ``opsmith`` of torch.compile; see :mod:`opsmith.compile.backend`."""

from opsmith.compile.pass_registry import choose_passes, forget_pass, graph_pass

__all__ = ["choose_passes", "forget_pass", "graph_pass"]
