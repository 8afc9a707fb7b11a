"""Runs passes one by one and takes back what a pass should not have done.

A pass is undone, and a warning names it, when it raises, when it leaves a graph that does not lint, when it
adds or drops a call with an effect, and when the graph's outputs differ in shape, dtype, stride or device from
those before. The graph is then as if the pass had not run.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterable, Sequence

from torch import fx

from opsmith.compile.graph.effects import has_effect
from opsmith.compile.graph.values import Values
from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.compile.report import PassReport

_log = logging.getLogger("opsmith")


class BrokenGraphError(Exception):
    """A pass left a graph that does something else; caught where the pass is undone."""


def run_passes(graph: fx.Graph, passes: Iterable[GraphPass], stage: Stage) -> Sequence[PassReport]:
    """Rewrite a graph in place with the passes of one stage."""
    chosen = [one for one in passes if one.stage is stage]
    if not chosen:
        return []
    guarded = _Guarded(graph)
    return [guarded.run(one) for one in chosen]


class _Guarded:
    """A graph that goes back to what it was before a pass that broke it."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._keep()

    def _keep(self) -> None:
        self._original, self._values, self._effects = copy_of(self._graph), Values(self._graph), _effects(self._graph)

    def run(self, one: GraphPass) -> PassReport:
        started, before = time.perf_counter(), len(self._graph.nodes)
        complaint, fired = None, 0
        try:
            fired = one.run(self._graph)
            if self._values.changed():
                self._check()
                self._original = copy_of(self._graph)
        except Exception as exc:  # noqa: BLE001 - a pass may be anybody's and raise anything
            _restore(self._graph, self._original)
            self._keep()
            complaint, fired = f"{type(exc).__name__}: {' '.join(str(exc).split())}", 0
            _log.warning(
                "the pass %s is undone on a %s graph: %s; leave it out with passes='-%s'",
                *(one.name, one.stage, complaint, one.name),
            )
        return PassReport(
            name=one.name,
            stage=one.stage.value,
            fired=fired,
            undone=complaint,
            differs=one.differs,
            nodes_before=before,
            nodes_after=len(self._graph.nodes),
            seconds=time.perf_counter() - started,
        )

    def _check(self) -> None:
        self._graph.lint()
        if _effects(self._graph) != self._effects:
            raise BrokenGraphError("calls that write, draw random numbers or check something came or went")
        updated = self._values.updated()
        complaint = self._values.complaint(updated)
        if complaint is not None:
            raise BrokenGraphError(complaint)
        self._values.store(updated)


def _effects(graph: fx.Graph) -> list[object]:
    """What every call with an effect calls, in their order."""
    return [node.target for node in graph.nodes if node.op.startswith("call_") and has_effect(node)]


def copy_of(graph: fx.Graph) -> fx.Graph:
    """A copy of a graph that can stand for it: with the sources of its inputs, which guards are made of."""
    copied = copy.deepcopy(graph)
    for node, twin in zip(graph.nodes, copied.nodes, strict=True):
        if hasattr(node, "_dynamo_source"):
            twin._dynamo_source = node._dynamo_source
    return copied


def _restore(graph: fx.Graph, original: fx.Graph) -> None:
    """Make ``graph`` what ``original`` is; others hold the object, so it stays the same one."""
    owner, nodes = graph.owning_module, [original._root, *original.nodes]
    vars(graph).update(vars(original))
    for node in nodes:
        node.graph = graph
    graph.owning_module = owner
