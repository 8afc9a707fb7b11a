"""The entry in C++ that stands before a Python function in torch's dispatch table."""

from __future__ import annotations

import ctypes

from torch._ops import OpOverload

from opsmith.dispatch.plans.cuda_driver import Driver
from opsmith.dispatch.plans.encoding import Table


class Front:
    """What stands in torch's table of one overload under a device's key, before a Python function.

    Make it, put the Python function into the table, then call :meth:`register`. While it is off, calls go to what
    was in the table when it was made, without Python.
    """

    def __init__(self, library: ctypes.CDLL, op: OpOverload, key: str, driver: Driver) -> None:
        self.library = library
        name, _, overload = op.name().partition(".")
        texts = [text.encode() for text in (name, overload, key, driver.device_type)]
        self._handle = library.opsmith_front(*texts, driver.launch_address, driver.stream_address)
        assert self._handle, f"torch has no {op}"

    def register(self) -> None:
        """Put it into the table."""
        registered = self.library.opsmith_register(self._handle)
        assert registered

    def unregister(self) -> None:
        """Take it out of the table; whoever calls this keeps torch's handle of it alive for threads that are in it."""
        self.library.opsmith_unregister(self._handle)

    def use(self, table: Table | None) -> None:
        """Answer calls by the plans of a table, or leave all to the Python function."""
        self.library.opsmith_use(self._handle, True, None if table is None else table.handle)

    def switch_off(self) -> None:
        """Leave all calls to what was in the table when the front was made."""
        self.library.opsmith_use(self._handle, False, None)
