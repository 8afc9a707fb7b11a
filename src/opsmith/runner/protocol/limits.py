"""Time limits of requests."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits, in seconds.

    Attributes:
        load_s: for loading a kernel; compilers may run during it.
        call_s: for one request to a worker: one case, or one timed block. A kernel that Triton's interpreter runs
            gets INTERPRETED_CALL times as long, and one that runs a compiler then gets ``load_s``.
        eager_s: for one request to a referee to run eager on calls of up to SMALL_CALLS_BYTES together, in float64 too;
            three times what a kernel gets.
        referee_s: for any other request to a referee, those about larger calls among them.
    """

    load_s: float = 120.0
    call_s: float = 20.0
    eager_s: float = 60.0
    referee_s: float = 180.0
