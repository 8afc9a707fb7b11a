"""Provider ``openai``: any server that speaks the chat completions protocol, hosted or local.

``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` say where it is and who asks. Replies are streamed, so that a server that has
stopped sending is noticed within :data:`SILENCE_S`. What is refused for a passing reason (429, 503, no connection)
is asked again, after as long as the server says or a doubling time with jitter, under the same ``Idempotency-Key``. A
stream that breaks off is not asked again: its tokens have been charged, so what came of it is the reply. Pictures are
image parts of the last message; a server that refuses a question with them is asked it once more without.

A server may be broken or hostile. What it sends is bounded in bytes, in the length of a line and in time, and has to
have the protocol's types. Compressed answers are refused. Where its count of tokens cannot be right, the most that the
exchange can cost is charged.

Protocol: https://platform.openai.com/docs/api-reference/chat (streaming: server-sent events with ``data:`` lines).
"""

from __future__ import annotations

import base64
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import msgspec

from opsmith.errors import BadInput
from opsmith.generate.chat import TIMED_OUT, NoReply, Picture, Reply, Request, Usage, refuses_pictures, usage_of
from opsmith.generate.redaction import Redaction

DEFAULT_URL = "https://api.openai.com/v1"
TRIES = 6
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
CONNECT_S = 15.0
#: Without a byte for so long a server is taken for dead. Reasoning models think for minutes before they speak.
SILENCE_S = 600.0
#: An answer that takes longer is cut off, though bytes arrive: keep-alives may go on for ever.
DEADLINE_S = 3600.0
#: A reply that is longer is no kernel. Streamed, each of its tokens comes in a document of some hundred bytes.
MOST_REPLY_BYTES = 4 << 20
MOST_STREAM_BYTES = 512 << 20
MOST_LINE_BYTES = 1 << 20
_PASSING = frozenset({409, 425, 429, 500, 502, 503, 529})
_MALFORMED = frozenset({400, 422})
_FOR_GOOD = {
    401: "the key is refused: set OPENAI_API_KEY",
    403: "the key may not use this",
    404: "no such model or path",
}


_NULL = msgspec.Raw(b"null")


class _Part(msgspec.Struct, frozen=True):
    text: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class _Choice(msgspec.Struct, frozen=True):
    index: int | None = None
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Document(msgspec.Struct, frozen=True):
    """An answer in one piece, or one event of a stream."""

    choices: list[_Choice] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL

    @property
    def choice(self) -> _Choice | None:
        """The reply that is read: one is asked for, and a server that sends several numbers them from 0."""
        return next((each for each in self.choices or () if not each.index), None)


