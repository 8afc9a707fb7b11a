"""The page of an agent's campaign: what it asked, every version and its transcripts, in one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.agents.campaign import AgentCommand, AgentResult, agent_folder
from opsmith.agents.desk import Asked
from opsmith.report.page_parts import templates
from opsmith.report.strangers import one_line, printable

#: Of a transcript and of a version; the files have the rest.
SHOWN_CHARACTERS = 100_000


def agents_page(agent: AgentCommand, results: Sequence[AgentResult], out: Path) -> str:
    """The page as text; whatever strangers wrote is text in it."""
    limits = msgspec.structs.asdict(agent.limits)
    limits["memory_gib"] = agent.memory_gib
    where = f"limits of a task: {', '.join(f'{name} {value:g}' for name, value in limits.items())}"
    hosts = f"may reach {', '.join(agent.hosts)}" if agent.hosts else "may reach no host"
    return (
        templates("opsmith.agents")
        .get_template("agents.html.j2")
        .render(
            title=one_line(agent.command),
            where=one_line(f"{where} · {hosts}"),
            tiles=list(_tiles(results)),
            tasks=[_task(result, agent_folder(out, result.task)) for result in results],
        )
    )


def _tiles(results: Sequence[AgentResult]) -> Iterator[tuple[str, str, str]]:
    solved = sum(result.accepted for result in results)
    yield "Tasks solved", f"{solved:,}", f"of {len(results):,}, right again on values that nobody had seen"
    yield "Judgements", f"{sum(result.judgements for result in results):,}", "kernels checked or timed"
    yield "Refused", f"{sum(sum(result.refused.values()) for result in results):,}", "requests, with the reason"
    yield "Judging", f"{sum(result.device_s for result in results):,.0f} s", "of the device"
    told = [result.cost.usd for result in results if result.cost is not None and result.cost.usd is not None]
    if told:
        yield "Cost", f"${sum(told):,.2f}", f"as the agent told of {len(told):,} tasks"


def _task(result: AgentResult, folder: Path) -> dict[str, Any]:
    said = [f"{result.ended} after {result.took_s:.0f} s"]
    said += [result.reason] if result.reason else []
    said += [f"tried to reach {', '.join(result.refused_hosts)}"] if result.refused_hosts else []
    versions = sorted((folder / "versions").glob("*.py"))
    return {
        "name": one_line(result.task),
        "result": result,
        "line": one_line(" · ".join(said)),
        "requests": [_request(each) for each in requests_of(folder)],
        "versions": [(file.name, _text(file)) for file in versions],
        "transcript": _text(folder / "transcript.txt"),
    }


def requests_of(folder: Path) -> list[Asked]:
    """What an agent asked of the judge; a last line without its end is none."""
    try:
        lines = (folder / "requests.jsonl").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Asked) for line in lines if line.endswith(b"\n")]


def _request(asked: Asked) -> dict[str, Any]:
    word = "refused" if asked.refused else {True: "accepted", False: "not accepted", None: "told"}[asked.accepted]
    return {
        "tool": one_line(asked.tool),
        "version": asked.version,
        "word": word,
        "text": printable(asked.text, SHOWN_CHARACTERS),
        "at_s": asked.at_s,
        "device_s": asked.device_s,
    }


def _text(file: Path) -> str:
    try:
        return printable(file.read_text(encoding="utf-8", errors="replace"), SHOWN_CHARACTERS)
    except OSError:
        return ""
