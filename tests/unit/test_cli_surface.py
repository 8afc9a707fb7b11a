"""The command line is a promise: scripts depend on its verbs and flags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from opsmith.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]

#: Verb -> its arguments in order, then its flags, sorted. A change here is a change for users.
SURFACE = {
    "check": (
        "KERNEL --case --device --dtype --jobs --json --layout --out --seed --suite --task --timing --tolerance -o"
    ),
    "compare": "RUNS --json",
    "doctor": "--device --json",
    "ops": "--backend --device --dtype --json --ops --suite",
    "report": "RUN --html --json",
    "run": (
        "--backend --case --device --dtype --isolation --jobs --json --layout --ops --out --resume --seed --suite"
        " --timing --tolerance -o"
    ),
    "scaffold": "DIRECTORY --json --ops",
}


def surface(command: Any) -> str:
    """The arguments and flags of one verb in one line, ``--help`` left out."""
    arguments = [parameter.name.upper() for parameter in command.params if parameter.param_type_name == "argument"]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")} - {"--help"}
    return " ".join([*arguments, *sorted(flags)])


def documented(verb: str) -> str:
    """The same of the verb's table in the reference."""
    section = re.split(
        r"^## ", PAGE.read_text(encoding="utf-8").partition(f"\n## opsmith {verb}\n")[2], flags=re.MULTILINE
    )[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, flags=re.MULTILINE)
    words = [word for cell in cells for word in re.findall(r"`(-{1,2}[\w-]+|[A-Z]+)", cell)]
    return " ".join(
        [word for word in words if not word.startswith("-")] + sorted(w for w in words if w.startswith("-"))
    )


def test_the_verbs_and_their_flags_are_these() -> None:
    """A flag that is added, renamed or lost is a decision, made here."""
    assert SURFACE == {verb: surface(command) for verb, command in sorted(COMMANDS.items())}


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_flag_of_a_verb_is_in_the_reference(verb: str) -> None:
    """The page has a table for each verb, with every argument and flag."""
    assert surface(COMMANDS[verb]) == documented(verb)


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_parameter_of_a_verb_has_a_help_text(verb: str) -> None:
    """``--help`` leaves no flag to guess."""
    assert [] == [parameter.name for parameter in COMMANDS[verb].params if not parameter.help]
