"""The ``opsmith`` command: finds the verb that is asked for and maps errors to exit statuses."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer

import opsmith
from opsmith.cli.verbs import HELP_NAMES, Verbs
from opsmith.core.package import OFF_VARIABLE
from opsmith.core.storage import storage_problem
from opsmith.errors import MachineFailed, NoDeviceMemory, OpsmithError, UsageError
from opsmith.report.strangers import printable

PASSED, SOMETHING_FAILED, WRONG_USAGE, INTERNAL_ERROR, INTERRUPTED = 0, 1, 2, 3, 130

#: What is said of an interrupted verb that has an option ``--resume``, and of those that look for what is done already.
_RESUME, _REPEAT = "continue with --resume and the same -o", "the same command goes on where it was"
_REPEATED = {"mutants", "prewarm", "tune"}


def _resumes(verb: Callable[..., int | None]) -> bool:
    return "resume" in inspect.signature(verb).parameters


def _interrupted(verb: Callable[..., int | None]) -> str:
    if verb.__name__ in _REPEATED:
        return f"interrupted; {_REPEAT}"
    return f"interrupted; {_RESUME}" if _resumes(verb) else "interrupted"


def _going_on(verb: Callable[..., int | None]) -> str:
    """What to do once what stopped a verb is out of the way."""
    return _RESUME if _resumes(verb) else "repeat the command"


def _guarded(verb: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a verb's errors into one line on stderr and its result into an exit status."""

    @functools.wraps(verb)
    def run_verb(*args: Any, **kwargs: Any) -> None:
        try:
            status = verb(*args, **kwargs) or PASSED
        except NoDeviceMemory as exc:
            status = _complain(f"{exc}, then {_going_on(verb)}", WRONG_USAGE)
        except UsageError as exc:
            status = _complain(str(exc), WRONG_USAGE)
        except MachineFailed as exc:
            status = _complain(f"{exc}, then {_going_on(verb)}", INTERNAL_ERROR)
        except OpsmithError as exc:
            status = _complain(f"internal error: {exc}", INTERNAL_ERROR)
        except KeyboardInterrupt:
            status = _complain(_interrupted(verb), INTERRUPTED)
        except Exception as exc:  # noqa: BLE001 - the last line of defence: status 3 with the traceback to report
            refused = storage_problem(exc) if isinstance(exc, OSError) else None
            if refused is not None:
                status = _complain(f"{refused}, then {_going_on(verb)}", WRONG_USAGE)
            else:
                status = _complain(f"internal error, please report it:\n{traceback.format_exc()}", INTERNAL_ERROR)
        raise typer.Exit(status)

    return run_verb


def _complain(message: str, status: int) -> int:
    text = f"opsmith: {printable(message, limit=len(message))}"
    if sys.stderr.isatty() and "\n" not in text:  # Elsewhere a message stays on its line.
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(f"{text}\n")
    return status


class _Opsmith(Verbs):
    guard = staticmethod(_guarded)


app = typer.Typer(
    name="opsmith",
    cls=_Opsmith,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="markdown",
    context_settings=HELP_NAMES,
)


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
    """Judge, write and install kernels for PyTorch.

    `opsmith check relu.py --task relu.default` judges a file, `opsmith run --backend my_kernels` a directory.
    `opsmith help VERB` tells more about a verb.
    """


def main() -> None:
    """Run the command line; exits with one of the statuses above (2 for wrong usage)."""
    os.environ[OFF_VARIABLE] = "1"  # What judges, and what it is compared with, is PyTorch as it comes.
    try:
        app(prog_name="opsmith")
    except UsageError as exc:  # Before a verb is called: the settings of the project are wrong.
        sys.exit(_complain(str(exc), WRONG_USAGE))
