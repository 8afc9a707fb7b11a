"""Faults that were found once, put back: who looks for faults of their kind has to find them."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from opsmith.compile.graph_pass import GraphPass


@contextlib.contextmanager
def _outputs() -> Iterator[None]:
    """What an operation leaves unchanged stands for its result, whoever writes to either of them."""
    with (
        mock.patch("opsmith.compile.graph.aliasing.Sharing._may_join", return_value=True),
        mock.patch("opsmith.compile.graph.aliasing.Memory.complaint", return_value=None),
    ):
        yield


@contextlib.contextmanager
def _batch_norm() -> Iterator[None]:
    """The second dimension of a result counts as its channels, also without a batch."""

    def wrong(layer: Any, result: Any) -> bool:
        return bool(layer.name != "linear" or result.dim() == 2)

    with mock.patch("opsmith.compile.traced.batch_norm._channels_are_the_norms", wrong):
        yield


@contextlib.contextmanager
def _stale() -> Iterator[None]:
    """A graph is taken from disk if the module of each pass is as it was, whatever that module imports."""

    def uuid(self: Any) -> Any:
        parts = [_module_hash(one) for one in self._passes]
        return None if None in parts else ("opsmith", *parts)

    with mock.patch("opsmith.compile.backend.LoweredPasses.uuid", uuid):
        yield


def _module_hash(one: GraphPass) -> str | None:
    try:
        source = inspect.getsource(inspect.getmodule(one.run) or one.run)
    except (OSError, TypeError):
        return None
    return hashlib.sha256(f"{one.name}\n{source}".encode()).hexdigest()


#: By name, the fault as a context.
FAULTS: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "outputs": _outputs,
    "batch_norm": _batch_norm,
    "stale": _stale,
}


@contextlib.contextmanager
def without_thresholds() -> Iterator[None]:
    """Passes rewrite small tensors as well, where only speed keeps them from it."""
    from opsmith.compile.traced import reduced_products

    pays = reduced_products._convolution_pays

    def always(convolution: Any, like: Any, dims: Any) -> bool:
        return like.dtype not in reduced_products._HALF or pays(convolution, like, dims)

    triangles = "opsmith.compile.traced.triangles"
    with (
        mock.patch(f"{triangles}._FEWEST_ENTRIES", 1),
        mock.patch(f"{triangles}._FEWEST_PRODUCTS", 1),
        mock.patch(f"{triangles}._FEWEST_PRODUCTS_IN_HALF", 1),
        mock.patch("opsmith.compile.traced.pooled_convolutions._pays", return_value=True),
        mock.patch("opsmith.compile.traced.pooled_convolutions._pooling_first_pays", return_value=True),
        mock.patch("opsmith.compile.traced.reduced_products._convolution_pays", always),
    ):
        yield
