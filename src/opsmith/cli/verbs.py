"""The verbs: which there are, and how each is imported when it is first asked for.

Help on all of them, and completion in a shell, need their names alone. A verb's module imports what it does its work
with, which may take seconds.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from opsmith.cli.panels import arrange
from opsmith.cli.settings import defaults, read_settings

JUDGE, WRITE, USE, INPUTS, TEAM = (
    "Judge kernels",
    "Write kernels",
    "Use kernels",
    "Inputs, problems and records",
    "Machine and service",
)


class Verb(NamedTuple):
    """A verb, or a group of verbs.

    Attributes:
        panel: where the help on all verbs lists it.
        summary: what it does, in the first sentence of its own help.
        is_group: it has verbs of its own.
    """

    panel: str
    summary: str
    is_group: bool = False


#: In the order of the help; each is a module of this folder with a function of its name, or with HELP and COMMANDS.
VERBS = {
    "check": Verb(JUDGE, "Judge one kernel against one task, with an editor open."),
    "run": Verb(JUDGE, "Judge a backend: is every op right, and how fast?"),
    "report": Verb(JUDGE, "Print a run's table and write its page, its summary and the public exports."),
    "compare": Verb(
        JUDGE, "Compare runs with the first one: ops gained and lost, cases that changed, speed against speed."
    ),
    "review": Verb(JUDGE, "Look at kernels; approve, reject or comment on them."),
    "ops": Verb(JUDGE, "List the ops of a suite with their number of cases, and who answers them."),
    "mutants": Verb(JUDGE, "Put one fault at a time into kernels, and report which faults the judge sees."),
    "scaffold": Verb(WRITE, "Make operator folders with typed stubs, ready to be filled in and judged."),
    "generate": Verb(
        WRITE, "Have kernels written by language models, or by torch's compiler, and judge them in a loop."
    ),
    "mcp": Verb(WRITE, "Give coding agents the judge as tools: a server of the Model Context Protocol."),
    "book": Verb(WRITE, "Pairs of PyTorch modules and the compiler's Triton, for training models.", is_group=True),
    "tune": Verb(
        WRITE,
        "Time the tiles of the shipped kernels for the inputs that traced models give them most, and keep the fastest.",
    ),
    "explain": Verb(USE, "Compile a model with the backend opsmith and say what came of it."),
    "package": Verb(
        USE, "Make a wheel of a kernel directory. Once it is installed, `import torch` enables its kernels."
    ),
    "prewarm": Verb(USE, "Compile the shipped kernels for the inputs that traced models give them most."),
    "trace": Verb(INPUTS, "Record every ATen call of a script, or of a model, with its count."),
    "dataset": Verb(
        INPUTS, "Build, convert, count and check sets of real inputs; audit sets of module problems.", is_group=True
    ),
    "baseline": Verb(
        INPUTS, "Time the Model of each problem under each baseline, in the layout that KernelBench keeps its times in."
    ),
    "doctor": Verb(TEAM, "Show versions, hardware, plug-ins, isolation layers and what is missing."),
    "serve": Verb(TEAM, "Judge kernels that are submitted over HTTP, and show what was found on a web page."),
    "token": Verb(TEAM, "Make, list and revoke the tokens of `opsmith serve`.", is_group=True),
}
HELP = "help"
HELP_NAMES = {"help_option_names": ["-h", "--help"]}

#: A verb's function -> the function that the command line calls.
Guard = Callable[[Callable[..., int | None]], Callable[..., None]]


class Verbs(TyperGroup):
    """The group of all verbs; see the module's docstring.

    A subclass has a ``guard``, which turns what a verb raises and returns into an exit status.
    """

    guard: ClassVar[Any]

    _lists = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the parameters of click
        return [*VERBS, HELP]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        if cmd_name == HELP:
            return TyperCommand(
                HELP,
                callback=lambda: None,
                help="Print the help of a verb: `opsmith help run`.",
                rich_markup_mode="markdown",
                rich_help_panel=TEAM,
            )
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        if self._lists:
            return TyperCommand(cmd_name, help=verb.summary, rich_markup_mode="markdown", rich_help_panel=verb.panel)
        return load(cmd_name, self.guard)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == [HELP]:
            args = [*args[1:], "--help"]
        if args[0] == "--help":
            typer.echo(ctx.get_help())
            ctx.exit()
        if args[0] not in VERBS:
            near = difflib.get_close_matches(args[0], VERBS, n=2, cutoff=0.5)
            ctx.fail(f"no verb named {args[0]!r}{'; did you mean ' + ' or '.join(near) + '?' if near else ''}")
        name, command, rest = super().resolve_command(ctx, args)
        settings = read_settings(Path.cwd())
        if settings is not None and command is not None and not VERBS[args[0]].is_group:
            flags = {flag.lstrip("-"): parameter.name for parameter in command.params for flag in parameter.opts}
            ctx.default_map = {args[0]: defaults(settings, args[0], flags)}
        return name, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        """Within, a verb is no more than its name and its summary."""
        self._lists = True
        try:
            yield
        finally:
            self._lists = False


def load(name: str, guard: Guard) -> Any:
    """Import a verb and make a command of it, or a group of its verbs."""
    module = importlib.import_module(f"opsmith.cli.{name}")
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown", context_settings=HELP_NAMES)
    if not VERBS[name].is_group:
        verb = getattr(module, name)
        _register(app, name, verb, module.EPILOG, guard)
        command = typer.main.get_command(app)
        arrange(command)
        return command
    app.callback(help=module.HELP, no_args_is_help=True)(lambda: None)
    for function, epilog in module.COMMANDS:
        _register(app, function.__name__.rstrip("_"), function, epilog, guard)
    group: Any = typer.main.get_command(app)
    group.name = name
    for command in group.commands.values():
        arrange(command)
    return group


def _register(app: typer.Typer, name: str, verb: Callable[..., int | None], examples: str, guard: Guard) -> None:
    """Add a verb, with its examples above its options."""
    text = f"{inspect.getdoc(verb)}\n\n{examples.strip()}"
    app.command(name, help=text, short_help=text.partition("\n")[0], context_settings=HELP_NAMES)(guard(verb))
