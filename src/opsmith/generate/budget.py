"""Budgets: what a campaign may spend, and what one more exchange may cost at most."""

from __future__ import annotations

import importlib.resources
import json
import math
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from opsmith.errors import BadInput
from opsmith.generate.chat import Request, Usage

_MILLION = 1_000_000
#: Sums are 64-bit integers.
MOST_SUM = (1 << 63) - 1


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a campaign; None is no limit.

    Attributes:
        usd: US dollars paid to providers.
        tokens: sent and received.
        device_s: seconds of judging and timing.
    """

    usd: float | None = None
    tokens: int | None = None
    device_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``usd=5,tokens=2e6,device_s=900``.

        Raises:
            BadInput: it is not of that form.
        """
        limits: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name.strip() in limits:
                raise BadInput(f"--budget limits {name.strip()} twice; write each limit once")
            try:
                limits[name.strip()] = float(value)
            except ValueError:
                raise BadInput(f"--budget {part!r} is no amount; write usd=5,tokens=2e6,device_s=900") from None
        unknown = limits.keys() - set(cls.__struct_fields__)
        if unknown or not all(math.isfinite(value) and value >= 0 for value in limits.values()):
            wrong = ", ".join(sorted(unknown)) or text
            raise BadInput(f"--budget knows usd, tokens and device_s, each at least 0, not {wrong}")
        tokens = limits.get("tokens")
        if tokens is not None and tokens > MOST_SUM:
            raise BadInput(f"--budget tokens={tokens:g} is more than can be counted; leave the limit out")
        return cls(
            usd=limits.get("usd"), tokens=None if tokens is None else int(tokens), device_s=limits.get("device_s")
        )

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.usd, self.tokens, self.device_s))


class Amount(msgspec.Struct, frozen=True):
    """What an exchange costs; ``usd`` is None where nobody knows the model's price."""

    usd: float | None
    tokens: int


class Exhausted(Exception):
    """The budget does not allow one more step; says which limit, in one line."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]


class Prices:
    """The price of each model; patterns such as ``openai:gpt-x*``, the longest that fits decides.

    Args:
        own: a JSON file of the user's, ``{"pattern": {"input": 1.0, "output": 4.0}}``, whose prices replace ours.

    Raises:
        BadInput: the file cannot be read as that.
    """

    def __init__(self, own: Path | None = None) -> None:
        shipped = json.loads(importlib.resources.files("opsmith.generate").joinpath("prices.json").read_bytes())
        self._prices = msgspec.convert(shipped["prices"], dict[str, Price])
        if own is not None:
            try:
                self._prices |= msgspec.json.decode(own.read_bytes(), type=dict[str, Price])
            except (OSError, msgspec.MsgspecError) as exc:
                raise BadInput(
                    f'{own} is no price list like {{"openai:NAME*": {{"input": 1, "output": 4}}}}: {exc}'
                ) from exc

    def of(self, model: str) -> Price | None:
        """The price of a model, or None."""
        fitting = [pattern for pattern in self._prices if fnmatchcase(model, pattern)]
        return self._prices[max(fitting, key=len)] if fitting else None

    def most(self, request: Request) -> Amount:
        """What a question may cost at most."""
        return self.cost(request.model, Usage(request.most_input_tokens, request.max_tokens))

    def cost(self, model: str, usage: Usage) -> Amount:
        """What tokens cost."""
        price = self.of(model)
        tokens = usage.input_tokens + usage.output_tokens
        if price is None:
            return Amount(None, tokens)
        return Amount((usage.input_tokens * price.input + usage.output_tokens * price.output) / _MILLION, tokens)
