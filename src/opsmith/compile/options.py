"""Options of the backend: ours, and whatever Inductor's configuration knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import torch

from opsmith.compile.built_in import LIBRARY_CALLS
from opsmith.compile.graph_pass import GraphPass
from opsmith.compile.pass_registry import choose_passes
from opsmith.compile.shipped import check_kernels
from opsmith.errors import BadInput, UnknownName

Fallback: TypeAlias = Literal["inductor", "eager", "raise"]
Graphs: TypeAlias = Literal["auto", "on", "off"]

_OURS = ("mode", "passes", "kernels", "graphs", "fallback")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a model is compiled.

    Attributes:
        passes: in the order in which they run.
        kernels: which shipped kernels replace single ops: those that were ``measured`` to beat Inductor's code or the
            library that it calls, ``none``, or overloads by name.
        graphs: whether inference becomes CUDA graphs where that is safe: ``auto`` if that is faster, always (``on``),
            or never (``off``).
        fallback: what takes a graph that cannot be compiled this way: plain ``inductor``; ``eager``, if
            Inductor cannot take it either; or nothing, and the error is raised.
        inductor: settings of Inductor's for this model.
    """

    passes: tuple[GraphPass, ...]
    kernels: str = "measured"
    graphs: Graphs = "auto"
    fallback: Fallback = "inductor"
    inductor: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tries_kernels(self) -> bool:
        """Whether kernels are tried out against libraries while graphs are compiled."""
        return any(one.name == LIBRARY_CALLS for one in self.passes)


def read_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """What ``torch.compile(model, backend="opsmith", mode=..., options=...)`` asks for.

    Args:
        mode: of Inductor: ``default``, ``reduce-overhead``, ``max-autotune``, ``max-autotune-no-cudagraphs``.
        options: ``mode``, ``passes``, ``kernels``, ``graphs``, ``fallback``; other names are settings of Inductor.

    Raises:
        UnknownName: there is no such mode, pass or setting.
        BadInput: an option cannot have that value.
    """
    given = dict(options or {})
    passes: str | Sequence[str] = given.get("passes", "all")
    inductor = {name.replace("-", "_"): value for name, value in given.items() if name not in _OURS}
    for name in inductor:
        if not hasattr(torch._inductor.config, name):
            raise UnknownName("option", name, (*_OURS, *torch._inductor.config.get_config_copy()))
    kernels = check_kernels(given.get("kernels", "measured"))
    return Options(
        passes=tuple(one for one in choose_passes(passes) if kernels == "measured" or one.name != LIBRARY_CALLS),
        kernels=kernels,
        graphs=_one_of("graphs", given.get("graphs", "auto"), get_args(Graphs)),
        fallback=_one_of("fallback", given.get("fallback", "inductor"), get_args(Fallback)),
        inductor={**_mode_settings(given.get("mode", mode)), **inductor},
    )


def _mode_settings(mode: str | None) -> dict[str, Any]:
    modes = torch._inductor.list_mode_options()
    if mode is not None and mode not in modes:
        raise UnknownName("mode", mode, modes)
    return dict(modes[mode]) if mode is not None else {}


def _one_of(name: str, value: Any, known: Sequence[str]) -> Any:
    if value not in known:
        raise BadInput(f"the option {name} is {value!r}; it can be {', '.join(known)}")
    return value
