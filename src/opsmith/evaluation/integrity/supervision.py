"""The worker's side of the trust model: everything that is watched while a stranger's code runs.

It runs in the stranger's process, so what it does not find proves nothing; what it finds does.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch
from torch.utils._pytree import tree_leaves

from opsmith.calls.fresh_values import fetch_kernels
from opsmith.core.conduct import AtenCall, CallConduct, Offence
from opsmith.core.op import OpSchema
from opsmith.evaluation.integrity import lookups
from opsmith.evaluation.integrity.bindings import Bindings
from opsmith.evaluation.integrity.curiosity import listen
from opsmith.evaluation.integrity.fetches import Fetches
from opsmith.evaluation.integrity.inheritance import code_of_ops
from opsmith.evaluation.integrity.launches import Launches
from opsmith.evaluation.integrity.lookups import Lookup, Lookups
from opsmith.evaluation.integrity.namespaces import registered_since
from opsmith.evaluation.integrity.poison import Poison, dispatch_keys, registered_for
from opsmith.evaluation.integrity.policy import (
    forbidden,
    forbidden_by_native,
    forbidden_elsewhere,
    forbids_fetching,
    is_copying_task,
    is_making_task,
    namespaces_of_torch,
)
from opsmith.evaluation.integrity.symbols import breaks
from opsmith.evaluation.integrity.tampering import Snapshot
from opsmith.evaluation.integrity.watch import CodeOf, DispatchWatch

#: Modules whose own calls of ATen are not the kernel's: they pass arguments, launch, tune, and copy
#: a functional result into the argument that a variant writes to.
TRUSTED_MODULES = (
    "opsmith.aten.derivation",
    "opsmith.tasks.rank_program",
    "opsmith.tasks.module_call",
    "triton.runtime.autotuner",
    "triton.runtime.interpreter",
    "triton.runtime.jit",
    "triton.testing",
)
#: Files that look symbols up on behalf of their caller.
_ON_BEHALF = frozenset({ctypes.__file__, ctypes.util.__file__, lookups.__file__})


class Premises(NamedTuple):
    """What is known of a process before a stranger's code comes into it; children inherit it."""

    launches: Launches
    fetches: Fetches
    lookups: Lookups
    bindings: Bindings
    trusted: CodeOf
    snapshot: Snapshot


@functools.cache
def premises() -> Premises:
    """Made once, by the process that the others are forked from, when it has imported everything."""
    namespaces_of_torch()
    code_of_ops()
    for device in ("CPU", "CUDA"):
        for key in dispatch_keys(device):
            registered_for(key)  # Before anything is poisoned.
    Poison(forbidden_by_native(), ("CPU", "CUDA"), bool, layouts=False)  # For what it looks up about each op.
    if torch.backends.cuda.is_built():
        fetch_kernels("cuda")
    trusted = CodeOf(sys.modules[name] for name in TRUSTED_MODULES if name in sys.modules)
    return Premises(Launches(), Fetches(), Lookups(), Bindings(), trusted, Snapshot.take())


