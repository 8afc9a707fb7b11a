"""A workbench as tools of the Model Context Protocol, over standard input and output.

The program that calls the tools gets text and figures. Kernels run in the judge's workers, and nothing that a tool is
given changes a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

import opsmith
from opsmith.agents.workbench import Workbench
from opsmith.core.counts import counted
from opsmith.core.verdict import Part, Verdict
from opsmith.errors import BadInput, OpsmithError
from opsmith.generate.feedback import failure, judged_findings, telling
from opsmith.session import Judged

#: Tasks that one answer lists.
MOST_TASKS = 200
INSTRUCTIONS = """\
opsmith judges kernels for PyTorch. Choose a task (list_tasks), read it (task_statement), write a kernel, and repeat
check until it is accepted; each failure has a case, which reproduce judges alone. time says how fast a right kernel is
beside PyTorch, profile where PyTorch spends its time. submit has the last word: a run of its own on values that nobody
has seen. Verdicts are the judge's: what a kernel says of itself does not count, and a dishonest one earns nothing."""
HAND_IN = (
    "Hand in one complete Python file, imports included: `check` judges it, `time` says how fast it is, `submit` has "
    "it judged for good."
)

Task = Annotated[str, Field(description="A name of list_tasks, such as relu.default.")]
Source = Annotated[str, Field(description="Text of a complete Python file. Leave it empty to give a path.")]
PathOf = Annotated[str, Field(description="Absolute path of the file on the server's machine, where source is empty.")]


class TaskLine(BaseModel):
    """A task."""

    name: str
    cases: int
    dtypes: list[str]


class Tasks(BaseModel):
    """The tasks that match, at most 200 of them."""

    tasks: list[TaskLine]
    left_out: int


class CaseFound(BaseModel):
    """The verdict on a case, on a variant, or on a kernel's conduct."""

    status: str
    case: str
    part: str
    detail: str
    inputs: str


class Found(BaseModel):
    """What the judge found about a kernel."""

    accepted: bool
    cases: int
    passed: int
    dishonest: bool
    policy: bool
    speedup_k: float | None
    speedup_e: float | None
    percent_of_roofline: float | None
    failures: list[CaseFound]


class LastWord(BaseModel):
    """What a run on fresh secret values found."""

    accepted: bool
    detail: str
    speedup_k: float | None
    speedup_e: float | None
    percent_of_roofline: float | None
    run: str


class Known(BaseModel):
    """The best kernel that is known."""

    origin: str
    speedup_k: float | None
    speedup_e: float | None
    percent_of_roofline: float | None


