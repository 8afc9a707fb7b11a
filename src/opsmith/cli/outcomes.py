"""What a run ends with beside its tables: an exit status, JUnit XML, annotations, and what failed for the next time."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from opsmith.core.cache import cache_folder
from opsmith.core.case import digest
from opsmith.core.run import Options, Summary, write_atomically
from opsmith.core.verdict import Part
from opsmith.errors import BadInput
from opsmith.report.annotations import error_lines
from opsmith.report.junit import junit_xml
from opsmith.report.results import Results
from opsmith.report.slower import slower_ops

FailOn = Annotated[
    Literal["wrong", "slower"],
    typer.Option(help="Exit with status 1 where an op is wrong or has no kernel, or also where one is slower."),
]
Junit = Annotated[
    Path | None, typer.Option(help="Write the ops as JUnit XML to this file, for CI.", show_default=False)
]
StopAtFirst = Annotated[bool, typer.Option("-x", "--stop-at-first", help="Stop at the first failure.")]
LastFailed = Annotated[
    bool, typer.Option("--last-failed", help="Only what failed the last time; everything, if nothing did.")
]


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """What failed the last time.

    Attributes:
        ops: every op that was not correct.
        case: the address of the first failing case; None where a variant, or conduct, failed.
        seed: of the run.
    """

    ops: tuple[str, ...]
    case: str | None
    seed: int | None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is to end; see the options of the command line."""

    fail_on: str = "wrong"
    junit: Path | None = None

    def check(self, options: Options) -> None:
        """Refuse what cannot be carried out.

        Raises:
            BadInput: nothing is timed, so nothing can be slower; or the file's folder is not there.
        """
        if self.fail_on == "slower" and options.timing == "off":
            raise BadInput("--fail-on slower needs times; leave --timing off out")
        if self.junit is not None and not self.junit.absolute().parent.is_dir():
            raise BadInput(f"--junit {self.junit}: there is no folder {self.junit.parent}")

    def carry_out(self, results: Results) -> int:
        """Write what was asked for and return the exit status.

        Raises:
            BadInput: the file cannot be written.
        """
        slower = slower_ops(results.summary) if self.fail_on == "slower" else {}
        for name, said in slower.items():
            sys.stderr.write(f"opsmith: {name}: {said}\n")
        if self.junit is not None:
            try:
                write_atomically(self.junit, junit_xml(results, slower))
            except OSError as exc:
                raise BadInput(f"{self.junit} cannot be written: {exc.strerror}") from exc
        if os.environ.get("GITHUB_ACTIONS") == "true":
            sys.stderr.writelines(f"{line}\n" for line in error_lines(results, slower))
        remember(results)
        return exit_status(results.summary) or int(bool(slower))


#: Only wrong ops fail, and nothing is written.
ORDINARY = Ending()


def exit_status(summary: Summary) -> int:
    """0 if everything asked was answered and passed, else 1."""
    complete = summary.ops["asked"] == summary.ops["answered"] == summary.ops["correct"]
    return 0 if summary.accepted and complete else 1


def remember(results: Results) -> None:
    """Keep what failed, for ``--last-failed``; a cache that cannot be written is no reason to fail."""
    failing = [verdict for verdict in results.verdicts if verdict.is_failure]
    case = next((one.case for one in failing if one.part is Part.CASE), None)
    ops = tuple(name for name, op in results.summary.per_op.items() if not op.accepted)
    path = _path(results.manifest.options)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(Failed(ops=ops, case=case, seed=results.manifest.seed)))


def last_failed(options: Options) -> Failed | None:
    """What failed the last time that the suite was asked of the backend; None: nothing, or it is not known."""
    try:
        found = msgspec.json.decode(_path(options).read_bytes(), type=Failed)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.ops else None


def _path(options: Options) -> Path:
    path = Path(options.backend.partition(".py:")[0] + ".py" if ".py:" in options.backend else options.backend)
    backend = str(path.resolve()) if path.exists() else options.backend
    name = digest(f"{options.suite}\n{backend}".encode())
    return cache_folder() / "failed" / f"{name}.json"
