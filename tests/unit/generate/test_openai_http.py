"""The HTTP provider against a real server on loopback: it repairs what can be repaired, and pays for nothing twice."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests.chat_server import ChatServer, Said

from opsmith.errors import BadInput
from opsmith.generate.chat import Message, NoReply, Reply, Request, Role, Usage
from opsmith.generate.providers import openai_http
from opsmith.generate.providers.openai_http import OpenAIChat

SECRET = "sk-" + "x" * 20


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_http, "FIRST_WAIT_S", 0.0)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def request(number: int = 0) -> Request:
    """One question, asked for the ``number``-th time."""
    messages = (Message(Role.SYSTEM, "rules"), Message(Role.USER, "write it"))
    return Request(model="openai:m", messages=messages, max_tokens=100, temperature=0.5, number=number)


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A server with a script, and a model that asks it."""

    @contextmanager
    def serve(*said: Said) -> Iterator[tuple[ChatServer, OpenAIChat]]:
        replies = iter(said)
        with ChatServer(lambda _body, _before: next(replies)) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            with closing(OpenAIChat("m")) as model:
                yield server, model

    return serve


@pytest.mark.parametrize("streams", [True, False])
def test_a_reply_is_put_together_with_its_usage(serving: Any, *, streams: bool) -> None:
    """From a stream of pieces as from one document."""
    with serving(Said("x" * 250, usage=(7, 9), streams=streams)) as (server, model):
        assert Reply(text="x" * 250, usage=Usage(7, 9), complete=True) == model.ask(request(3))
    [body] = server.bodies
    assert [{"role": "system", "content": "rules"}, {"role": "user", "content": "write it"}] == body["messages"]
    assert (100, 0.5, 3) == (body["max_completion_tokens"], body["temperature"], body["seed"])


@pytest.mark.parametrize("said", [Said("ab", finish="length"), Said("ab", finish=None)])
def test_a_reply_that_was_cut_off_says_so(serving: Any, said: Said) -> None:
    """At the limit of tokens, or by a broken stream; what came is kept and nothing is asked again."""
    with serving(said) as (server, model):
        reply = model.ask(request())
    assert ("ab", False) == (reply.text, reply.complete)
    assert 1 == len(server.bodies)


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_error_is_tried_again_under_the_same_key(serving: Any, status: int) -> None:
    """So that a server that had answered after all does not charge twice."""
    with serving(Said(status=status, retry_after="0"), Said(status=status), Said("done")) as (server, model):
        assert "done" == model.ask(request()).text
    assert [request().key] * 3 == server.keys


def test_it_gives_up_after_so_many_tries(serving: Any) -> None:
    """With the last error in one line; nothing was paid."""
    busy = [Said("busy", status=503)] * openai_http.TRIES
    with serving(*busy) as (server, model), pytest.raises(NoReply, match="503.*busy") as raised:
        model.ask(request())
    assert not raised.value.may_have_cost
    assert openai_http.TRIES == len(server.bodies)


def test_a_dropped_connection_is_not_asked_again(serving: Any) -> None:
    """The request was sent: it may be charged for."""
    with serving(Said(drops=True)) as (server, model), pytest.raises(NoReply) as raised:
        model.ask(request())
    assert raised.value.may_have_cost
    assert 1 == len(server.bodies)


@pytest.mark.slow
@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b'{"choices": []}', b'{"choices": [{}]}'])
def test_a_malformed_answer_is_no_reply(serving: Any, raw: bytes) -> None:
    """Whatever a server sends, the campaign goes on."""
    with serving(Said(raw=raw)) as (_, model), pytest.raises(NoReply):
        model.ask(request())


NEST = b"[" * 100_000 + b"]" * 100_000


def _event(document: bytes) -> bytes:
    return b"data: " + document + b"\n\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b'{"choices": 5}', "protocol"),
        (b'{"choices": ["x"]}', "protocol"),
        (b'{"choices": [{"delta": "x"}]}', "protocol"),
        (b'{"choices": [{"delta": {"content": 7}}]}', "protocol"),
        (b'{"choices": [{"delta": {"content": "x"}, "finish_reason": 1e999}]}', "protocol"),
        (b'{"x": ' + NEST + b"}", "protocol"),
        (b"null", "protocol"),
        (b'{"choices": [{"delta": {"content": "\xff"}}]}', "protocol"),
        (b'{"choices": [{"delta": {"content": "\\ud800"}}]}', "protocol"),
        (b'{"error": {"message": "overloaded"}}', "the server failed: .*overloaded"),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_documents_of_other_types_are_no_reply(serving: Any, document: bytes, said: str, *, streams: bool) -> None:
    """Wherever in the JSON they are, in one piece as in a stream."""
    raw = _event(document) if streams else document.replace(b"delta", b"message")
    wrong = Said(raw=raw, kind="text/event-stream" if streams else None)
    with serving(wrong) as (_, model), pytest.raises(NoReply, match=said) as raised:
        model.ask(request())
    assert raised.value.may_have_cost


def test_content_in_parts_is_put_together(serving: Any) -> None:
    """As the protocol allows it."""
    raw = b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}]}}]}'
    with serving(Said(raw=raw)) as (_, model):
        assert "ab" == model.ask(request()).text


