"""``opsmith package``: a kernel directory as a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from opsmith.core.counts import counted
from opsmith.errors import BadInput

EPILOG = """
Examples:

  opsmith package my_kernels --license MIT

  opsmith package my_kernels --run runs/mine --name tuned-kernels --version 1.2 -o dist

  opsmith package my_kernels --run runs/mine --approved

  opsmith package my_kernels --run runs/mine --license apache-2.0 --hub tuned-kernels/
"""


class Packaged(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints.

    Attributes:
        wheel: the file, or None.
        hub: the folder of a repository for the kernel hub, or None.
        name: of the package.
        version: of the package.
        license: SPDX expression, or None where only licence files tell.
        ops: the overloads that it serves -> content hash of the kernel.
        left_out: overloads that the directory answers and the package does not serve, with the reason.
    """

    wheel: str | None
    hub: str | None
    name: str
    version: str
    license: str | None
    ops: dict[str, str]
    left_out: dict[str, str]


def package(
    directory: Annotated[Path, typer.Argument(help="A kernel directory.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the wheel goes; made if need be.")] = Path(),
    name: Annotated[
        str | None, typer.Option(help="Name of the package; by default the directory's.", show_default=False)
    ] = None,
    version: Annotated[str, typer.Option(help="Version of the package.")] = "1.0",
    run: Annotated[
        Path | None,
        typer.Option(help="A run that judged the directory: only what it accepted goes in.", show_default=False),
    ] = None,
    approved: Annotated[
        bool, typer.Option("--approved", help="Only what people approved, as it is now, goes in; see `opsmith review`.")
    ] = False,
    ops: Annotated[
        str | None,
        typer.Option(help="Overloads, packets or wildcards, comma-separated; all by default.", show_default=False),
    ] = None,
    license_expression: Annotated[
        str | None,
        typer.Option(
            "--license", help="SPDX expression of all kernels; by default what the manifest says.", show_default=False
        ),
    ] = None,
    hub: Annotated[
        Path | None,
        typer.Option(
            help="Write no wheel, but a repository for Hugging Face's kernel hub into this folder.", show_default=False
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """Make a wheel of a kernel directory. Once it is installed, `import torch` enables its kernels.

    The kernels are neither imported nor run here.
    """
    from opsmith.core.run import write_atomically
    from opsmith.dispatch.selection import split_patterns
    from opsmith.packaging.hub import hub_files, write_hub
    from opsmith.packaging.kernels import collect

    patterns = None if ops is None else split_patterns(ops)
    contents = collect(
        directory, name=name, version=version, license=license_expression, ops=patterns, run=run, approved=approved
    )
    metadata = contents.metadata  # Refuses names and versions that no installer takes.
    path = out / metadata.file_name if hub is None else hub
    if hub is not None:
        write_hub(hub_files(contents, contents.kernel_files()), hub)
    else:
        data = contents.wheel()
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        except OSError as exc:
            raise BadInput(f"{path} cannot be written: {exc.strerror}; choose another -o") from exc
    packaged = Packaged(
        wheel=None if hub is not None else str(path),
        hub=None if hub is None else str(hub),
        name=contents.package.name,
        version=contents.package.version,
        license=contents.package.license,
        ops={op.schema.name: op.content_hash for op in contents.package.ops},
        left_out=contents.left_out,
    )
    if json_output:
        typer.echo(msgspec.json.encode(packaged))
        return
    for op, reason in packaged.left_out.items():
        typer.echo(f"left out {op}: {reason}")
    if hub is not None:
        typer.echo(f"wrote {path}: kernels for {counted(len(packaged.ops), 'op')}, a repository for the kernel hub")
        return
    typer.echo(f"wrote {path}: kernels for {counted(len(packaged.ops), 'op')}; install it with `pip install {path}`")
