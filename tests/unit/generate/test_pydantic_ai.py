"""The provider that asks through pydantic-ai."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from opsmith.errors import BadInput
from opsmith.generate.chat import Message, NoReply, Picture, Reply, Request, Role, Usage
from opsmith.generate.providers.pydantic_ai import PydanticAIChat

QUESTION = Request(
    model="pydantic-ai:function",
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


def test_the_conversation_and_the_settings_arrive() -> None:
    """In pydantic-ai's own terms; text and usage come back."""
    seen: dict[str, Any] = {}

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        seen["parts"] = [(part.part_kind, part.content) for message in messages for part in message.parts]
        seen["settings"] = info.model_settings
        usage = RequestUsage(input_tokens=11, output_tokens=5)
        return ModelResponse(parts=[TextPart("code"), TextPart("!")], usage=usage, finish_reason="length")

    found = PydanticAIChat(FunctionModel(answer)).ask(QUESTION)
    assert Reply(text="code!", usage=Usage(11, 5), complete=False) == found
    assert [("system-prompt", "rules"), ("user-prompt", "write"), ("text", "no"), ("user-prompt", "do")] == seen[
        "parts"
    ]
    assert {"max_tokens": 77, "temperature": 0.25, "seed": 3} == dict(seen["settings"])


def test_pictures_go_with_the_last_message() -> None:
    """As binary content; a model that refuses them is asked once more without, and the reply says so."""
    seen: list[Any] = []

    def answer(messages: list[Any], _info: AgentInfo) -> ModelResponse:
        seen.append(messages[-1].parts[-1].content)
        if len(seen) == 2:
            raise ModelHTTPError(400, "m", {"message": "no images"})
        return ModelResponse(parts=[TextPart("hint")])

    model = PydanticAIChat(FunctionModel(answer))
    question = msgspec.structs.replace(QUESTION, pictures=(Picture(kind="k", caption="c", png=b"png"),))
    assert not model.ask(question).blind
    [text, picture] = seen[0]
    assert ("do", b"png", "image/png") == (text, picture.data, picture.media_type)
    assert model.ask(question).blind
    assert "do" == seen[2]


@pytest.mark.parametrize(("status", "error"), [(401, BadInput), (500, NoReply)])
def test_errors_end_the_campaign_or_the_exchange(status: int, error: type[Exception]) -> None:
    """As those of the other providers."""

    def answer(_messages: list[Any], _info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(status, "m", {"message": "no"})

    with pytest.raises(error):
        PydanticAIChat(FunctionModel(answer)).ask(QUESTION)


def test_a_model_that_it_does_not_know_is_named() -> None:
    """Before anything is asked."""
    with pytest.raises(BadInput, match="nobody:nothing"):
        PydanticAIChat("nobody:nothing")
