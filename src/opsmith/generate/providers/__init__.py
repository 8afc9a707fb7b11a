"""Where kernels come from: ``openai:gpt-x``, ``command:./my-model`` or ``inductor`` becomes something that answers."""

from __future__ import annotations

from collections.abc import Sequence

from opsmith import plugins
from opsmith.errors import BadInput
from opsmith.generate.chat import ChatModel, TaskAuthor


def full_names(provider: str | None, models: Sequence[str]) -> tuple[str, ...]:
    """Names of the form ``PROVIDER:MODEL``, or ``PROVIDER`` alone, from what the command line was given.

    Raises:
        BadInput: no model is named, one without a provider, one twice, or one that is not text.
    """
    known = plugins.names(plugins.PROVIDERS)
    if not models:
        if provider is None:
            raise BadInput("name who writes: --provider inductor, or --model openai:NAME (more than once for a swarm)")
        return (provider,)
    named = []
    for model in models:
        prefix, colon, _ = model.partition(":")
        if colon and prefix in known:
            named.append(model)
        elif provider is not None:
            named.append(f"{provider}:{model}")
        else:
            raise BadInput(f"--model {model} names no provider; write PROVIDER:{model}, one of {', '.join(known)}")
        if not named[-1].isprintable():
            raise BadInput(f"--model {named[-1]!r} holds characters that cannot be shown")
        if named[-1] in named[:-1]:
            raise BadInput(f"--model {named[-1]} is named twice; --attempts 8 asks it more often")
    return tuple(named)


def author(name: str) -> ChatModel | TaskAuthor:
    """What a name stands for.

    Raises:
        UsageError: there is no such provider, or it cannot be used here.
    """
    provider, _, model = name.partition(":")
    made: ChatModel | TaskAuthor = plugins.load(plugins.PROVIDERS, provider)(model)
    return made
