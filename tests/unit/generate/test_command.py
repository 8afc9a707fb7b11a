"""The provider that runs a program."""

from __future__ import annotations

import shlex
import sys

import msgspec
import pytest

from opsmith.errors import BadInput
from opsmith.generate.chat import Message, NoReply, Picture, Reply, Request, Role, Usage
from opsmith.generate.providers.command import CommandChat

QUESTION = Request(
    model="command:x", messages=(Message(Role.USER, "write it"),), max_tokens=9, temperature=None, number=4
)


def program(code: str) -> CommandChat:
    """Python as a model."""
    return CommandChat(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}")


def test_it_reads_the_question_and_prints_the_reply() -> None:
    """Plain text for plain programs."""
    code = "import json,sys; q = json.load(sys.stdin); print(q['messages'][0]['content'], q['seed'], q['max_tokens'])"
    assert Reply(text="write it 4 9\n") == program(code).ask(QUESTION)


def test_it_may_say_what_it_used() -> None:
    """As a JSON object."""
    code = """print('{"text": "done", "usage": {"input_tokens": 3, "output_tokens": 2}, "complete": false}')"""
    assert Reply(text="done", usage=Usage(3, 2), complete=False) == program(code).ask(QUESTION)


def test_pictures_are_in_what_it_reads() -> None:
    """As files in base64; without any there is no word of them."""
    code = "import json, sys; print(json.load(sys.stdin).get('pictures'))"
    shown = msgspec.structs.replace(QUESTION, pictures=(Picture(kind="k", caption="a map", png=b"png"),))
    assert "[{'caption': 'a map', 'png': 'cG5n'}]" == program(code).ask(shown).text.strip()
    assert "None" == program(code).ask(QUESTION).text.strip()


@pytest.mark.parametrize("output", ["{not json", '{"other": 1}', '{"text": 3}', '{"text": "a", "usage": {"input": 1}}'])
def test_other_output_that_begins_like_an_object_is_text(output: str) -> None:
    """C++ and JSON begin alike."""
    assert output == program(f"print({output!r}, end='')").ask(QUESTION).text


def test_a_program_that_fails_gave_no_reply() -> None:
    """With the last line of what it said."""
    with pytest.raises(NoReply, match="status 3: out of luck"):
        program("import sys; print('x\\nout of luck', file=sys.stderr); sys.exit(3)").ask(QUESTION)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_prints_without_end_is_ended(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output is held in memory, so there is a limit; what it says beside it is not kept."""
    monkeypatch.setattr("opsmith.generate.providers.command.MOST_BYTES", 1 << 20)
    code = f"import sys; block = 'x' * 65536\nfor _ in range(64): sys.{stream}.write(block)\nprint(1)"
    if stream == "stderr":
        assert Reply(text="1\n") == program(code).ask(QUESTION)
        return
    with pytest.raises(NoReply, match="printed more than 1 MiB"):
        program(code).ask(QUESTION)


def test_a_program_that_takes_too_long_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that holds the pipe open would be waited for."""
    monkeypatch.setattr("opsmith.generate.providers.command.TIME_LIMIT_S", 0.5)
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    with pytest.raises(NoReply, match="did not end within"):
        program(code).ask(QUESTION)


@pytest.mark.parametrize("command", ["/no/such/program", "'unclosed", ""])
def test_a_program_that_is_not_there_is_named(command: str) -> None:
    """Before anything else is started."""
    with pytest.raises(BadInput, match="command:"):
        CommandChat(command)
