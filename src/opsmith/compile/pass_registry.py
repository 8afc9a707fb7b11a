"""The passes that there are: opsmith's own, and those that users register.

A pass of yours takes ten lines::

    @graph_pass("double_negation", stage="lowered")
    def double_negation(graph: torch.fx.Graph) -> int:
        changed = 0
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default):
            if node.args[0].target == node.target:
                node.replace_all_uses_with(node.args[0].args[0])
                changed += 1
        return changed

It runs after opsmith's own passes of its stage, but for the one that has kernels make calls. What it breaks is
undone: see :mod:`opsmith.compile.manager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from opsmith.compile.cache_key import package_content
from opsmith.compile.graph_pass import GraphPass, Rewrite, Stage
from opsmith.errors import BadInput, UnknownName

#: Passes of users, in the order in which they were registered.
_registered: dict[str, GraphPass] = {}


def graph_pass(
    name: str, *, stage: Literal["traced", "lowered"] = "lowered", key: str | None = None
) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as a pass that every later compilation runs.

    Args:
        name: not that of one of opsmith's own; a pass of yours with the same name is replaced.
        stage: of :class:`Stage`.
        key: names this version of the pass; change it with everything that changes what the pass does. Compiled
            graphs on disk are told apart by it. Without one, by the content of the pass's whole package; and a pass
            in no package turns Inductor's caches off for the graphs that it runs on.

    Raises:
        BadInput: one of opsmith's own passes has this name, or there is no such stage.
    """
    from opsmith.compile.built_in import BUILT_IN, LAST  # It imports Inductor: a second.

    if name in {one.name for one in (*BUILT_IN, LAST)}:
        raise BadInput(f"opsmith has a pass {name!r} of its own; give yours another name")
    if stage not in set(Stage):
        raise BadInput(f"no stage {stage!r}; a pass runs on graphs of the stage traced or lowered")

    def register(run: Rewrite) -> Rewrite:
        _registered[name] = GraphPass(name, Stage(stage), run, key=key, registered=package_content(run))
        return run

    return register


def forget_pass(name: str) -> None:
    """Undo :func:`graph_pass`.

    Raises:
        UnknownName: no pass of a user has this name.
    """
    if name not in _registered:
        raise UnknownName("pass of yours", name, _registered)
    del _registered[name]


def choose_passes(wanted: str | Sequence[str] = "all") -> tuple[GraphPass, ...]:
    """The passes that an option names, in the order in which they run.

    Args:
        wanted: ``all``, ``none``, or names as a list or separated by commas. A name with a minus sign leaves
            that pass out; names that all have one leave all others in.

    Raises:
        UnknownName: there is no such pass.
    """
    from opsmith.compile.built_in import BUILT_IN, LAST

    known = {one.name: one for one in (*BUILT_IN, *_registered.values(), LAST)}
    names = [name.strip() for name in wanted.split(",")] if isinstance(wanted, str) else list(wanted)
    if names == ["none"]:
        return ()
    for name in names:
        if name != "all" and name.removeprefix("-") not in known:
            raise UnknownName("pass", name.removeprefix("-"), known)
    left_out = {name[1:] for name in names if name.startswith("-")}
    named = {name for name in names if not name.startswith("-")}
    everything = "all" in named or not named
    return tuple(one for one in known.values() if (everything or one.name in named) and one.name not in left_out)
