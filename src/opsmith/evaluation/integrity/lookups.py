"""Functions that Python looks up in shared objects with ctypes: those of torch's and of vendors' that compute.

Python reports every lookup to audit hooks, which nobody can take away again; every import, too. Other ways from a name
to a function are seen by :mod:`.bindings`.
"""

from __future__ import annotations

import _ctypes
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from opsmith.evaluation.integrity.bindings import is_of_torch, is_own
from opsmith.evaluation.integrity.shared_objects import file_of
from opsmith.evaluation.integrity.symbols import Computation, computation

_LOOKUPS = frozenset({"ctypes.dlsym", "ctypes.dlsym/handle"})
_IMPORTS = frozenset({"import", "ctypes.dlopen"})
#: Functions that look others up: through them a name would go unheard.
_LOOKING_UP = frozenset({"dlsym", "dlvsym", "__libc_dlsym", "dlmopen"})


class Lookup(NamedTuple):
    """A computation that somebody looked up.

    Attributes:
        found: what it is.
        of_torch: it lies in a library of torch's; else in a vendor's that anybody could link.
    """

    found: Computation
    of_torch: bool


class Lookups:
    """Hears every lookup of ctypes' from its making on; one a process.

    Attributes:
        tell: takes each lookup of a computation.
        before: called before any other lookup is answered.
        imported: something was imported or opened since somebody set this to False.
    """

    def __init__(self) -> None:
        self.tell: Callable[[Lookup], None] | None = None
        self.before: Callable[[], None] | None = None
        self.imported = False
        self._own = threading.local()
        self._find = _ctypes.dlsym
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _IMPORTS:
            self.imported = True
        if event not in _LOOKUPS or self.tell is None or getattr(self._own, "busy", False):
            return
        self._own.busy = True
        try:
            library, symbol = arguments
            if type(symbol) is not str:
                return
            if self.before is not None:
                self.before()
            if symbol in _LOOKING_UP:
                raise AttributeError(f"{symbol}: a kernel looks symbols up through ctypes itself")
            found = computation(symbol)
            if found is not None and self.tell is not None:
                handle = library if isinstance(library, int) else library._handle
                with contextlib.suppress(OSError):  # There is no such symbol.
                    file = file_of(self._find(handle, symbol))
                    if not is_own(file):
                        self.tell(Lookup(found, is_of_torch(file)))
        finally:
            self._own.busy = False
