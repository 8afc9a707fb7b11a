"""``torch.compile(model, backend="opsmith")``: our passes around Inductor's compilation.

Dynamo's graph is rewritten first, by the passes of the stage *traced*. Inductor then takes it through
AOTAutograd, and hands each lowered graph (inference, forward, backward) to the passes of the stage *lowered*
before its own. What comes out is Inductor's code, for any device that it knows. In inference on a CUDA device, calls of
it may be repeated from a CUDA graph: :mod:`opsmith.compile.replay`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

from opsmith.compile.built_in import BUILT_IN, LAST
from opsmith.compile.cache_key import opsmith_content
from opsmith.compile.graph_pass import Stage
from opsmith.compile.layouts import layout_settings
from opsmith.compile.lowered.library_calls import answered
from opsmith.compile.manager import copy_of, run_passes
from opsmith.compile.options import Options, read_options
from opsmith.compile.replay import Repeatability, Replayed, repeatability
from opsmith.compile.replay.cuda import Cuda
from opsmith.compile.report import GraphReport, add_fallback, add_graph, add_passes
from opsmith.compile.shipped import kernel_decompositions
from opsmith.compile.trials.trying import convolution_precision

_log = logging.getLogger("opsmith")


def opsmith(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's; torch calls this by the entry point's name.

    Args:
        module: the graph.
        inputs: fake tensors, and symbolic sizes.
        mode: as :func:`~opsmith.compile.options.read_options`.
        options: as :func:`~opsmith.compile.options.read_options`.

    Raises:
        UsageError: an option is wrong.
    """
    chosen = read_options(mode, options)
    original = copy_of(module.graph)
    try:
        with config.patch(dict(chosen.inductor)):
            add_passes(run_passes(module.graph, chosen.passes, Stage.TRACED))
        module.recompile()
        found = _repeatability(module, inputs, chosen)
        compiled = _inductor(module, inputs, chosen)
        if found.reason is not None:
            return compiled
        eager = fx.GraphModule(module, original).forward
        return Replayed(
            compiled,
            Cuda(inputs[0].device),
            eager=eager,
            written=found.written,
            always=chosen.graphs == "on",
        )
    except torch._dynamo.exc.RestartAnalysis:
        raise  # Dynamo asks itself to begin anew.
    except Exception as exc:
        if chosen.fallback == "raise":
            raise
        return _without_us(fx.GraphModule(module, original), inputs, chosen, exc)


def _inductor(module: fx.GraphModule, inputs: Sequence[Any], chosen: Options) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    if chosen.tries_kernels and any(isinstance(one, torch.Tensor) and one.is_cuda for one in inputs):
        answered()
    passes = LoweredPasses(chosen, config.post_grad_custom_pre_pass)
    settings = {**chosen.inductor, "post_grad_custom_pre_pass": passes}
    compiled: Any = compile_fx(
        module,
        inputs,
        inner_compile=compile_fx_inner if "layout_optimization" in chosen.inductor else _in_its_layout,
        config_patches=settings,
        decompositions=kernel_decompositions(chosen.kernels),
    )
    return compiled  # type: ignore[no-any-return]


def _in_its_layout(module: fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Any:
    """Compile a lowered graph with the layout of images that is faster for its convolutions."""
    from torch._inductor.compile_fx import compile_fx_inner

    in_training = not settings.get("is_inference") and not settings.get("is_backward")
    # Where weights are frozen, they have been turned already.
    layout = layout_settings(module.graph, in_training=in_training) if settings.get("layout_opt") is None else {}
    with config.patch(dict(layout)):
        return compile_fx_inner(module, inputs, **settings)


def _repeatability(module: fx.GraphModule, inputs: Sequence[Any], chosen: Options) -> Repeatability:
    """Whether a CUDA graph may be made of a graph of Dynamo's; whoever listens is told why not."""
    if chosen.graphs == "off":
        found = Repeatability("graphs=off")
    elif chosen.inductor.get("triton.cudagraphs", config.triton.cudagraphs):
        found = Repeatability("Inductor makes its own")
    else:
        found = repeatability(module, inputs)
    if found.reason is not None:
        add_graph(GraphReport(reason=found.reason))
        _log.debug("a compiled graph is not replayed as a CUDA graph: %s", found.reason)
    return found


def _without_us(module: fx.GraphModule, inputs: Sequence[Any], chosen: Options, error: Exception) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx

    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    add_fallback(reason)
    _log.warning("a graph is compiled by Inductor alone, because with opsmith it was not: %s", reason)
    eager = fx.GraphModule(module, copy.deepcopy(module.graph))
    try:
        compiled: Any = compile_fx(module, inputs, config_patches=dict(chosen.inductor))
    except Exception as exc:
        if chosen.fallback != "eager":
            raise
        _log.warning("a graph runs in eager mode, because Inductor does not compile it: %s", exc)
        return eager.forward
    return compiled  # type: ignore[no-any-return]


class LoweredPasses(CustomGraphPass):
    """The passes of the stage *lowered*, where Inductor runs passes of its users.

    Inductor and AOTAutograd keep what they compile on disk; :meth:`uuid` tells graphs apart that went through
    other passes or may call other kernels.

    Args:
        chosen: what is compiled how.
        configured: the passes that the user's configuration of Inductor holds; they run first.
    """

    def __init__(self, chosen: Options, configured: Any = None) -> None:
        self._passes = tuple(one for one in chosen.passes if one.stage is Stage.LOWERED)
        self._configured = tuple(configured) if isinstance(configured, (list, tuple)) else (configured,)
        self._kernels = chosen.kernels
        self._tries_kernels = chosen.tries_kernels and torch.cuda.is_available()

    def __call__(self, graph: fx.Graph) -> None:
        for one in self._configured:
            if one is not None:
                one(graph)
        add_passes(run_passes(graph, self._passes, Stage.LOWERED))

    def uuid(self) -> Any | None:
        """What tells these passes and kernels from others, or None if nobody knows: then nothing is kept."""
        ours = {*BUILT_IN, LAST}
        parts: list[Any] = [opsmith_content(), self._kernels]
        parts += [one.name if one in ours else one.identity() for one in self._passes]
        if self._tries_kernels:
            parts.append(
                convolution_precision()
            )  # Torch's own keys leave it out; the layout of images hangs on it, too.
        configured = (one for one in self._configured if one is not None)
        parts.extend(one.uuid() if isinstance(one, CustomGraphPass) else None for one in configured)
        return None if None in parts else ("opsmith", *parts)
