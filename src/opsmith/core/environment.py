"""The environment of a run: what a figure depends on besides the code."""

from __future__ import annotations

import msgspec


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Versions and hardware; None where a thing does not exist on the machine."""

    opsmith: str
    python: str
    torch: str
    triton: str | None
    platform: str
    cpu: str
    cpu_count: int
    memory_gib: float
    device: str
    device_name: str
    driver: str | None = None
    cuda: str | None = None
    compiler: str | None = None
    git_commit: str | None = None
