"""Kernels written by coding agents: each task is one run of an agent's command in a workspace of its own.

::

    OUT/
      agents/TASK/workspace/      what the agent saw and left: TASK.md, TOOLS.md, examples.txt, kernel.py
      agents/TASK/transcript.txt  what it printed, and the limit for which it was ended
      agents/TASK/requests.jsonl  what it asked the judge, and the answers
      agents/TASK/versions/       every version that it had judged or tried to
      agents/TASK/result.json     what came of it
      kernels/, runs/             what was accepted, and the runs that did so
      summary.json, report.html   all of it in short
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec

from opsmith.agents import tool_program
from opsmith.agents.confined import UNCONFINED, Spec
from opsmith.agents.desk import AgentLimits, Desk
from opsmith.agents.desk_socket import listening
from opsmith.agents.egress import Hosts, proxying
from opsmith.agents.workbench import Workbench
from opsmith.backends.scaffold import stub
from opsmith.core.case import digest
from opsmith.core.run import write_atomically
from opsmith.errors import BadInput, DamagedRun
from opsmith.generate.redaction import Redaction
from opsmith.runner.processes.memory import tree_exceeds
from opsmith.session import AskedTask

#: Between two looks whether the campaign goes on, and how much memory the agent holds.
LOOK_S = 0.1
#: Of a transcript; more is counted and not kept.
MOST_TRANSCRIPT_BYTES = 16 << 20
#: Variables that an agent gets without being named.
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "USER", "SHELL")
#: What says where Python's packages and compilers are.
_TOOLCHAINS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "HOME")
RESULT = "result.json"
HAND_IN = (
    "Hand in one complete Python file, imports included. In this workspace `judge check FILE` says whether it is "
    "right, `judge time FILE` how fast it is, and `judge submit FILE` has the last word: see TOOLS.md."
)


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is run.

    Attributes:
        command: as in a shell; ``{task}`` stands for the task's name.
        hosts: that its process may reach.
        variables: names of environment variables that it gets.
        home: folder that is copied into its home, with its settings; None for an empty home.
        limits: of each task.
        memory_gib: that its processes may hold together, in each task.
    """

    command: str
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    home: str | None = None
    limits: AgentLimits = AgentLimits()
    memory_gib: float = 16.0

    def words(self, task: str) -> list[str]:
        """The program and its arguments; files that they name are whole paths.

        Raises:
            BadInput: there is no such program.
        """
        try:
            words = [word.replace("{task}", task) for word in shlex.split(self.command)]
        except ValueError as exc:
            raise BadInput(f"--agent {self.command!r} cannot be split into words: {exc}") from exc
        program = shutil.which(words[0]) if words else None
        if program is None:
            raise BadInput(f"--agent: there is no program {words[0] if words else ''!r}")
        # The link and not what it leads to: a Python of a virtual environment is found by it.
        files = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words[1:]]
        return [str(Path(program).absolute()), *files]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of its own cost; None is unknown."""

    usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one task.

    Attributes:
        task: its name.
        accepted: a submission was accepted on values that nobody had seen.
        reason: why none was, in one line; empty otherwise.
        version: the file in ``versions/`` that was submitted last, or accepted.
        run: of that submission.
        ended: how the agent's program ended.
        took_s: seconds that it ran.
        device_s: seconds of judging.
        judgements: kernels checked or timed.
        submissions: that were judged.
        refused: requests that were not carried out -> how often, by their reason.
        cost: as the agent told it in the last line of JSON that it printed; None if it did not.
        refused_hosts: that it tried to reach and may not.
    """

    task: str
    accepted: bool
    reason: str
    version: str
    run: str
    ended: str
    took_s: float
    device_s: float
    judgements: int
    submissions: int
    refused: dict[str, int]
    cost: Cost | None = None
    refused_hosts: tuple[str, ...] = ()