@pytest.mark.parametrize("streams", [True, False])
def test_one_of_several_choices_is_the_reply(serving: Any, *, streams: bool) -> None:
    """One is asked for; two kernels put together are none. The second ends first, and is not what was cut off."""
    name = "delta" if streams else "message"
    spoken: list[list[tuple[int, str, str | None]]] = [
        [(1, "other", None), (0, "def ", None)],
        [(1, " kernel", "length"), (0, "f", "stop")],
    ]
    if not streams:
        spoken = [[(1, "other kernel", "length"), (0, "def f", "stop")]]
    documents = [
        {"choices": [{"index": each, name: {"content": text}, "finish_reason": end} for each, text, end in event]}
        for event in spoken
    ]
    texts = [json.dumps(document) for document in documents]
    raw = "".join(f"data: {text}\n\n" for text in texts) if streams else texts[0]
    said = Said(raw=raw.encode(), kind="text/event-stream" if streams else "application/json")
    with serving(said) as (_, model):
        assert Reply(text="def f", usage=None, complete=True) == model.ask(request())


@pytest.mark.slow
@pytest.mark.parametrize(
    "usage",
    [
        b'{"prompt_tokens": -1000000, "completion_tokens": 5}',
        b'{"prompt_tokens": 5, "completion_tokens": -1}',
        b'{"prompt_tokens": 1e999, "completion_tokens": 5}',
        b'{"prompt_tokens": 10000000000000000000000, "completion_tokens": 5}',
        b'{"prompt_tokens": "many", "completion_tokens": 5}',
        b'{"prompt_tokens": 0, "completion_tokens": 0}',
        b"[]",
        b"7",
    ],
)
def test_a_count_that_cannot_be_right_is_none(serving: Any, usage: bytes) -> None:
    """So that the most that the exchange can cost is charged; a reply of 999 characters is more than no token."""
    raw = b'{"choices": [{"message": {"content": "' + b"x" * 999 + b'"}, "finish_reason": "stop"}], "usage": ' + usage
    with serving(Said(raw=raw + b"}")) as (_, model):
        reply = model.ask(request())
    assert (None, True) == (reply.usage, reply.complete)


def test_a_long_line_is_not_kept(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a long stream."""
    monkeypatch.setattr(openai_http, "MOST_LINE_BYTES", 1000)
    monkeypatch.setattr(openai_http, "MOST_STREAM_BYTES", 1 << 20)
    for raw, said in ((b"data: " + b"x" * 500_000, "a line"), (b": keep-alive\n" * 200_000, "longer than 1048576")):
        with serving(Said(raw=raw, kind="text/event-stream")) as (_, model), pytest.raises(NoReply, match=said):
            model.ask(request())


def test_keep_alives_do_not_go_on_for_ever(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer has a deadline, though bytes arrive."""
    monkeypatch.setattr(openai_http, "DEADLINE_S", 0.2)
    with serving(Said(kept_alive_s=5.0)) as (_, model), pytest.raises(NoReply, match="has not ended after"):
        model.ask(request())


def test_a_compressed_answer_is_refused(serving: Any) -> None:
    """A kilobyte may hold a gigabyte."""
    bomb = gzip.compress(bytes(1 << 24))
    with serving(Said(raw=bomb, encoding="gzip")) as (_, model), pytest.raises(NoReply, match="compressed"):
        model.ask(request())


@pytest.mark.slow
@pytest.mark.parametrize("retry_after", ["nan", "1e999", "-5", "soon"])
def test_a_time_that_is_none_is_not_waited(serving: Any, retry_after: str) -> None:
    """The doubling time is."""
    with serving(Said(status=503, retry_after=retry_after), Said("done")) as (_, model):
        assert "done" == model.ask(request()).text


def test_an_empty_reply_is_a_reply(serving: Any) -> None:
    """It holds no kernel, which its model is told."""
    with serving(Said("", streams=False)) as (_, model):
        assert "" == model.ask(request()).text


@pytest.mark.parametrize(("status", "advice"), [(401, "OPENAI_API_KEY"), (404, "no such model")])
def test_what_will_never_work_ends_the_campaign(serving: Any, status: int, advice: str) -> None:
    """One line that says what to do."""
    with serving(Said(status=status)) as (_, model), pytest.raises(BadInput, match=advice):
        model.ask(request())


def test_the_key_is_sent_and_never_told(serving: Any) -> None:
    """Not even where the server repeats it."""
    told = Said(f"your key {SECRET} has no credit", status=400)
    with serving(told) as (_, model), pytest.raises(NoReply) as raised:
        model.ask(request())
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("url", ["nowhere", "ftp://example.org"])
def test_an_address_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Before anything is asked."""
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(BadInput, match="OPENAI_BASE_URL"):
        OpenAIChat("m")


def test_servers_other_than_openais_are_told_the_limit_by_its_old_name_too(serving: Any) -> None:
    """llama-cpp-python knows that one alone, and wrote without end; who refuses both is asked with the new one."""
    refused = Said('{"error": "max_tokens and max_completion_tokens cannot both be set"}', status=400)
    with serving(refused, Said("done"), Said("again")) as (server, model):
        assert ["done", "again"] == [model.ask(request(number)).text for number in range(2)]
    assert [100, None, None] == [body.get("max_tokens") for body in server.bodies]
    assert [100, 100, 100] == [body["max_completion_tokens"] for body in server.bodies]


def test_openai_is_told_the_limit_by_its_new_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses requests with both."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with closing(OpenAIChat("m")) as model:
        assert "max_tokens" not in model._body(request())


def test_a_stream_without_an_answer_is_no_reply(serving: Any) -> None:
    """Some servers end one so when a prompt is too long, with status 200."""
    empty = Said(raw=b"data: [DONE]\n\n", kind="text/event-stream")
    expected = pytest.raises(NoReply, match="ended without an answer")
    with serving(empty) as (_, model), expected as raised:
        model.ask(request())
    assert raised.value.may_have_cost
