"""JSON documents on stdout: the option ``--json`` and what it prints."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def print_json(document: object) -> None:
    """Print records, or lists and dicts of them, indented by two."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