def work_on_tasks(
    bench: Workbench,
    tasks: Sequence[AskedTask],
    agent: AgentCommand,
    out: Path,
    *,
    at_a_time: int,
    told: Callable[[AgentResult], None] = lambda _: None,
) -> list[AgentResult]:
    """Have an agent work on each task; one that has a result in ``out`` is not begun again.

    Raises:
        BadInput: the agent cannot be run, or cannot be confined on this machine.
    """
    stop = threading.Event()

    def work(task: AskedTask) -> AgentResult:
        folder = agent_folder(out, task.name)
        result = _known(folder)
        if result is None:
            shutil.rmtree(folder, ignore_errors=True)
            result = work_on_task(bench, task, agent, folder, withheld=out, stop=stop)
            write_atomically(folder / RESULT, msgspec.json.format(msgspec.json.encode(result)))
        told(result)
        return result

    with ThreadPoolExecutor(at_a_time, thread_name_prefix="agent") as threads:
        futures = [threads.submit(work, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def agent_folder(out: Path, task: str) -> Path:
    """Where the records of a task lie."""
    return out / "agents" / task.replace("/", "__")


def _known(folder: Path) -> AgentResult | None:
    try:
        return msgspec.json.decode((folder / RESULT).read_bytes(), type=AgentResult)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as exc:
        raise DamagedRun(f"{folder / RESULT} is damaged: {exc}; delete {folder} to have the task done again") from exc


def work_on_task(
    bench: Workbench, task: AskedTask, agent: AgentCommand, folder: Path, *, withheld: Path, stop: threading.Event
) -> AgentResult:
    """Run the agent on one task; raises as :func:`work_on_tasks`.

    Args:
        bench: judges.
        task: the task.
        agent: how it is run.
        folder: takes the workspace and the records.
        withheld: folder that the agent must not read, but for its workspace.
        stop: ends the agent, and the task without a result.
    """
    workspace, home = folder / "workspace", folder / "home"
    _furnish(bench, task, workspace)
    _settle(agent, home)
    with contextlib.ExitStack() as held:
        # Paths of sockets are short.
        private = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="opsmith-")))
        tools, tool_digest = _tools(private / "tools")
        desk = Desk(bench, task.name, folder, agent.limits)
        held.enter_context(listening(desk, private / "judge"))
        hosts, refused_hosts = Hosts(agent.hosts), list[str]()
        if hosts:
            refused_hosts = held.enter_context(proxying(hosts, private / "proxy"))
        words = agent.words(task.name)
        spec = Spec(
            command=tuple(words),
            workspace=str(workspace.resolve()),
            home=str(home.resolve()),
            tools=str(tools),
            readable=tuple(word for word in words if Path(word).is_absolute() and Path(word).is_file()),
            withheld=(str(withheld.resolve()), str(private)),
            environment=_environment(agent, task.name, home, tools, private / "judge"),
            proxy=str(private / "proxy") if hosts else "",
        )
        began = time.monotonic()
        ended = _run(spec, private / "spec.json", folder / "transcript.txt", agent, stop)
        took_s = time.monotonic() - began
        shutil.rmtree(home, ignore_errors=True)  # It may hold the user's keys.
        assert digest((tools / "judge").read_bytes()) == tool_digest, "the tool lies in a folder that is read-only"
    return _result(task.name, desk, ended, took_s, _cost(folder / "transcript.txt"), tuple(refused_hosts))


def _furnish(bench: Workbench, task: AskedTask, workspace: Path) -> None:
    workspace.mkdir(parents=True)
    (workspace / "TASK.md").write_text(bench.statement(task.name, answer=HAND_IN), encoding="utf-8")
    (workspace / "TOOLS.md").write_text(f"{tool_program.__doc__}", encoding="utf-8")
    (workspace / "examples.txt").write_text("".join(f"{example}\n" for example in task.examples), encoding="utf-8")
    if task.op.kind.of_problems:
        shutil.copyfile(task.op.schema, workspace / "reference.py")
    else:
        (workspace / "kernel.py").write_text(stub(task.op), encoding="utf-8")


def _settle(agent: AgentCommand, home: Path) -> None:
    if agent.home is None:
        home.mkdir(parents=True)
    else:
        try:
            shutil.copytree(agent.home, home, symlinks=True)
        except (OSError, shutil.Error) as exc:
            raise BadInput(f"--agent-home {agent.home} cannot be copied: {exc}") from exc
    home.chmod(0o700)
    (home / "tmp").mkdir(exist_ok=True)


def _tools(folder: Path) -> tuple[Path, str]:
    folder.mkdir()
    source = Path(tool_program.__file__).read_text(encoding="utf-8")
    text = f"#!{sys.executable}\n{source}"
    (folder / "judge").write_text(text, encoding="utf-8")
    (folder / "judge").chmod(0o555)
    return folder, digest(text.encode())


def _environment(agent: AgentCommand, task: str, home: Path, tools: Path, judge: Path) -> dict[str, str]:
    missing = [name for name in agent.variables if name not in os.environ]
    if missing:
        raise BadInput(f"--agent-env {missing[0]}: there is no such variable in the environment")
    found = {name: os.environ[name] for name in (*_KEPT_VARIABLES, *agent.variables) if name in os.environ}
    path = found.get("PATH", os.defpath)
    own = {"PATH": f"{tools}:{path}", "HOME": str(home.resolve()), "TMPDIR": str(home.resolve() / "tmp")}
    return {**found, **own, "TERM": "dumb", "OPSMITH_JUDGE": str(judge), "OPSMITH_TASK": task}


