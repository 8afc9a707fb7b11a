"""The Messages format of Anthropic, through pydantic-ai, against a server on loopback."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

pytest.importorskip("anthropic", reason="needs pydantic-ai-slim[anthropic]")

from opsmith.errors import BadInput
from opsmith.generate.chat import Message, NoReply, Picture, Request, Role
from opsmith.generate.providers.pydantic_ai import PydanticAIChat

QUESTION = Request(
    model="pydantic-ai:anthropic:m",
    messages=(
        Message(Role.SYSTEM, "rules"),
        Message(Role.USER, "write"),
        Message(Role.ASSISTANT, "no"),
        Message(Role.USER, "do"),
    ),
    max_tokens=77,
    temperature=0.25,
    number=3,
)
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "code!"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 11, "output_tokens": 5},
}


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A server that gives one answer, the requests that it got, and a model that asks it."""

    @contextmanager
    def serve(answer: dict[str, Any], *, status: int = 200) -> Iterator[tuple[list[Any], PydanticAIChat]]:
        seen: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                seen.append((self.path, dict(self.headers), body))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{server.server_port}")
            yield seen, PydanticAIChat("anthropic:m")
            server.shutdown()

    return serve


def test_the_conversation_arrives_and_the_text_comes_back(serving: Any) -> None:
    """The rules are the system prompt there; what a model thinks is no part of its answer."""
    with serving(ANSWER) as (seen, model):
        reply = model.ask(QUESTION)
    assert ("code!", True) == (reply.text, reply.complete)
    assert (11, 5) == (reply.usage.input_tokens, reply.usage.output_tokens)
    [(path, headers, body)] = seen
    assert {"k", "Bearer k"} & set(headers.values())
    assert ("/v1/messages", "m", 77, 0.25) == (
        path.partition("?")[0],
        body["model"],
        body["max_tokens"],
        body["temperature"],
    )
    assert "rules" in json.dumps(body["system"])
    assert ["user", "assistant", "user"] == [message["role"] for message in body["messages"]]


def test_pictures_are_blocks_of_the_last_message(serving: Any) -> None:
    """The file in base64, behind the text."""
    question = msgspec.structs.replace(QUESTION, pictures=(Picture(kind="k", caption="c", png=b"png"),))
    with serving(ANSWER) as (seen, model):
        assert not model.ask(question).blind
    [(_, _, body)] = seen
    text, image = body["messages"][-1]["content"]
    assert ("text", "do") == (text["type"], text["text"])
    assert {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"png").decode()} == image["source"]


def test_a_reply_that_was_cut_off_says_so(serving: Any) -> None:
    """At the limit of tokens."""
    with serving({**ANSWER, "stop_reason": "max_tokens"}) as (_, model):
        assert not model.ask(QUESTION).complete


@pytest.mark.parametrize(("status", "error"), [(401, BadInput), (400, NoReply)])
def test_errors_end_the_campaign_or_the_exchange(serving: Any, status: int, error: type[Exception]) -> None:
    """As those of the other formats."""
    said = {"type": "error", "error": {"type": "some_error", "message": "no"}}
    with serving(said, status=status) as (_, model), pytest.raises(error):
        model.ask(QUESTION)


@pytest.mark.parametrize(
    "answer",
    [
        {**ANSWER, "content": None},
        {**ANSWER, "content": "text"},
        {**ANSWER, "usage": None},
        {"type": "message"},
        {},
    ],
)
def test_a_broken_answer_costs_one_reply(serving: Any, answer: dict[str, Any]) -> None:
    """Never the campaign, whatever pydantic-ai raises."""
    with serving(answer) as (_, model), pytest.raises(NoReply, match="cannot read the answer") as raised:
        model.ask(QUESTION)
    assert raised.value.may_have_cost


@pytest.mark.filterwarnings("ignore:Failed to extract usage")
def test_counts_that_cannot_be_right_are_not_believed(serving: Any) -> None:
    """What was reserved is charged then."""
    with serving({**ANSWER, "usage": {"input_tokens": -5, "output_tokens": 1e9}}) as (_, model):
        assert model.ask(QUESTION).usage is None