class _Counted(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int


class OpenAIChat:
    """A model behind a chat completions endpoint.

    Attributes:
        takes_pictures: they are sent; a server may refuse them.

    Args:
        model: the name that the server knows it by.

    Raises:
        BadInput: the address in the environment is no URL.
    """

    takes_pictures = True

    def __init__(self, model: str) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._redaction = Redaction.of_environment()
        # OpenAI takes the new name of the limit alone; servers that know the old one alone ignore the new one.
        self._sends_old_limit = not os.environ.get("OPENAI_BASE_URL", DEFAULT_URL).startswith(DEFAULT_URL)
        key = os.environ.get("OPENAI_API_KEY", "")
        url = os.environ.get("OPENAI_BASE_URL", DEFAULT_URL)
        headers = {"Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        timeout = httpx2.Timeout(SILENCE_S, connect=CONNECT_S)
        try:
            self._http = httpx2.Client(base_url=url, headers=headers, timeout=timeout)
        except httpx2.InvalidURL as exc:
            raise BadInput(self._without_key(f"OPENAI_BASE_URL={url!r} is no URL: {exc}")) from None
        if not url.startswith(("http://", "https://")):
            shown = self._without_key(repr(url))
            raise BadInput(f"OPENAI_BASE_URL={shown} is no URL; it looks like http://localhost:8000/v1")

    def ask(self, request: Request) -> Reply:
        """See :meth:`opsmith.generate.chat.ChatModel.ask`."""
        problem, shown = "", request.pictures
        for number in range(TRIES):
            try:
                reply = self._ask_once(request, shown)
                return msgspec.structs.replace(reply, blind=shown != request.pictures)
            except _Refused as exc:
                shown, problem = (), str(exc)
            except _Passing as exc:
                problem = str(exc)
                if number + 1 < TRIES:
                    time.sleep(_wait_s(number, exc.wait_s))
        raise NoReply(self._without_key(f"no answer in {TRIES} tries: {problem}"), may_have_cost=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask_once(self, request: Request, pictures: Sequence[Picture]) -> Reply:
        # What is sent without its pictures is another request.
        headers = {"Idempotency-Key": request.key + ("" if len(pictures) == len(request.pictures) else "-text")}
        body = self._body(request, pictures)
        try:
            with self._http.stream("POST", "chat/completions", json=body, headers=headers) as response:
                if response.status_code != 200:
                    self._refuse(response, pictures)
                if "event-stream" in response.headers.get("content-type", ""):
                    return self._streamed(request, response)
                return self._whole(request, response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise _Passing(self._without_key(f"{self._http.base_url}: {exc}")) from exc
        except httpx2.HTTPError as exc:
            # The request was sent. Whether it is charged for nobody knows, so it is not sent again.
            raise NoReply(self._without_key(f"the connection broke: {exc}"), may_have_cost=True) from exc

    def _body(self, request: Request, pictures: Sequence[Picture] = ()) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": each.role, "content": each.text} for each in request.messages]
        if pictures:
            messages[-1]["content"] = [{"type": "text", "text": request.messages[-1].text}, *map(_image_part, pictures)]
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_completion_tokens": request.max_tokens,
            "seed": request.number,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._sends_old_limit:
            body["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body

    def _streamed(self, request: Request, response: httpx2.Response) -> Reply:
        """Put the pieces of a stream together; one that ends without its end mark is incomplete."""
        text: list[str] = []
        usage, finish, length = None, None, 0
        answers = False
        try:
            for line in _lines(response):
                data = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or data == b"[DONE]":
                    continue
                event = self._parsed(data)
                answers = answers or bool(event.choices)
                usage = _counted(event) or usage
                if (choice := event.choice) is not None:
                    piece = choice.delta.text if choice.delta is not None else ""
                    text.append(piece)
                    length += len(piece)
                    finish = choice.finish_reason or finish
                if length > MOST_REPLY_BYTES:
                    raise NoReply(f"the reply is longer than {MOST_REPLY_BYTES} characters", may_have_cost=True)
        except httpx2.HTTPError:
            answers, finish = True, None
        if not answers:
            raise NoReply("the server's stream ended without an answer", may_have_cost=True)
        return _reply(request, "".join(text), usage, finish)

    def _whole(self, request: Request, response: httpx2.Response) -> Reply:
        """A reply in one piece, from servers that do not stream."""
        document = self._parsed(b"".join(_pieces(response, MOST_REPLY_BYTES)))
        choice = document.choice
        if choice is None or choice.message is None:
            raise NoReply("the server's answer holds no message", may_have_cost=True)
        return _reply(request, choice.message.text, _counted(document), choice.finish_reason)

    def _parsed(self, data: bytes) -> _Document:
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise NoReply(f"the server's answer is not of the protocol: {exc}", may_have_cost=True) from exc
        if bytes(document.error) != b"null":
            said = self._without_key(bytes(document.error)[:MOST_LINE_BYTES].decode(errors="replace"))[:300]
            raise NoReply(f"the server failed: {said}", may_have_cost=True)
        return document

    def _refuse(self, response: httpx2.Response, pictures: Sequence[Picture]) -> None:
        """Raise what a status other than 200 means."""
        said = b"".join(_pieces(response, MOST_REPLY_BYTES)).decode(errors="replace")
        text = self._without_key(" ".join(said.split()))[:300]
        status = response.status_code
        if pictures and refuses_pictures(status, text) and not self._limit_is_meant(status, text):
            raise _Refused(f"status {status}: {text}")
        if status in _PASSING:
            raise _Passing(f"status {status}: {text}", wait_s=_seconds(response.headers.get("retry-after")))
        if self._limit_is_meant(status, text):
            self._sends_old_limit = False
            raise _Passing(f"status {status}: {text}", wait_s=0.0)
        if status in _FOR_GOOD:
            where = self._without_key(str(self._http.base_url))
            raise BadInput(f"{self.name} at {where}: status {status}, {_FOR_GOOD[status]}; {text}")
        raise NoReply(f"status {status}: {text}", may_have_cost=status in TIMED_OUT)

    def _limit_is_meant(self, status: int, text: str) -> bool:
        return status in _MALFORMED and self._sends_old_limit and "max_tokens" in text

    def _without_key(self, text: str) -> str:
        return self._redaction.of(text)


class _Refused(Exception):
    """The question was refused, and it may be for its pictures."""


class _Passing(Exception):
    """The same question may be answered later."""

    def __init__(self, message: str, *, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def _image_part(picture: Picture) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}}


def _reply(request: Request, text: str, counted: _Counted | None, finish: str | None) -> Reply:
    usage: Usage | None = None
    if counted is not None:
        usage = usage_of(request, text, counted.prompt_tokens, counted.completion_tokens)
    return Reply(text=text, usage=usage, complete=finish == "stop")


def _counted(document: _Document) -> _Counted | None:
    try:
        return msgspec.json.decode(document.usage, type=_Counted | None)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _pieces(response: httpx2.Response, most_bytes: int) -> Iterator[bytes]:
    """The body as it arrives.

    Raises:
        NoReply: it is compressed, longer than ``most_bytes``, or takes longer than :data:`DEADLINE_S`.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise NoReply(f"the server's answer is compressed ({encoding[:30]}), though none was to be", may_have_cost=True)
    begun, length = time.monotonic(), 0
    for piece in response.iter_raw():
        length += len(piece)
        if length > most_bytes:
            raise NoReply(f"the server's answer is longer than {most_bytes} bytes", may_have_cost=True)
        if time.monotonic() - begun > DEADLINE_S:
            raise NoReply(f"the server's answer has not ended after {DEADLINE_S:.0f} s", may_have_cost=True)
        yield piece


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    """The lines of a stream; what a broken stream ends with is none."""
    rest = b""
    for piece in _pieces(response, MOST_STREAM_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > MOST_LINE_BYTES:
            raise NoReply(f"a line of the server's answer is longer than {MOST_LINE_BYTES} bytes", may_have_cost=True)
    yield rest


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` in seconds; dates are left to the doubling wait."""
    try:
        asked_s = float(header) if header else math.nan
    except ValueError:
        return None
    return max(0.0, asked_s) if math.isfinite(asked_s) else None


def _wait_s(number: int, asked_s: float | None) -> float:
    """How long to wait: as the server says, else a random share of a time that doubles (full jitter).

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    if asked_s is not None:
        return min(asked_s, LONGEST_WAIT_S)
    return random.uniform(0.0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**number))  # noqa: S311 - spreads requests
