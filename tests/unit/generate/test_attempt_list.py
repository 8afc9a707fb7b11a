"""A campaign says how each attempt ended and why."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign

from opsmith.generate.attempt_list import attempt_list
from opsmith.generate.chat import Message, Reply, Request, Role, Usage
from opsmith.generate.providers.command import CommandChat

EXAMPLE = Path(__file__).parents[3] / "examples" / "command_model.py"


class Writer:
    """A model whose first reply has no code, whose second is wrong and whose third is right."""

    name = "openai:one"

    def ask(self, request: Request) -> Reply:
        """The next of the three."""
        texts = ["I cannot.", reply("relu.default", "wrong"), reply("relu.default", "right")]
        return Reply(text=texts[request.number], usage=Usage(100, 10))

    def close(self) -> None:
        """Nothing to free."""


def test_each_attempt_has_its_status_and_its_first_reason(tmp_path: Path) -> None:
    """``no`` in a table of tasks says nothing about what went wrong."""
    options = campaign_options(models=(Writer.name,), strategy="best-of-n", attempts=3)
    histories = run_campaign(tmp_path, options, [Writer()], ReadingSession(["relu.default"]))
    task, first, second, third = attempt_list(histories).splitlines()
    assert "relu.default" == task
    assert ["1", "openai:one", "no"] == first.split()[:3]
    assert len(first.split()) > 4
    assert ["2", "openai:one", "WRONG_VALUE"] == second.split()[:3]
    assert ["3", "openai:one", "accepted"] == third.split()[:3]


def test_the_worked_example_asks_any_program() -> None:
    """The ten lines of the how-to, with a program that answers what it reads."""
    words = [sys.executable, str(EXAMPLE), sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"]
    messages = (Message(Role.SYSTEM, "you write kernels"), Message(Role.USER, "relu"))
    request = Request(model="command:x", messages=messages, max_tokens=9, temperature=None, number=0)
    text = CommandChat(shlex.join(words)).ask(request).text
    assert "[SYSTEM]\nYOU WRITE KERNELS\n\n[USER]\nRELU" == text.strip()