class Supervision:
    """Made before anything of a stranger is loaded.

    Args:
        device: where the kernels run.
        tell: takes a line that is held against the kernel, and what it is about, to where no kernel can take it
            back.
    """

    def __init__(self, device: torch.device, tell: Callable[[str, Offence], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()
        self._device = device.type
        self._devices = ("CPU",) if device.type == "cpu" else ("CPU", torch._C._dispatch_key_for_device(device.type))
        self._launches, fetches, self._lookups, self._bindings, self._trusted, snapshot = premises()
        fetches.tell = self._fetched
        self._lookups.tell, self._lookups.before = self._looked_up, self._bindings.look
        self._task: tuple[OpSchema, str] | None = None
        self._is_loading = False
        #: Vendors' functions that the kernel holds, which it may call at any time.
        self._held: dict[AtenCall, None] = {}
        self._snapshot = snapshot.retaken()
        self._launched_before = 0
        self._copies_are_work = False
        self._delivers = False
        self._poison = Poison((), (), self._is_trusted, layouts=False)
        self._forbidden: frozenset[str] = frozenset()
        self._watch = DispatchWatch(self._forbidden, self._trusted)

    def expect(self, schema: OpSchema, policy: str) -> None:
        """From now on a kernel is loaded that is to answer ``schema`` under ``policy``.

        It may compute what it likes meanwhile. The poison is in all the same: what is fetched out of the dispatcher now
        and called later tells.
        """
        self._task = schema, policy
        self._is_loading = True
        self._forbid(forbidden(schema, policy, self._device))
        self._lookups.imported = False
        self._poison.install()

    def _fetched(self, of: Any, line: str) -> None:
        """Hold it against the kernel if its policy forbids calling what was fetched past the dispatcher."""
        if self._task is None:
            return
        schema, policy = self._task
        if isinstance(of, torch._ops.OpOverload):
            of = of._name
        # A group's backend makes every collective; a stranger's string may say what it likes, but not here.
        breach = policy == "native"
        if isinstance(of, str):
            breach = forbids_fetching(schema, policy, str.__str__(of), self._device)
        if breach:
            self.note(line)

    def _looked_up(self, lookup: Lookup) -> None:
        """Hold it against the kernel if calling that would break its policy: nobody sees whether it is called."""
        if self._task is None or not breaks(lookup.found, *self._task):
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename in _ON_BEHALF:
            frame = frame.f_back
        place = self._watch.place(frame)
        if place is None:
            return
        if lookup.of_torch:
            self.note(f"looked up {lookup.found.name} past the dispatcher at {place}")
        else:
            self._held[AtenCall(lookup.found.name, place)] = None

    def _past_the_dispatcher(self) -> tuple[AtenCall, ...]:
        """Vendors' functions that the kernel's own objects have called since; what lies in torch's is told."""
        vendors: dict[AtenCall, None] = {}
        for called in self._bindings.called():
            if self._task is None or not breaks(called.found, *self._task):
                continue
            if called.of_torch:
                verb, preposition = ("looked up", "from") if called.looked_up else ("called", "in")
                self.note(f"{verb} {called.found.name} past the dispatcher {preposition} {called.place}")
            else:
                vendors[AtenCall(called.found.name, called.place)] = None
        return (*self._held, *vendors)

    def begin(self, schema: OpSchema, policy: str) -> None:
        """From now on the kernel in hand answers ``schema`` under ``policy``."""
        self._copies_are_work = is_copying_task(schema)
        self._delivers = is_making_task(schema)
        if self._task != (schema, policy):
            self.expect(schema, policy)
        self._is_loading = False
        self.look_again()
        self._watch = DispatchWatch(self._forbidden, self._trusted)
        self._poison.install()

    def _forbid(self, ops: frozenset[str]) -> None:
        if ops != self._forbidden:
            self._poison.remove()
            self._forbidden = ops
            # What leads to other layouts is a computation, which native forbids anyway.
            layouts = self._task is not None and self._task[1] == "any"
            self._poison = Poison(ops, self._devices, self._is_trusted, layouts=layouts)

    def _newly_forbidden(self) -> frozenset[str]:
        """What the kernel has had registered by importing it, of what its policy forbids."""
        assert self._task is not None
        return forbidden_elsewhere(registered_since(), *self._task)

    def look_again(self) -> None:
        """Take in what the kernel has imported and opened: calls of that tell from now on."""
        self._bindings.look()
        if self._task is not None and self._lookups.imported:
            self._lookups.imported = False
            self._forbid(forbidden(*self._task, self._device) | self._newly_forbidden())

    def heed(self) -> None:
        """Tell what was called past the dispatcher in blocks that nobody watches."""
        self._bindings.look()
        for call in self._past_the_dispatcher():
            self.note(f"called {call}", Offence.COMPOSITION)

    def arm(self) -> None:
        """Poison the dispatcher again, should it have been taken out; for calls that nobody watches."""
        self._poison.install()

    @contextlib.contextmanager
    def watching(self, arguments: Any) -> Iterator[DispatchWatch]:
        """Within it everything that the kernel asks of ATen on this thread is logged.

        Args:
            arguments: of the call.
        """
        inputs = () if self._copies_are_work else (a for a in tree_leaves(arguments) if isinstance(a, torch.Tensor))
        self._watch = DispatchWatch(
            self._forbidden,
            self._trusted,
            inputs,
            delivers=self._delivers,
            newly_forbidden=self._newly_forbidden,
        )
        self._poison.install()
        self._launched_before = self._launches.count
        with self._watch:
            yield self._watch

    def conduct(self, result: Any) -> CallConduct:
        """What was seen since :meth:`watching` was entered."""
        seen = self._watch.conduct(result, launches=self._launches.count - self._launched_before)
        past = self._past_the_dispatcher()
        return msgspec.structs.replace(seen, forbidden=(*seen.forbidden, *past)) if past else seen

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within it this process computes for itself, on this thread."""
        with self._poison.computing():
            yield

    def end(self) -> None:
        """Take the poison out, for a kernel that has no policy."""
        self._task = None
        self._is_loading = False
        self._held.clear()
        self._poison.remove()

    def note(self, line: str, offence: Offence = Offence.TAMPERING) -> None:
        """Tell something that is held against the kernel, once."""
        if line not in self._told:
            self._told.add(line)
            self._tell(line, offence)

    def changes(self, *, seed: int | None = None) -> tuple[str, ...]:
        """What of Python's, torch's and opsmith's own was replaced since this object was made.

        Args:
            seed: what the default generator was last seeded with; None if that says nothing.
        """
        return self._snapshot.changes(seed=seed)

    def guard(self, root: Path) -> None:
        """From now on a kernel of that folder is seen to look through its callers' frames or through all objects."""
        listen(root, self.note)

    def _is_trusted(self, op: str) -> bool:
        if self._is_loading:
            return True
        found = self._watch.forbidden_call(op)
        if found is not None:
            call, offence = found
            self.note(f"called {call}", offence)
        return found is None
