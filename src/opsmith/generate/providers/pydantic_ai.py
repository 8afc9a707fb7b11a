"""Provider ``pydantic-ai`` (extra): every model that pydantic-ai knows, ``pydantic-ai:anthropic:NAME`` for example.

Keys come from the environment variables that pydantic-ai reads for each of its providers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from opsmith.errors import BadInput, MissingDependency
from opsmith.generate.chat import TIMED_OUT, Message, NoReply, Picture, Reply, Request, Role, refuses_pictures, usage_of

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model


class PydanticAIChat:
    """A model of pydantic-ai's.

    Attributes:
        takes_pictures: they are sent; a provider may refuse them.

    Args:
        model: its name there, or a model object, which tests hand in.

    Raises:
        MissingDependency: pydantic-ai is not installed.
        BadInput: it knows no such model, or lacks that provider's key or package.
    """

    takes_pictures = True

    def __init__(self, model: str | Model) -> None:
        try:
            from pydantic_ai.exceptions import UserError
            from pydantic_ai.models import infer_model
        except ImportError as exc:
            raise MissingDependency("pydantic_ai", extra="pydantic-ai") from exc
        self.name = f"pydantic-ai:{model if isinstance(model, str) else model.model_name}"
        try:
            self._model = infer_model(model)
        except (UserError, ImportError, ValueError) as exc:
            raise BadInput(f"{self.name}: {' '.join(str(exc).split())}") from exc

    def ask(self, request: Request) -> Reply:
        """See :meth:`opsmith.generate.chat.ChatModel.ask`; retries are pydantic-ai's own."""
        try:
            return self._ask_once(request, request.pictures)
        except _Refused:
            return msgspec.structs.replace(self._ask_once(request, ()), blind=True)

    def _ask_once(self, request: Request, pictures: Sequence[Picture]) -> Reply:
        from pydantic_ai import direct
        from pydantic_ai.exceptions import AgentRunError, ModelHTTPError, UserError
        from pydantic_ai.settings import ModelSettings

        settings = ModelSettings(max_tokens=request.max_tokens, seed=request.number)
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        try:
            told = _messages(request.messages, pictures)
            response = direct.model_request_sync(self._model, told, model_settings=settings)
        except ModelHTTPError as exc:
            if pictures and refuses_pictures(exc.status_code, str(exc)):
                raise _Refused from exc
            if exc.status_code in (401, 403, 404):
                raise BadInput(f"{self.name}: {' '.join(str(exc).split())[:300]}") from exc
            raise NoReply(f"status {exc.status_code}", may_have_cost=exc.status_code in TIMED_OUT) from exc
        except UserError as exc:
            raise BadInput(f"{self.name}: {' '.join(str(exc).split())}") from exc
        except AgentRunError as exc:
            raise NoReply(" ".join(str(exc).split())[:300], may_have_cost=True) from exc
        except Exception as exc:  # It fails in many ways on an answer that is not of its format.
            said = f"pydantic-ai cannot read the answer: {type(exc).__name__}: {exc}"
            raise NoReply(" ".join(said.split())[:300], may_have_cost=True) from exc
        return _reply(request, response)

    def close(self) -> None:
        """pydantic-ai shares its connections between models and closes them itself."""


class _Refused(Exception):
    """The question was refused, and it may be for its pictures."""


def _messages(messages: tuple[Message, ...], pictures: Sequence[Picture]) -> list[ModelMessage]:
    from pydantic_ai.messages import (
        BinaryContent,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        UserPromptPart,
    )

    told: list[ModelMessage] = []
    for number, message in enumerate(messages, start=1):
        if message.role is Role.ASSISTANT:
            told.append(ModelResponse(parts=[TextPart(message.text)]))
        elif pictures and number == len(messages):
            shown = [BinaryContent(picture.png, media_type="image/png") for picture in pictures]
            told.append(ModelRequest(parts=[UserPromptPart([message.text, *shown])]))
        else:
            part = SystemPromptPart if message.role is Role.SYSTEM else UserPromptPart
            told.append(ModelRequest(parts=[part(message.text)]))
    return told


def _reply(request: Request, response: ModelResponse) -> Reply:
    from pydantic_ai.messages import TextPart

    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    counted = response.usage
    # Zero stands for counts that it could not read, too.
    told = counted.input_tokens > 0
    usage = usage_of(request, text, counted.input_tokens, counted.output_tokens) if told else None
    return Reply(text=text, usage=usage, complete=response.finish_reason in (None, "stop"))
