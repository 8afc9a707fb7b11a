"""Counts in words: ``1 op``, ``2 ops``, ``1,024 cases``."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"