class Tools:
    """The tools; what their docstrings say is what a model reads.

    Args:
        bench: an open workbench.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def list_tasks(
        self, pattern: Annotated[str, Field(description="A packet or wildcard, gelu or add*; empty for all.")] = ""
    ) -> Annotated[CallToolResult, Tasks]:
        """List the tasks that kernels are judged on: name, number of cases, dtypes."""
        with _told():
            found = self._bench.tasks(pattern)
        lines = [TaskLine(name=each.name, cases=each.cases, dtypes=[*each.dtypes]) for each in found[:MOST_TASKS]]
        text = "\n".join(f"{each.name}  {counted(each.cases, 'case')}  {','.join(each.dtypes)}" for each in lines)
        left_out = len(found) - len(lines)
        if left_out:
            text += f"\n{left_out} more; narrow the pattern"
        return _result(text or "no task matches", Tasks(tasks=lines, left_out=left_out))

    def task_statement(self, task: Task) -> CallToolResult:
        """Read what a kernel for a task has to do: signature, documentation, some of the cases, the rules."""
        with _told():
            return _result(self._bench.statement(task, answer=HAND_IN))

    def check(self, task: Task, source: Source = "", path: PathOf = "") -> Annotated[CallToolResult, Found]:
        """Judge a kernel: right on every case and variant, by its own code, honest. Not timed."""
        with _told():
            return _found(self._bench.check(task, _text(source, path)))

    def time(self, task: Task, source: Source = "", path: PathOf = "") -> Annotated[CallToolResult, Found]:
        """Judge a kernel and time it beside PyTorch: K on the device, E a whole call, share of the roofline, hints."""
        with _told():
            return _found(self._bench.time(task, _text(source, path)))

    def profile(self, task: Task) -> CallToolResult:
        """Say what PyTorch's own implementation spends its time on in the largest call of a task."""
        with _told():
            return _result(self._bench.profile(task))

    def reproduce(
        self,
        task: Task,
        case: Annotated[str, Field(description="The address of a case, as a failure names it.")],
        source: Source = "",
        path: PathOf = "",
    ) -> Annotated[CallToolResult, CaseFound]:
        """Judge a kernel again on one case or variant, with the values that it failed on, and say what is wrong."""
        with _told():
            verdict = self._bench.reproduce(task, _text(source, path), case)
        text = failure(verdict) if verdict.is_failure else f"{verdict.status}\ninputs: {verdict.inputs}"
        return _result(text, _case_found(verdict))

    def best_known(self, task: Task) -> Annotated[CallToolResult, Known]:
        """Read the fastest kernel that submit accepted for a task, or else opsmith's own."""
        with _told():
            best = self._bench.best(task)
            if best is None:
                raise BadInput(f"no kernel for {task} is known")
        known = Known(
            origin=best.origin,
            speedup_k=best.speedup_k,
            speedup_e=best.speedup_e,
            percent_of_roofline=best.percent_of_floor,
        )
        return _result(f"{best.origin}\n\n{best.source}", known)

    def submit(self, task: Task, source: Source = "", path: PathOf = "") -> Annotated[CallToolResult, LastWord]:
        """Have the last word on a kernel: a run of its own on fresh secret values. What it accepts is kept."""
        with _told():
            submitted = self._bench.submit(task, _text(source, path))
        summary = submitted.summary
        word = LastWord(
            accepted=submitted.accepted,
            detail=submitted.detail,
            speedup_k=summary.speedup_k if summary else None,
            speedup_e=summary.speedup_e if summary else None,
            percent_of_roofline=summary.percent_of_floor if summary else None,
            run=submitted.run,
        )
        text = "ACCEPTED" if submitted.accepted else f"NOT ACCEPTED: {submitted.detail}"
        return _result(f"{text}\nrun: {submitted.run}", word)


def make_server(bench: Workbench) -> MCPServer[Any]:
    """The server of an open workbench; ``run("stdio")`` serves it."""
    server: MCPServer[Any] = MCPServer(
        "opsmith", instructions=INSTRUCTIONS, version=opsmith.__version__, log_level="ERROR"
    )
    tools = Tools(bench)
    for tool, title in (
        (tools.list_tasks, "List tasks"),
        (tools.task_statement, "Read a task"),
        (tools.check, "Check a kernel"),
        (tools.time, "Time a kernel"),
        (tools.profile, "Profile PyTorch"),
        (tools.reproduce, "Repeat a case"),
        (tools.best_known, "Best known kernel"),
        (tools.submit, "Submit a kernel"),
    ):
        is_final = tool.__name__ == "submit"
        hints = ToolAnnotations(read_only_hint=not is_final, destructive_hint=False, open_world_hint=False)
        server.add_tool(tool, title=title, annotations=hints)
    return server


@contextmanager
def _told() -> Iterator[None]:
    """What opsmith refuses is a result that the caller can read, not a crash."""
    try:
        yield
    except OpsmithError as exc:
        raise ToolError(str(exc)) from exc


def _text(source: str, path: str) -> str:
    if bool(source) == bool(path):
        raise BadInput("give the kernel's source or its path, one of them")
    if source:
        return source
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInput(f"{path} cannot be read: {exc}") from exc


def _result(text: str, figures: BaseModel | None = None) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=None if figures is None else figures.model_dump(),
    )


def _case_found(verdict: Verdict) -> CaseFound:
    return CaseFound(
        status=verdict.status, case=verdict.case, part=verdict.part, detail=verdict.detail, inputs=verdict.inputs
    )


def _found(judged: Judged) -> CallToolResult:
    summary = judged.summary
    found = Found(
        accepted=judged.accepted,
        cases=summary.cases,
        passed=summary.passed,
        dishonest=bool(summary.dishonest),
        policy=bool(summary.policy),
        speedup_k=summary.speedup_k,
        speedup_e=summary.speedup_e,
        percent_of_roofline=summary.percent_of_floor,
        failures=[] if judged.accepted else [_case_found(each) for each in telling(judged.verdicts)],
    )
    text = judged_findings(judged)
    addresses = [each.case for each in found.failures if each.part != Part.CONDUCT]
    if addresses:
        text += "\n\n`reproduce` repeats one of these:\n" + "\n".join(dict.fromkeys(addresses))
    return _result(text, found)
