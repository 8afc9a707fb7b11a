"""Where kernels come from: ``openai:gpt-x``, ``command:./my-model`` or ``inductor`` becomes something that answers."""

from __future__ import annotations

from collections.abc import Sequence

from opsmith import plugins
from opsmith.errors import BadInput
from opsmith.generate.chat import ChatModel, TaskAuthor


def full_names(provider: str | None, models: Sequence[str]) -> tuple[str, ...]:
    """Names of the form ``PROVIDER:MODEL``, or ``PROVIDER`` alone, from what the command line was given.

    Args:
        provider: one, or several with commas between them, which need no model.
        models: each with its provider before it, or one of ``provider``'s; or a provider that needs no model.

    Raises:
        BadInput: no model is named, one without a provider, one twice, or one that is not text.
    """
    known = plugins.names(plugins.PROVIDERS)
    several = [] if provider is None else [name.strip() for name in provider.split(",") if name.strip()]
    if not models and not several:
        raise BadInput("name who writes: --provider inductor, or --model openai:NAME (more than once for a swarm)")
    if len(set(several)) < len(several):
        raise BadInput(f"--provider {provider} names one twice; --attempts 8 asks it more often")
    if not models:
        return tuple(several)
    if len(several) > 1:
        raise BadInput(f"--provider {provider} names several, so each --model has to name its own: PROVIDER:MODEL")
    named = []
    for model in models:
        prefix, colon, _ = model.partition(":")
        if prefix in known and (colon or provider is None):
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
