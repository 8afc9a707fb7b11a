"""The command line is a promise: scripts depend on its verbs and flags."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from opsmith.cli.main import app
from opsmith.cli.verbs import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def commands(group: Any, prefix: str = "") -> dict[str, Any]:
    """Every verb by its name; those of a group by both names, ``dataset build``."""
    found: dict[str, Any] = {}
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        is_group = "commands" in vars(command)
        found |= commands(command, f"{prefix}{name} ") if is_group else {f"{prefix}{name}": command}
    return found


COMMANDS = commands(typer.main.get_command(app))
del COMMANDS["help"]  # It has no options, and takes the name of a verb.

#: Verb -> its arguments in order, then its flags, sorted. A change here is a change for users.
SURFACE = {
    "baseline": (
        "PROBLEMS --baselines --device --dtype --jobs --json --ops --out --resume --sizes --tf32 --timeout --trials "
        "-j -o"
    ),
    "book build": "PROBLEMS --device --jobs --json --license --limit --ops --out -o",
    "check": (
        "KERNEL --baseline --case --dataset --device --dtype --entry --fail-on --integrity --jobs --json --junit"
        " --last-failed --layout --models --out --overhead-dominated --policy --ranks --sample --seed"
        " --sizes --spread-inputs"
        " --stop-at-first --suite --task --timing --timing-pairs --tolerance --top-inputs --trials --warm --watch"
        " --world -o -x"
    ),
    "compare": "RUNS --csv --json",
    "dataset audit": "PROBLEMS --device --jobs --json --ops --sizes --timeout",
    "dataset build": "FILES --device --measure --most-per-op --out --subset -o",
    "dataset convert": "SOURCE --out -o",
    "dataset stats": "SOURCES --json",
    "dataset validate": "SOURCE --json",
    "doctor": "--device --json",
    "explain": "MODEL --batch-size --config --device --dtype --image-size --json --mode --option --sequence-length",
    "generate": (
        "--advisor --advisor-sees --advisor-share --agent --agent-env --agent-home --agent-host --agent-limits"
        " --agent-memory --attempts --baseline --budget --context --dataset --device --dsl --dtype --isolation --jobs"
        " --json --max-tokens --model --most-judging-s --ops --out --policy --prices --problems --provider --ranks"
        " --references --replay --resume --review --review-after --seed --sizes --strategy --suite --temperature"
        " --timing --tolerance --top-inputs --world -o"
    ),
    "mcp": (
        "--baseline --device --dsl --dtype --jobs --most-judging-s --ops --out --policy --problems --suite --timing"
        " --tolerance -o"
    ),
    "mutants": (
        "SUBJECTS --device --dtype --equivalence --harness --jobs --json --operators --ops --out --public"
        " --sample --seed -j -o"
    ),
    "ops": (
        "--backend --dataset --device --dtype --json --models --ops --overhead-dominated --problems --sample"
        " --sizes --spread-inputs --suite --top-inputs --trials"
    ),
    "package": "DIRECTORY --approved --hub --json --license --name --ops --out --run --version -o",
    "prewarm": "--arch --dtype --inputs --jobs --json --ops",
    "tune": "--dtype --inputs --jobs --json --ops --out -o",
    "report": "RUN --baseline-times --html --json",
    "review": "PATH TASKS --against --approve --as --comment --files --from --json --of --reject --run",
    "run": (
        "--autocast --backend --baseline --case --columns --dataset --device --devices --dtype --executor --fail-on"
        " --integrity --isolation --jobs --json --junit --last-failed --layout --mode --models --ops --out"
        " --overhead-dominated --policy --problems"
        " --ranks --resume --sample --seed"
        " --sizes --spread-inputs --stop-at-first --suite --timing --timing-pairs --tolerance --top-inputs --trials"
        " --warm --world -o -x"
    ),
    "scaffold": "DIRECTORY --json --ops",
    "serve": (
        "--accept-missing-layers --baseline --data --db --device --dtype --host --jobs --max-connections --max-rate"
        " --max-request-mib --most-judging-s --ops --policy --port --problems --run --suite --timing --tolerance"
        " --trusted-proxy"
    ),
    "token create": "NAME --data --db --json --kernels-a-day --role",
    "token list": "--data --db --json",
    "token revoke": "NAME --data --db",
    "trace": (
        "SCRIPT ARGUMENTS --autocast --batch-size --config --dtype --fake --image-size --json --mode --model"
        " --module --optimizer --out --sequence-length -m -o"
    ),
}


def surface(command: Any) -> str:
    """The arguments and flags of one verb in one line, ``--help`` left out."""
    arguments = [parameter.name.upper() for parameter in command.params if parameter.param_type_name == "argument"]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")} - {"--help", "-h"}
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
    assert SURFACE == {verb: surface(command) for verb, command in COMMANDS.items()}


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_flag_of_a_verb_is_in_the_reference(verb: str) -> None:
    """The page has a table for each verb, with every argument and flag."""
    assert surface(COMMANDS[verb]) == documented(verb)


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_parameter_of_a_verb_has_a_help_text(verb: str) -> None:
    """``--help`` leaves no flag to guess."""
    assert [] == [parameter.name for parameter in COMMANDS[verb].params if not parameter.help]


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_of_many_options_each_has_its_heading(verb: str) -> None:
    """Those without stand before all others, whatever they are worth."""
    headings = {parameter.name: parameter.rich_help_panel for parameter in COMMANDS[verb].params}
    if any(headings.values()):
        options = [each.name for each in COMMANDS[verb].params if each.param_type_name == "option"]
        assert [] == [name for name in options if name != "help" and headings[name] is None]


@pytest.mark.parametrize(
    ("module", "arguments", "way_on"),
    [
        ("run", ["--suite", "smoke", "--backend", "aten"], "; continue with --resume and the same -o"),
        ("tune", [], "; the same command goes on where it was"),
        ("prewarm", [], "; the same command goes on where it was"),
        ("ops", ["--suite", "smoke"], ""),
    ],
)
def test_an_interrupted_verb_says_how_it_goes_on(
    module: str, arguments: list[str], way_on: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it does: not everybody knows which work is kept."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    called = {"run": "judge", "tune": "chosen_tasks", "prewarm": "chosen_tasks", "ops": "survey"}[module]
    monkeypatch.setattr(f"opsmith.cli.{module}.{called}", interrupt)
    with pytest.raises(SystemExit) as stopped:
        app([module, *arguments])
    assert 130 == stopped.value.code
    assert f"opsmith: interrupted{way_on}\n" == capsys.readouterr().err


@pytest.mark.parametrize("name", VERBS)
def test_the_help_on_all_verbs_says_what_a_verb_says(name: str) -> None:
    """It is printed without importing them, so each summary stands twice."""
    module = importlib.import_module(f"opsmith.cli.{name}")
    text = module.HELP if VERBS[name].is_group else inspect.getdoc(getattr(module, name))
    assert text is not None
    assert VERBS[name].summary == text.partition("\n")[0]


def test_help_imports_no_verb() -> None:
    """``opsmith --help`` is read by people who wait for it, and so is the list of a shell's completion."""
    asked = "import sys; from opsmith.cli.main import app; sys.argv = ['opsmith', '--help']\n"
    asked += "try: app()\nfinally: print(sorted(m for m in ('torch', 'numpy', 'opsmith.cli.run') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert "[]" == done.stdout.splitlines()[-1], done.stderr


@pytest.mark.parametrize("arguments", [["help", "doctor"], ["doctor", "-h"], ["doctor", "--help"]])
def test_help_is_asked_for_in_three_ways(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever somebody knows from elsewhere works."""
    with pytest.raises(SystemExit) as stopped:
        app(arguments)
    assert (0, True) == (stopped.value.code, "opsmith doctor" in capsys.readouterr().out)


def test_a_verb_that_does_not_exist_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """As for every other name."""
    with pytest.raises(SystemExit) as stopped:
        app(["chekc"])
    assert (2, True) == (stopped.value.code, "did you mean check?" in capsys.readouterr().err)


def test_the_options_of_long_verbs_stand_under_headings() -> None:
    """A new option of ``run`` has to be placed."""
    options = [one for one in COMMANDS["run"].params if one.param_type_name == "option"]
    assert [] == [one.name for one in options if one.rich_help_panel is None]
