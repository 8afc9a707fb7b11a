"""A real server of the chat completions protocol: llama-cpp-python's, with a tiny random model."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.campaigns import ReadingSession, campaign_options, run_campaign
from tests.tiny_model import CONTEXT, write_model

pytest.importorskip("llama_cpp.server", reason="needs llama-cpp-python[server]")

from opsmith.errors import BadInput
from opsmith.generate.attempt import Outcome
from opsmith.generate.budget import Budget
from opsmith.generate.chat import Message, NoReply, Request, Role
from opsmith.generate.providers.openai_http import OpenAIChat

START_S = 120.0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address."""
    folder = tmp_path_factory.mktemp("llama")
    write_model(folder / "tiny.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "--model",
        str(folder / "tiny.gguf"),
        "--model_alias",
        "tiny",
        "--port",
        str(port),
        "--n_ctx",
        str(CONTEXT),
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "llama_cpp.server", *words], stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def model(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIChat]:
    """The provider, asking it."""
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with closing(OpenAIChat("tiny")) as asking:
        yield asking


def request(text: str, *, max_tokens: int = 12, number: int = 0) -> Request:
    """One question."""
    messages = (Message(Role.SYSTEM, "rules"), Message(Role.USER, text))
    return Request(model="openai:tiny", messages=messages, max_tokens=max_tokens, temperature=0.0, number=number)


def test_a_reply_comes_with_its_usage(model: OpenAIChat) -> None:
    """What it says has no meaning; that it was cut off at the limit is known, and so is what to charge."""
    reply = model.ask(request("write it"))
    assert reply.text
    assert not reply.complete
    assert len(reply.text) <= 12
    assert reply.usage is None  # It counts no tokens of a stream, so what was reserved is charged.
    assert reply.text == model.ask(request("write it")).text


def test_a_prompt_that_is_too_long_is_no_reply(model: OpenAIChat) -> None:
    """This server streams nothing then, with status 200."""
    with pytest.raises((NoReply, BadInput), match="ended without an answer"):
        model.ask(request("x" * 4 * CONTEXT))


def test_a_campaign_ends_within_its_budget(model: OpenAIChat, tmp_path: Path) -> None:
    """A model without a clue writes no kernel; each attempt says so, and is charged."""
    options = campaign_options(
        models=("openai:tiny",), attempts=2, max_tokens=40, contexts=(), budget=Budget(tokens=50_000)
    )
    [history] = run_campaign(tmp_path / "campaign", options, [model], ReadingSession(["relu.default"]))
    assert [Outcome.NO_CODE] * 2 == [attempt.outcome for attempt in history.attempts]
