"""torch's compiler as kernels and baselines use it: one graph a call, every signature compiled, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

#: One call meets hundreds of signatures, each meant to be compiled; dynamo's
#: limits take so many for a mistake. A result whose size depends on values is no reason to refuse an op, and
#: neither is a number. A pool of compiling processes would outlive the compilation and run beside the clock.
_DYNAMO = {
    "capture_dynamic_output_shape_ops": True,
    "capture_scalar_outputs": True,
    "recompile_limit": 1 << 20,
    "accumulated_recompile_limit": 1 << 20,
}
_INDUCTOR = {"compile_threads": 1}


def traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function, for dynamo starts at one; it traces the overload that this one calls."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@contextlib.contextmanager
def compiler_settings() -> Iterator[None]:
    """The settings for the length of a ``with`` statement."""
    import torch._dynamo.config  # The compiler is as slow to import as the rest of torch.
    import torch._inductor.config

    with torch._dynamo.config.patch(_DYNAMO), torch._inductor.config.patch(_INDUCTOR):
        yield


def use_compiler_settings() -> None:
    """The settings for as long as this process lives: a kernel meets new signatures at any call."""
    import torch._dynamo.config
    import torch._inductor.config

    for config, settings in ((torch._dynamo.config, _DYNAMO), (torch._inductor.config, _INDUCTOR)):
        for name, value in settings.items():
            setattr(config, name, value)