class _Interrupted(Exception):
    """The campaign ends, and its agents with it."""


def _run(spec: Spec, file: Path, transcript: Path, agent: AgentCommand, stop: threading.Event) -> str:
    """Run the command to its end or to a limit, and keep what it prints; tells how it ended."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(msgspec.json.encode(spec))
    program = subprocess.Popen(  # noqa: S603 - it confines the user's own program
        [sys.executable, "-P", "-m", "opsmith.agents.confined", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        # The agent can look into the first process of its namespace, so that gets nothing of the user's either.
        env={name: os.environ[name] for name in _TOOLCHAINS if name in os.environ},
    )
    assert program.stdout is not None
    kept = threading.Thread(target=_keep, args=(program.stdout, transcript), daemon=True)
    kept.start()
    try:
        ended = _waited(program, agent, stop)
    finally:
        _kill(program)
        kept.join()
    if ended == UNCONFINED:
        raise BadInput(
            transcript.read_text(encoding="utf-8").strip().removeprefix("opsmith: ") or "it was not confined"
        )
    if isinstance(ended, int):
        return f"status {ended}"
    with transcript.open("a", encoding="utf-8") as kept_text:
        kept_text.write(f"\nopsmith: the agent was ended: {ended}\n")
    return ended


def _waited(program: subprocess.Popen[bytes], agent: AgentCommand, stop: threading.Event) -> int | str:
    """The program's status, or the limit for which it has to be ended."""
    deadline = time.monotonic() + agent.limits.time_s
    limit_bytes = int(agent.memory_gib * (1 << 30))
    while (left_s := deadline - time.monotonic()) > 0:
        if stop.is_set():
            raise _Interrupted
        if tree_exceeds(program.pid, limit_bytes):
            return f"its processes held more than {agent.memory_gib:g} GiB of memory (--agent-memory)"
        with contextlib.suppress(subprocess.TimeoutExpired):
            return program.wait(min(LOOK_S, left_s))
    return f"its time was over ({agent.limits.time_s:g} s)"


def _kill(program: subprocess.Popen[bytes]) -> None:
    """End the program; its namespace of processes, and all in it, ends with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def _keep(stream: IO[bytes], transcript: Path) -> None:
    """Write what is printed, without secrets, as it comes; lines are looked through as a whole."""
    redaction, written, left_out = Redaction.of_environment(), 0, 0
    with transcript.open("wb", buffering=0) as file:
        for line in iter(lambda: stream.readline(1 << 16), b""):
            text = redaction.of(line.decode(errors="replace")).encode()
            if written + len(text) > MOST_TRANSCRIPT_BYTES:
                left_out += len(line)
                continue
            written += file.write(text)
        if left_out:
            file.write(f"\n[{left_out:,} bytes more]\n".encode())
    stream.close()


def _cost(transcript: Path) -> Cost | None:
    """What the agent says in the last line that is a JSON object with ``usage`` or a cost in US dollars."""
    for line in reversed(transcript.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]):
        if not line.lstrip().startswith("{"):
            continue
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            found = msgspec.json.decode(line, type=dict[str, object])
            usage = found.get("usage")
            counts: Mapping[str, object] = usage if isinstance(usage, dict) else {}
            usd = next((found[name] for name in ("total_cost_usd", "cost_usd", "usd") if name in found), None)
            if counts or usd is not None:
                told = {"usd": usd, **{name: counts.get(name) for name in ("input_tokens", "output_tokens")}}
                return msgspec.convert(told, Cost)
    return None


def _result(
    task: str, desk: Desk, ended: str, took_s: float, cost: Cost | None, refused_hosts: tuple[str, ...]
) -> AgentResult:
    submitted = desk.submitted
    done = [each for each in desk.asked if not each.refused]
    refused: dict[str, int] = {}
    for each in desk.asked:
        if each.refused:
            refused[f"{each.tool}: {each.text}"] = refused.get(f"{each.tool}: {each.text}", 0) + 1
    last_refused = next((each.text for each in reversed(desk.asked) if each.tool == "submit" and each.refused), None)
    accepted = submitted is not None and submitted.accepted is True
    reason = "" if accepted else submitted.text if submitted is not None else last_refused or "nothing was submitted"
    return AgentResult(
        task=task,
        accepted=accepted,
        reason=reason,
        version=submitted.version if submitted is not None else "",
        run=submitted.run if submitted is not None else "",
        ended=ended,
        took_s=round(took_s, 3),
        device_s=round(desk.device_s, 3),
        judgements=sum(each.tool in {"check", "time"} for each in done),
        submissions=sum(each.tool == "submit" for each in done),
        refused=refused,
        cost=cost,
        refused_hosts=refused_hosts,
    )
