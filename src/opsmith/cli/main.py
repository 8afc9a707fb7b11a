"""The ``opsmith`` command: registers the verbs and maps errors to exit statuses."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import opsmith
from opsmith.cli import (
    baseline,
    book,
    check,
    compare,
    dataset,
    doctor,
    explain,
    generate,
    mutants,
    ops,
    package,
    prewarm,
    report,
    run,
    scaffold,
    serve,
    token,
    trace,
    tune,
)
from opsmith.core.package import OFF_VARIABLE
from opsmith.errors import OpsmithError, UsageError
from opsmith.report.strangers import printable

PASSED, SOMETHING_FAILED, WRONG_USAGE, INTERNAL_ERROR, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    name="opsmith",
    help="Judge, write and install kernels for PyTorch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)


#: Errors of a file system without room.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

#: What is said of an interrupted verb that has an option ``--resume``, and of those that look for what is done already.
_RESUME, _REPEAT = "continue with --resume and the same -o", "the same command goes on where it was"
_REPEATED = (mutants.mutants, prewarm.prewarm, tune.tune)


def _interrupted(verb: Callable[..., int | None]) -> str:
    if verb in _REPEATED:
        return f"interrupted; {_REPEAT}"
    return f"interrupted; {_RESUME}" if "resume" in inspect.signature(verb).parameters else "interrupted"


def _guarded(verb: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a verb's errors into one line on stderr and its result into an exit status."""

    @functools.wraps(verb)
    def run_verb(*args: Any, **kwargs: Any) -> None:
        try:
            status = verb(*args, **kwargs) or PASSED
        except UsageError as exc:
            status = _complain(str(exc), WRONG_USAGE)
        except OpsmithError as exc:
            status = _complain(f"internal error: {exc}", INTERNAL_ERROR)
        except KeyboardInterrupt:
            status = _complain(_interrupted(verb), INTERRUPTED)
        except Exception as exc:  # noqa: BLE001 - the last line of defence: status 3 with the traceback to report
            if isinstance(exc, OSError) and exc.errno in _NO_ROOM:
                where = f" for {exc.filename}" if exc.filename else ""
                status = _complain(f"{exc.strerror}{where}; make room and repeat the command", WRONG_USAGE)
            else:
                status = _complain(f"internal error, please report it:\n{traceback.format_exc()}", INTERNAL_ERROR)
        raise typer.Exit(status)

    return run_verb


def _complain(message: str, status: int) -> int:
    sys.stderr.write(f"opsmith: {printable(message, limit=len(message))}\n")
    return status


for _verb in (
    run,
    check,
    generate,
    ops,
    scaffold,
    package,
    prewarm,
    tune,
    trace,
    explain,
    report,
    compare,
    mutants,
    baseline,
    serve,
    doctor,
):
    _name = _verb.__name__.rpartition(".")[2]
    app.command(_name, epilog=_verb.EPILOG)(_guarded(getattr(_verb, _name)))

_GROUPS: dict[str, tuple[str, Sequence[tuple[Callable[..., int | None], str]]]] = {
    "book": (book.HELP, book.COMMANDS),
    "dataset": (dataset.HELP, dataset.COMMANDS),
    "token": (token.HELP, token.COMMANDS),
}
for _name, (_help, _commands) in _GROUPS.items():
    _group = typer.Typer(help=_help, no_args_is_help=True, rich_markup_mode="markdown")
    for _command, _epilog in _commands:
        _group.command(_command.__name__.rstrip("_"), epilog=_epilog)(_guarded(_command))
    app.add_typer(_group, name=_name)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"opsmith {opsmith.__version__}\n")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Judge, write and install kernels for PyTorch."""


def main() -> None:
    """Run the command line; exits with one of the statuses above (2 for wrong usage)."""
    os.environ[OFF_VARIABLE] = "1"  # What judges, and what it is compared with, is PyTorch as it comes.
    app()
