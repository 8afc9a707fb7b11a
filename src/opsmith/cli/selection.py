"""Options that every verb that takes tasks shares: which suite, ops, dtypes and device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from opsmith.errors import BadInput

DEVICE = re.compile(r"[a-z]+(:\d+)?")

Suite = Annotated[str, typer.Option(help="What is asked: smoke or opinfo, or an installed plug-in's suite.")]
Ops = Annotated[
    str,
    typer.Option(help="Overloads, packets or wildcards, comma-separated: relu.default,add*,mm.", show_default="all"),
]
Dtype = Annotated[str, typer.Option(help="Dtypes, comma-separated: bf16,f32 (or all).")]
Device = Annotated[
    str, typer.Option(help="Torch device string.", show_default="cuda where there is an NVIDIA GPU, else cpu")
]


def parse_ops(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of op patterns."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_device(text: str) -> str:
    """The device asked for, or the machine's default when ``text`` is empty.

    Raises:
        BadInput: ``text`` is no torch device string.
    """
    if not text:
        return "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"
    if not DEVICE.fullmatch(text):
        raise BadInput(f"{text!r} is not a torch device string; write cpu, cuda or cuda:1")
    return text
