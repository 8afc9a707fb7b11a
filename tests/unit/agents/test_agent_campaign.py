"""A coding agent's command, in its sandbox, against a judge outside."""

from __future__ import annotations

import http.server
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.benches import ReadingBench

from opsmith.agents.campaign import AgentCommand, AgentResult, agent_folder, work_on_tasks
from opsmith.agents.desk import AgentLimits, Asked
from opsmith.agents.egress import Hosts
from opsmith.agents.page import agents_page
from opsmith.cli import agent as cli
from opsmith.cli import main
from opsmith.errors import BadInput
from opsmith.runner.sandbox.layers import Layer, probe

SCRIPT = Path(__file__).parents[2] / "scripted_agent.py"
FIVE = ("relu.default", "exp.default", "neg.default", "abs.default", "sin.default")


@pytest.fixture(scope="module", autouse=True)
def _confinement(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Agents are not run where they cannot be confined."""
    found = probe(tmp_path_factory.mktemp("probe"))
    if found[Layer.NETWORK] or found[Layer.FILES]:
        pytest.skip("no user namespaces, or no Landlock")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReadingBench]:
    """Of a judge that reads verdicts."""
    with ReadingBench(FIVE, tmp_path / "out") as opened:
        yield opened


def agent(what: str, **options: object) -> AgentCommand:
    """The script, told what to do."""
    return msgspec.structs.replace(AgentCommand(command=f"{sys.executable} {SCRIPT} {what}"), **options)


def work(bench: ReadingBench, out: Path, command: AgentCommand, tasks: tuple[str, ...] = FIVE[:1]) -> list[AgentResult]:
    """Have it work on tasks."""
    chosen = [task for task in bench.tasks() if task.name in tasks]
    return work_on_tasks(bench, chosen, command, out, at_a_time=2)


def transcript(out: Path, task: str = FIVE[0]) -> str:
    """What the agent printed."""
    return (agent_folder(out, task) / "transcript.txt").read_text()


@pytest.mark.slow
def test_an_agent_solves_five_tasks_by_itself(bench: ReadingBench, tmp_path: Path) -> None:
    """It is wrong, reads why, is right, is timed, and submits; everything is kept, and nothing is done twice."""
    out = tmp_path / "out"
    results = work(bench, out, agent("solve"), FIVE)
    assert [True] * 5 == [result.accepted for result in results], transcript(out)
    assert {(3, 1, "status 0")} == {(each.judgements, each.submissions, each.ended) for each in results}
    assert {0.25} == {result.cost.usd for result in results if result.cost is not None}
    folder = agent_folder(out, FIVE[0])
    assert ["0001.py", "0002.py", "0003.py"] == sorted(file.name for file in (folder / "versions").iterdir())
    lines = (folder / "requests.jsonl").read_bytes().splitlines()
    asked = [msgspec.json.decode(line, type=Asked) for line in lines]
    assert ["check", "check", "time", "left", "submit"] == [each.tool for each in asked]
    assert "WRONG_VALUE" in asked[0].text
    assert len(list((out / "kernels").rglob("*.py"))) == 5
    assert results == work(bench, out, agent("look_around"), FIVE)


@pytest.mark.slow
def test_an_agent_that_looks_for_the_judges_files_finds_none(
    bench: ReadingBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither records nor processes of the judge can be seen, and no variable of the user's."""
    monkeypatch.setenv("JUDGES_SECRET", "1")
    monkeypatch.setenv("LOOK_IN", str(tmp_path))
    work(bench, tmp_path / "out", agent("solve"), ("exp.default",))
    assert (agent_folder(tmp_path / "out", "exp.default") / "requests.jsonl").exists()
    work(bench, tmp_path / "out", agent("look_around", variables=("LOOK_IN",)))
    assert '{"found": [], "read": []}' in transcript(tmp_path / "out")


@pytest.mark.parametrize(
    ("what", "reason", "judged"),
    [
        ("patch_check", "this file was never checked", 0),
        ("submit_another", "this file was never checked", 1),
    ],
)
def test_what_the_judge_did_not_check_is_not_submitted(
    bench: ReadingBench, tmp_path: Path, what: str, reason: str, judged: int
) -> None:
    """A patched tool convinces the agent alone; another file than the one that was checked is another kernel."""
    (result,) = work(bench, tmp_path / "out", agent(what))
    assert (False, judged, 0) == (result.accepted, result.judgements, result.submissions)
    assert reason in result.reason
    assert "the tool was changed" not in transcript(tmp_path / "out")
    assert not (tmp_path / "out" / "kernels").exists()


def test_limits_are_kept_and_told(bench: ReadingBench, tmp_path: Path) -> None:
    """What an agent has used up it is refused, with the reason."""
    limits = AgentLimits.parse("judgements=2,time_s=60")
    (result,) = work(bench, tmp_path / "out", agent("solve", limits=limits))
    assert (False, 2) == (result.accepted, result.judgements)
    assert "all 2 judgements are used" in transcript(tmp_path / "out")
    with pytest.raises(BadInput, match="time_s, judgements, submissions, device_s"):
        AgentLimits.parse("usd=3")


def test_an_agent_that_does_not_end_is_ended_with_all_that_it_started(bench: ReadingBench, tmp_path: Path) -> None:
    """A process in a session of its own included."""
    began = time.monotonic()
    (result,) = work(bench, tmp_path / "out", agent("hang", limits=AgentLimits(time_s=1.0)))
    assert "its time was over (1 s)" == result.ended
    assert time.monotonic() - began < 10
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    assert b"sleep\x001000\x00" not in commands


@pytest.mark.slow
def test_an_agent_that_fills_memory_is_ended_and_its_task_goes_on(bench: ReadingBench, tmp_path: Path) -> None:
    """All that it started counts together; what it had submitted counts, and the records say why it was ended."""
    out, reason = tmp_path / "out", "its processes held more than 0.4 GiB of memory (--agent-memory)"
    filling, after = work(bench, out, agent("fill_memory", memory_gib=0.4), FIVE[:2])
    assert (True, reason, 1) == (filling.accepted, filling.ended, filling.submissions)
    assert transcript(out).endswith(f"\nopsmith: the agent was ended: {reason}\n")
    assert reason == after.ended
    assert [filling, after] == work(bench, out, agent("look_around"), FIVE[:2])
    holders = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    assert not [words for words in holders if b"96 << 20" in words]


@pytest.mark.slow
def test_memory_that_an_agents_processes_share_counts_once(bench: ReadingBench, tmp_path: Path) -> None:
    """Six of them see 96 MiB, which are no 576."""
    (result,) = work(bench, tmp_path / "out", agent("share_memory", memory_gib=0.4))
    assert "status 0" == result.ended, transcript(tmp_path / "out")
    assert "shared 100663296" in transcript(tmp_path / "out")


def test_the_command_line_says_how_much_memory_an_agent_gets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And the page tells it."""
    given: list[AgentCommand] = []

    def keep(command: AgentCommand, *_: object, **__: object) -> int:
        given.append(command)
        return 0

    monkeypatch.setattr(cli, "write_by_agent", keep)
    for more in ([], ["--agent-memory", "2.5"]):
        monkeypatch.setattr(sys, "argv", ["opsmith", "generate", "--agent", "true", "-o", str(tmp_path), *more])
        with pytest.raises(SystemExit):
            main.main()
    assert [16.0, 2.5] == [command.memory_gib for command in given]
    assert "memory_gib 2.5" in agents_page(given[1], [], tmp_path)


@pytest.mark.slow
def test_an_interrupted_campaign_ends_its_agents_and_goes_on_later(bench: ReadingBench, tmp_path: Path) -> None:
    """What has a result is not done again; what was under way is begun anew."""
    chosen = [task for task in bench.tasks() if task.name in FIVE[:2]]

    def interrupt(_: AgentResult) -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work_on_tasks(bench, chosen, agent("hang_but_once"), tmp_path / "out", at_a_time=2, told=interrupt)
    assert time.monotonic() - began < 10
    first, second = work(bench, tmp_path / "out", agent("call_home"), FIVE[:2])
    assert (True, False) == (first.accepted, second.accepted)


class _Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from the model")

    def log_message(self, *_: object) -> None: ...


def test_an_agent_reaches_the_hosts_that_are_named_and_no_other(bench: ReadingBench, tmp_path: Path) -> None:
    """Its model's, through the proxy; the same server under another name is another host."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        port = server.server_port
        urls = f"http://127.0.0.1:{port}/v1?a=b http://localhost:{port}/ http://example.com/"
        (result,) = work(bench, tmp_path / "out", agent(f"call_home {urls}", hosts=(f"127.0.0.1:{port}",)))
        server.shutdown()
    said = transcript(tmp_path / "out")
    assert f"http://127.0.0.1:{port}/v1?a=b hello from the model" in said
    assert 1 == said.count("hello from the model")
    assert (f"localhost:{port}", "example.com:80") == result.refused_hosts


def test_hosts_are_whole_names() -> None:
    """A host that ends like an allowed one is another host."""
    hosts = Hosts(["api.example.com", "*.models.org", "10.0.0.7:8000"])
    allowed = [("api.example.com", 443), ("API.example.com.", 80), ("eu.models.org", 443), ("10.0.0.7", 8000)]
    refused = [
        *(("evilapi.example.com", 443), ("api.example.com.evil.org", 443), ("models.org", 443), ("10.0.0.7", 22)),
        *(("evilmodels.org", 443), ("api.example.com", 8080), ("", 443)),
    ]
    assert [True] * 4 == [hosts.allow(*each) for each in allowed]
    assert [False] * 7 == [hosts.allow(*each) for each in refused]
    with pytest.raises(BadInput, match="is no host"):
        Hosts(["https://api.example.com/"])


def test_a_missing_program_or_variable_is_told_before_anything_runs(bench: ReadingBench, tmp_path: Path) -> None:
    """In one line."""
    with pytest.raises(BadInput, match="there is no program 'nothing-here'"):
        work(bench, tmp_path / "out", AgentCommand(command="nothing-here --fast"))
    with pytest.raises(BadInput, match="no such variable"):
        work(bench, tmp_path / "out", agent("solve", variables=("NOT_THERE_AT_ALL",)))
