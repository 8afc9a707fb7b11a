"""What is asked of a language model, and what comes back: plain records and one small contract."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema


class Role(enum.StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(msgspec.Struct, frozen=True, array_like=True):
    role: Role
    text: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that goes with a question.

    Attributes:
        kind: what it shows, in a word or two.
        caption: the same in a sentence, with what the question's text calls it.
        png: the file, at most 1024 x 768 pixels.
    """

    kind: str
    caption: str
    png: bytes


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question to one model.

    Attributes:
        model: as the user named it, provider included: ``openai:gpt-x``.
        messages: the conversation so far; the last one is the user's.
        max_tokens: of the reply, at most.
        temperature: of sampling; None leaves it to the model.
        number: tells questions apart that are otherwise the same; it is also sent as the sampling seed.
        pictures: that the last message is sent with.
    """

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float | None
    number: int
    pictures: tuple[Picture, ...] = ()

    @property
    def key(self) -> str:
        """Names the exchange: equal questions are one exchange, which is paid for once."""
        return hashlib.blake2b(msgspec.msgpack.encode(self), digest_size=16).hexdigest()

    @property
    def most_input_tokens(self) -> int:
        """More than any tokenizer makes of the messages: one for each byte, and some for each role and picture."""
        text = self.text_bytes + sum(len(picture.caption.encode()) for picture in self.pictures)
        return text + 16 * len(self.messages) + MOST_PICTURE_TOKENS * len(self.pictures)

    @property
    def text_bytes(self) -> int:
        """Bytes of all messages' text."""
        return sum(len(message.text.encode()) for message in self.messages)


#: What a provider charges for a picture of 1024 x 768 pixels at most: gpt-4o-mini, 2,833 and 5,667 for each of 4 tiles.
MOST_PICTURE_TOKENS = 25_501


class Usage(msgspec.Struct, frozen=True):
    """Tokens that a reply cost, as the provider counts them."""

    input_tokens: int
    output_tokens: int


#: No tokenizer puts more text into a token, but for runs of one character; and no exchange has more tokens.
LONGEST_TOKEN_BYTES = 64
MOST_TOKENS = 1_000_000_000


def usage_of(request: Request, text: str, input_tokens: int, output_tokens: int) -> Usage | None:
    """Tokens as a provider counted them; None where it cannot have: an exchange that costs less than its text holds.

    Args:
        request: what was sent.
        text: what came back.
        input_tokens: as the provider says.
        output_tokens: likewise.
    """
    fewest = (request.text_bytes // LONGEST_TOKEN_BYTES, len(text.encode()) // LONGEST_TOKEN_BYTES)
    told = (input_tokens, output_tokens)
    if any(not least <= count <= MOST_TOKENS for least, count in zip(fewest, told, strict=True)):
        return None
    return Usage(input_tokens, output_tokens)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered.

    Attributes:
        text: all of it.
        usage: None where the provider does not say.
        complete: it ended by itself, not at the limit of tokens or with the connection.
        blind: the question had pictures, and the model was given its text alone: it takes none.
    """

    text: str
    usage: Usage | None = None
    complete: bool = True
    blind: bool = False


#: Statuses with which servers refuse what they cannot read, and those with which some refuse pictures by name.
_UNREADABLE = frozenset({400, 415, 422})
_REFUSED_BY_NAME = frozenset({404, 500, 501})
_PICTURES_NAMED = re.compile(r"image|vision|multi-?modal|modalit", re.IGNORECASE)


def refuses_pictures(status: int, said: str) -> bool:
    """Whether a server that was sent pictures may be asked once more without them: it has not worked on the question.

    Args:
        status: of its answer.
        said: the answer's text.
    """
    return status in _UNREADABLE or (status in _REFUSED_BY_NAME and _PICTURES_NAMED.search(said) is not None)


#: Statuses with which a server says that it gave up waiting for an answer that somebody was working on.
TIMED_OUT = frozenset({408, 504, 524})


class NoReply(Exception):
    """A model gave no answer, for good; the message is one line.

    One rule says what that costs. What was refused before anybody worked on it is free: no connection, or an error
    status. What was sent and not answered is charged as it was reserved, and not sent again, since somebody may have
    worked on it: a broken connection, a time-out on either side (:data:`TIMED_OUT`), a program that ended with an
    error.

    Attributes:
        may_have_cost: the provider may have charged for it all the same.
    """

    def __init__(self, message: str, *, may_have_cost: bool) -> None:
        super().__init__(message)
        self.may_have_cost = may_have_cost


@runtime_checkable
class TaskAuthor(Protocol):
    """Writes kernels from a task's calls rather than from words: a compiler, a search."""

    name: str

    def write(self, op: OpSchema, calls: Sequence[CallRecord], *, dsl: str, device: str, number: int) -> Reply:
        """A kernel file for a task, in a code block.

        Args:
            op: the task's schema.
            calls: of the task.
            dsl: to write in.
            device: torch device string.
            number: tells attempts apart.

        Raises:
            NoReply: there is no kernel for this task; says why.
        """
        ...

    def close(self) -> None:
        """Free what it holds; it is not asked again."""
        ...


@runtime_checkable
class KernelAuthor(TaskAuthor, Protocol):
    """Writes kernels from calls, or from another kernel: a search. Of several it is given the best."""

    def vary(self, source: str, tried: Collection[str], *, dsl: str, number: int) -> Reply:
        """Another kernel file like one that is right, in a code block.

        Args:
            source: of the file.
            tried: digests (:func:`opsmith.core.case.digest`) of all sources that there were for the task.
            dsl: that it is written in.
            number: tells attempts apart.

        Raises:
            NoReply: there is no further one; says why.
        """
        ...


class ChatModel(Protocol):
    """Answers questions; called from several threads.

    One that has an attribute ``takes_pictures``, and it is true, is given a question's pictures.
    """

    name: str

    def ask(self, request: Request) -> Reply:
        """Answer, however often that has to be tried.

        Raises:
            NoReply: there is no answer to this question.
            UsageError: there will be none to any: a wrong key, no such model.
        """
        ...

    def close(self) -> None:
        """Free what it holds; it is not asked again."""
        ...


def asked(model: ChatModel, request: Request) -> Reply:
    """Ask a model, without the pictures where it takes none; raises as it does."""
    if not request.pictures or getattr(model, "takes_pictures", False):
        return model.ask(request)
    return msgspec.structs.replace(model.ask(msgspec.structs.replace(request, pictures=())), blind=True)
