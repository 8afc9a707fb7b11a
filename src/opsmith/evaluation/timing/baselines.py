"""What the reference side runs while it is timed: eager, or what torch makes of it.

A baseline changes who a candidate is compared with in speed, never what it is compared with in value:
that is eager, always. The caller turns gradients off.

``eager``
    The overload or the Model itself.
``compile``
    ``torch.compile`` with its defaults and static shapes. A call of an overload has to compile as one
    graph, or eager would be timed under another name; a Model may have graph breaks, as anywhere else.
``max-autotune``
    The same in the mode ``max-autotune-no-cudagraphs``: Inductor tries templates of its own against the
    library's and tunes them. Without CUDA graphs, because K comes from a graph of the clock's own, and E
    has a baseline for graphs.
``cudagraphs``
    Eager, captured in a CUDA graph for each set of arguments and replayed. Its K is eager's; E shows
    what a caller pays for a replay.

Compiling and capturing belong to :meth:`Preparable.prepare`, outside the measured time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch.utils._pytree import tree_leaves

from opsmith.errors import BadInput, BaselineUnavailable, UnknownName
from opsmith.evaluation.timing.compiler import compiler_settings, traceable
from opsmith.evaluation.timing.cuda_graphs import end_failed_capture

BASELINES = ("eager", "compile", "max-autotune", "cudagraphs")

#: Calls before a capture, in which libraries set themselves up: as many as torch's own graphed callables make.
WARM_UPS = 3
MAX_REASON_CHARS = 300

_MODES = {"compile": "default", "max-autotune": "max-autotune-no-cudagraphs"}


@runtime_checkable
class Preparable(Protocol):
    """A baseline that has work to do before it can be timed."""

    def prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compile or capture a call. The arguments keep their values.

        Raises:
            BaselineUnavailable: the baseline cannot serve the call.
            torch.AcceleratorError: the call has lost the device.
        """
        ...


def baseline_function(name: str, function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The callable of a baseline; every one but eager is a :class:`Preparable`.

    Args:
        name: one of :data:`BASELINES`.
        function: an overload, or a Model that has taken its state.
        device: where it runs.

    Raises:
        UnknownName: there is no such baseline.
        BadInput: the device has no such baseline.
    """
    if name == "eager":
        return function
    if name in _MODES:
        return CompiledCall(name, function)
    if name != "cudagraphs":
        raise UnknownName("baseline", name, BASELINES)
    if device.type != "cuda":
        raise BadInput(f"the baseline cudagraphs needs a CUDA device, not {device}; use eager or compile there")
    return GraphedCall(function)


class CompiledCall:
    """A call under ``torch.compile``. Making one drops what all others have compiled, so use one at a time.

    Args:
        name: of the baseline.
        function: an overload or a Model.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        import torch._dynamo  # The compiler is as slow to import as the rest of torch.

        torch._dynamo.reset()
        self._name = name
        self._is_prepared = False
        is_module = isinstance(function, torch.nn.Module)
        self._compiled = torch.compile(
            function if is_module else traceable(function),
            fullgraph=not is_module,
            dynamic=False,
            mode=_MODES[name],
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._is_prepared:
            self.prepare(args, kwargs)
        return self._compiled(*args, **kwargs)

    @torch.no_grad()
    def prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compile the call: once for all arguments of the same shapes, strides, dtypes and scalars.

        The first call does it where nobody has.

        Raises:
            BaselineUnavailable: torch's compiler refuses it.
            torch.AcceleratorError: the call has lost the device.
        """
        try:
            with compiler_settings(), _kept(args, kwargs):
                self._compiled(*args, **kwargs)
        except torch.AcceleratorError:
            raise
        except Exception as exc:  # A compiler raises anything.
            raise BaselineUnavailable(self._name, _reason(exc)) from exc
        self._is_prepared = True


class GraphedCall:
    """A call that is captured in a CUDA graph for each set of arguments, and replayed.

    A set is known by the identity of its arguments, which are held here: it has to be called with the
    objects that it was captured with, whose values may change and whose memory may not. A list
    among them is one object. Random numbers come from the device's default generator, which a capture
    registers, so each replay draws new ones.

    Its results are the same objects at every replay, which overwrites them. All graphs share one pool of
    memory: they run one after another, and what they return stays alive.

    Args:
        function: an overload or a Model.

    Attributes:
        function: the same; a graph cannot be replayed while another one is captured, so K is measured
            with this.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._graphs: dict[tuple[int, ...], _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        captured = self._graphs.get(_identity(args, kwargs))
        if captured is None:
            self.prepare(args, kwargs)
            captured = self._graphs[_identity(args, kwargs)]
        captured.graph.replay()
        return captured.result

    @torch.no_grad()
    def prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Capture one set of arguments.

        Raises:
            BaselineUnavailable: the call cannot be captured: it waits for the device, or it resizes
                an argument.
            torch.AcceleratorError: the call has lost the device.
        """
        with _kept(args, kwargs) as storages:
            sizes = [storage.nbytes() for storage in storages]
            self._warm_up(args, kwargs)
            if sizes != [storage.nbytes() for storage in storages]:
                raise BaselineUnavailable("cudagraphs", "it resizes an argument, and a graph keeps addresses")
            graph, result = self._capture(args, kwargs)
        self._graphs[_identity(args, kwargs)] = _Captured(graph, result, (args, kwargs))

    def _warm_up(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                self.function(*args, **kwargs)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        try:
            # A capture that fails at its end does not give the current stream back; the outer `with` does.
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
            ):
                result = self.function(*args, **kwargs)
        except Exception as exc:
            torch.cuda.synchronize()  # Raises if it is the device that is lost, not the capture.
            end_failed_capture(self._pool)
            # The end of a capture that has failed raises as well, and says less.
            cause = exc.__context__ if isinstance(exc.__context__, Exception) else exc
            raise BaselineUnavailable("cudagraphs", _reason(cause)) from exc
        return graph, result


class _Captured(NamedTuple):
    """A graph, what it returns, and its arguments: a graph holds addresses, and an identity is free for reuse."""

    graph: torch.cuda.CUDAGraph
    result: Any
    arguments: tuple[Sequence[Any], Mapping[str, Any]]


def _identity(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    return (*map(id, args), *map(id, kwargs.values()))


@contextlib.contextmanager
def _kept(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[list[torch.UntypedStorage]]:
    """The storages of a call's arguments, which get their values back afterwards."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    storages = list({storage._cdata: storage for storage in (t.untyped_storage() for t in tensors)}.values())
    values = [storage.clone() for storage in storages]
    try:
        yield storages
    finally:
        for storage, value in zip(storages, values, strict=True):
            # An `out=` argument that was resized had too little room for values.
            if storage.nbytes() == value.nbytes():
                storage.copy_(value)


def _reason(error: Exception) -> str:
    """One line that says what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:MAX_REASON_CHARS]
