"""``opsmith generate --agent``: coding agents write kernels, each in a workspace of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.agents.campaign import AgentCommand, AgentResult, work_on_tasks
from opsmith.agents.desk import AgentLimits
from opsmith.agents.egress import Hosts
from opsmith.agents.page import agents_page
from opsmith.agents.workbench import Workbench
from opsmith.cli.document import print_json
from opsmith.cli.progress import StageProgress
from opsmith.core.counts import counted
from opsmith.core.run import Options, write_atomically
from opsmith.errors import BadInput
from opsmith.report.strangers import one_line

Agent = Annotated[
    str | None,
    typer.Option(help="Command of a coding agent, which works on each task by itself.", show_default=False),
]
AgentHost = Annotated[
    list[str] | None, typer.Option(help="Host that the agent may reach; several times for several.", show_default=False)
]
AgentEnv = Annotated[
    list[str] | None, typer.Option(help="Environment variable that the agent gets, such as a key.", show_default=False)
]
AgentHome = Annotated[
    Path | None, typer.Option(help="Folder with the agent's settings, copied into its home.", show_default=False)
]
AgentLimitsText = Annotated[
    str,
    typer.Option(
        "--agent-limits",
        help="Of a task: time_s=600,judgements=20,submissions=3,device_s=300.",
        show_default="time_s=1800,judgements=40,submissions=3,device_s=1800",
    ),
]
AgentMemory = Annotated[
    float, typer.Option(min=0.1, help="GiB of memory that the agent's processes may hold together, in each task.")
]
COMMAND = "agent.json"


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """``summary.json`` of an agent's campaign.

    Attributes:
        agent: how it was run.
        judging: what was asked, and how strictly.
        accepted: tasks with a kernel.
        tasks: what came of each.
    """

    agent: AgentCommand
    judging: Options
    accepted: int
    tasks: list[AgentResult]


def agent_command(
    command: str,
    hosts: Sequence[str] | None,
    variables: Sequence[str] | None,
    home: Path | None,
    limits: str,
    memory_gib: float,
) -> AgentCommand:
    """What the options say.

    Raises:
        BadInput: there is no such program, host or limit.
    """
    agent = AgentCommand(
        command=command,
        hosts=tuple(hosts or ()),
        variables=tuple(variables or ()),
        home=None if home is None else str(home),
        limits=AgentLimits.parse(limits),
        memory_gib=memory_gib,
    )
    agent.words("task")
    Hosts(agent.hosts)
    return agent


def write_by_agent(
    agent: AgentCommand,
    judging: Options,
    out: Path,
    *,
    dsl: str,
    jobs: int,
    most_judging_s: float,
    resume: bool,
    json_output: bool,
) -> int:
    """Run an agent's campaign and print what came of it; exit status 0, whatever was accepted.

    Raises:
        BadInput: ``out`` holds something else, or another campaign; the agent cannot be run, or confined.
    """
    _open(out, agent, judging, resume=resume)
    with contextlib.ExitStack() as held:
        progress = held.enter_context(StageProgress())
        bench = Workbench(judging, out, dsl=dsl, jobs=jobs, most_judging_s=most_judging_s, progress=progress)
        held.enter_context(bench)
        results = work_on_tasks(
            bench,
            bench.tasks(),
            agent,
            out,
            at_a_time=jobs,
            told=lambda result: progress.advance(1, f"{result.task}: {'accepted' if result.accepted else 'not'}"),
        )
    summary = AgentSummary(
        agent=agent, judging=judging, accepted=sum(result.accepted for result in results), tasks=results
    )
    write_atomically(out / "summary.json", msgspec.json.format(msgspec.json.encode(summary), indent=2))
    write_atomically(out / "report.html", agents_page(agent, results, out).encode())
    if json_output:
        print_json(summary)
    else:
        _print(summary, out)
    return 0


def _open(out: Path, agent: AgentCommand, judging: Options, *, resume: bool) -> None:
    """Begin a campaign in an empty folder, or go on with one that asked the same."""
    asked = msgspec.json.encode((agent, msgspec.structs.replace(judging, backend="")))
    if not resume:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise BadInput(f"{out} exists and is not empty; choose another -o, or continue that campaign with --resume")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / COMMAND, asked)
    elif not (out / COMMAND).is_file():
        raise BadInput(f"{out} holds no campaign of an agent: there is no {COMMAND} in it")
    elif (out / COMMAND).read_bytes() != asked:
        raise BadInput(f"{out} holds a campaign of another agent, or with other options; choose another -o")


def _print(summary: AgentSummary, out: Path) -> None:
    table = Table("task", "accepted", "judgements", "submissions", "seconds", "judging", "ended", box=None)
    for result in summary.tasks:
        table.add_row(
            Text(one_line(result.task)),
            "yes" if result.accepted else "no",
            str(result.judgements),
            str(result.submissions),
            f"{result.took_s:.0f}",
            f"{result.device_s:.1f} s",
            Text(one_line(result.ended)),
        )
    Console().print(table)
    lines = [f"{one_line(result.task)}: {one_line(result.reason)}" for result in summary.tasks if not result.accepted]
    lines.append(
        f"\n{summary.accepted} of {counted(len(summary.tasks), 'task')} have a kernel; page: {out}/report.html"
    )
    sys.stdout.write("\n".join(lines) + "\n")
