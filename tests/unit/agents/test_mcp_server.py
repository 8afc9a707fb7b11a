"""The tools of ``opsmith mcp``, called by the SDK's own client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.benches import ReadingBench, source

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client

from opsmith.agents.mcp_server import make_server


def asked(folder: Path, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers of the tools to some calls, in their order."""

    async def ask() -> list[Any]:
        with ReadingBench(["relu.default", "exp.default"], folder) as bench:
            async with Client(make_server(bench)) as client:
                return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(ask)


def test_every_tool_has_a_description_and_a_schema(tmp_path: Path) -> None:
    """They are all that a model knows of it."""

    async def listed() -> Any:
        with ReadingBench([], tmp_path) as bench:
            async with Client(make_server(bench)) as client:
                return (await client.list_tools()).tools

    tools = anyio.run(listed)
    names = ["list_tasks", "task_statement", "check", "time", "profile", "reproduce", "best_known", "submit"]
    assert names == [tool.name for tool in tools]
    assert all(tool.description for tool in tools)
    assert all("description" in each for tool in tools for each in tool.input_schema["properties"].values())


def test_a_kernel_is_found_wrong_repeated_and_mended(tmp_path: Path) -> None:
    """Text for the model, figures for the program."""
    wrong, right = ({"task": "relu.default", "source": source(words)} for words in ("wrong", "right speed=2 floor=50"))
    checked, again, timed, last, best = asked(
        tmp_path,
        ("check", wrong),
        ("reproduce", {**wrong, "case": "c"}),
        ("time", right),
        ("submit", right),
        ("best_known", {"task": "relu.default"}),
    )
    assert (False, ["c"]) == (
        checked.structured_content["accepted"],
        [failure["case"] for failure in checked.structured_content["failures"]],
    )
    assert "WRONG_VALUE it is" in checked.content[0].text
    assert "WRONG_VALUE" == again.structured_content["status"]
    assert (True, 2.0, 50.0) == tuple(
        timed.structured_content[name] for name in ("accepted", "speedup_k", "percent_of_roofline")
    )
    assert "ACCEPTED" == last.content[0].text.splitlines()[0]
    assert best.content[0].text.endswith(right["source"])


def test_a_cheat_is_named_and_not_kept(tmp_path: Path) -> None:
    """Whatever it says of itself."""
    cheat = {"task": "relu.default", "source": source("cheat speed=9")}
    checked, last = asked(tmp_path, ("check", cheat), ("submit", cheat))
    assert (False, True, None) == tuple(
        checked.structured_content[name] for name in ("accepted", "dishonest", "speedup_k")
    )
    assert (False, "DISHONEST: DISHONEST it is") == tuple(
        last.structured_content[name] for name in ("accepted", "detail")
    )
    assert not (tmp_path / "kernels").exists()


def test_a_file_may_be_named_instead_of_its_text(tmp_path: Path) -> None:
    """An agent that edits files need not repeat them."""
    file = tmp_path / "mine.py"
    file.write_text(source("right"))
    found, neither, missing = asked(
        tmp_path / "bench",
        ("check", {"task": "relu.default", "path": str(file)}),
        ("check", {"task": "relu.default"}),
        ("check", {"task": "relu.default", "path": str(tmp_path / "none.py")}),
    )
    assert found.structured_content["accepted"]
    assert neither.is_error
    assert "source or its path" in neither.content[0].text
    assert missing.is_error


def test_mistakes_are_answers(tmp_path: Path) -> None:
    """A model reads them and goes on."""
    unknown, tasks = asked(
        tmp_path, ("check", {"task": "rely.default", "source": source("right")}), ("list_tasks", {"pattern": "re*"})
    )
    assert unknown.is_error
    assert "did you mean relu.default" in unknown.content[0].text
    assert ["relu.default"] == [task["name"] for task in tasks.structured_content["tasks"]]


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings it."""
    from opsmith.cli.mcp import mcp
    from opsmith.errors import MissingDependency

    monkeypatch.delitem(sys.modules, "opsmith.agents.mcp_server", raising=False)
    for name in ("mcp", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependency, match=r"^mcp is not installed; run: pip install 'opsmith\[mcp\]'$"):
        mcp()
