"""``opsmith scaffold``: operator folders to write kernels in."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from opsmith.aten.spellings import check_ops, op_pattern
from opsmith.core.op import OpSchema
from opsmith.errors import UnknownName

EPILOG = """
Examples:

  opsmith scaffold my_kernels --ops relu.default

  opsmith scaffold my_kernels --ops 'add,mul,_foreach_*'
"""


def scaffold(
    directory: Annotated[Path, typer.Argument(help="Where the folders go; made if need be.", show_default=False)],
    ops: Annotated[
        str,
        typer.Option(
            help="Overloads, packets or wildcards, comma-separated: relu.default,add,_foreach_*.",
            show_default=False,
        ),
    ],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """Make operator folders with typed stubs, ready to be filled in and judged.

    Existing files stay as they are. In-place and out= overloads get a stub only where they are
    named exactly: otherwise the functional kernel answers them.
    """
    patterns = [op_pattern(pattern.strip()) for pattern in ops.split(",")]
    check_ops(patterns)  # Before torch is imported.
    from opsmith.aten.schemas import aten_schemas
    from opsmith.backends.scaffold import scaffold as write_stubs

    chosen, derived = select(aten_schemas().values(), patterns)
    done = write_stubs(directory, chosen, derived=derived)
    if json_output:
        typer.echo(msgspec.json.encode({"directory": str(directory), **msgspec.to_builtins(done)}))
        return
    for name in done.written:
        typer.echo(f"wrote {directory / name}")
    for name in done.kept:
        typer.echo(f"kept  {directory / name} (it was there already)")
    if derived:
        typer.echo(f"{len(derived)} in-place and out= overloads need no stub: the functional kernels answer them")


def select(schemas: Iterable[OpSchema], patterns: Iterable[str]) -> tuple[list[OpSchema], list[OpSchema]]:
    """Choose what to write.

    A pattern is matched with the whole name and with the packet (``add`` is every ``add.*``).

    Returns:
        the overloads to write a kernel for, and all others that these kernels answer as well.

    Raises:
        UnknownName: a pattern matches nothing.
    """
    by_name = {schema.name: schema for schema in schemas}
    # Patterns pass over TorchScript's ops on numbers and strings (add.int): they are never dispatched.
    tensor_ops = {name: schema for name, schema in by_name.items() if "Tensor" in schema.schema}
    exact, matched = set(), set()
    for pattern in patterns:
        if pattern in by_name:
            exact.add(pattern)
            continue
        found = {n for n, s in tensor_ops.items() if fnmatchcase(n, pattern) or fnmatchcase(s.packet, pattern)}
        if not found:
            raise UnknownName("op", pattern, by_name)
        matched |= found
    asked = exact | matched
    answered = {n for n, s in by_name.items() if s.functional in asked and "inplace_view" not in s.tags} - exact
    return [by_name[name] for name in sorted(asked - answered)], [by_name[name] for name in sorted(answered)]
