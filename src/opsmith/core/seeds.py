"""Seeds that follow from what they are for."""

from __future__ import annotations

import hashlib
from typing import Any


def derive_seed(*parts: Any) -> int:
    """A 48-bit seed that follows from its parts and does not give them away (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest())
