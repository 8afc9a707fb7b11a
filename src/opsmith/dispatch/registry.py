"""The entries in torch's dispatch tables: made once, switched at any time, removed when that is safe.

Removing an entry frees the function behind it. A thread that has looked the entry up and waits for the
interpreter's lock would then call freed memory, and nothing that runs in Python can see it there. So

- switching off sets a flag in each entry, at once and whatever other threads do: they go to torch's own kernels;
- entries are removed only when no other thread runs Python or waits for something other than a lock of the
  standard library. Else they stay, switched off, until the next chance;
- what was removed is kept alive until the next removal, against threads that only C++ knows of.
"""

from __future__ import annotations

import concurrent.futures.thread
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

import torch

from opsmith.aten.schemas import overload
from opsmith.core.op import OpSchema
from opsmith.dispatch.entry import Override, autograd_function, backend_function, original_kernel
from opsmith.dispatch.plans import native
from opsmith.dispatch.plans.cuda_driver import driver
from opsmith.dispatch.plans.front import Front

#: Where an idle thread of the standard library stands: it calls nothing of torch's from there.
_WAITING: frozenset[CodeType] = frozenset(
    {
        threading.Condition.wait.__code__,
        threading.Thread.join.__code__,
        concurrent.futures.thread._worker.__code__,
        *([threading.Thread._wait_for_tstate_lock.__code__] if sys.version_info < (3, 13) else []),  # type: ignore[attr-defined]
    }
)

Place = tuple[str, str]


class Registry:
    """The overrides that stand in torch's tables, by overload and device type."""

    def __init__(self) -> None:
        self.overrides: dict[Place, Override] = {}
        self._libraries: list[torch.library.Library] = []
        self._registered: list[tuple[str, str]] = []
        self._removed: list[torch._C._SafeKernelFunction] = []
        self._codes: set[CodeType] = set()

    def ensure(self, wanted: Iterable[tuple[OpSchema, str]]) -> None:
        """Have a switched-off override for each of these overloads and device types."""
        missing = [place for place in wanted if (place[0].name, place[1]) not in self.overrides]
        if not missing:
            return
        library = torch.library.Library("aten", "IMPL")
        self._libraries.append(library)
        with warnings.catch_warnings():
            # Overriding is the purpose; torch warns of the first one in a process.
            warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
            for schema, device_type in missing:
                self.overrides[schema.name, device_type] = self._register(library, schema, device_type)

    def switch_off(self) -> None:
        """Let every call go to torch's own kernels from now on."""
        for override in self.overrides.values():
            override.serve(None)

    def remove(self) -> bool:
        """Take every entry out of torch's tables, if no thread can be in one; returns whether that was so."""
        self.switch_off()
        alive = [torch.library.get_kernel(op, key) for op, key in self._registered]
        if not self._is_safe():
            return False
        # What was put into a table last goes first.
        for override in self.overrides.values():
            if override.front is not None:
                override.front.unregister()
        for library in self._libraries:
            library._destroy()
        self._removed = alive
        self._libraries.clear()
        self._registered.clear()
        self.overrides.clear()
        return True

    def _register(self, library: torch.library.Library, schema: OpSchema, device_type: str) -> Override:
        override = Override(schema, device_type)
        op, key = overload(schema.name), torch._C._dispatch_key_for_device(device_type)
        composite = is_composite(op, key)
        function = backend_function(override, original_kernel(op, key))
        name = op.name().removeprefix("aten::")
        override.front = _front(op, key, device_type)
        if composite:
            under_autograd = autograd_function(override, original_kernel(op, f"Autograd{key}"))
            library.impl(name, under_autograd, f"Autograd{key}", with_keyset=True, allow_override=True)
            self._registered.append((op.name(), f"Autograd{key}"))
            self._codes.add(under_autograd.__code__)
        library.impl(name, function, key, allow_override=True)
        self._registered.append((op.name(), key))
        self._codes.add(function.__code__)
        if override.front is not None:
            override.front.register()
        return override

    def _is_safe(self) -> bool:
        frames = sys._current_frames()
        own = frames.pop(threading.get_ident())
        if any(frame.f_code in self._codes for frame in _stack(own)):
            return False  # Called by a kernel.
        return all(frame.f_code in _WAITING for frame in frames.values())


def _front(op: torch._ops.OpOverload, key: str, device_type: str) -> Front | None:
    """What is to stand before the Python function.

    Every op of a device type that has a launcher gets one, not only those whose kernels allow plans: it marks the
    thread as being in Python, where other fronts leave their calls to Python, which knows of kernels that call ops.
    """
    library, found = native.library(), driver(device_type)
    return None if library is None or found is None else Front(library, op, key, found)


def is_composite(op: torch._ops.OpOverload, key: str) -> bool:
    """Whether torch answers an op under a backend's key by decomposing it, gradient and all."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    own = has(op.name(), key) or has(op.name(), f"Autograd{key}") or has(op.name(), "CompositeExplicitAutograd")
    return has(op.name(), "CompositeImplicitAutograd") and not own


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
