"""Keys and passwords are taken out of all that a provider says before it is written or shown.

A server may quote what it was sent: whole, shortened, or within an address. So parts of a secret count, too: whatever
shares :data:`PART` characters in a row with one.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

#: A secret's part of so many characters is taken out; a shorter secret only as a whole.
PART = 8
#: What is shorter is no secret, and may be any word of a kernel.
SHORTEST = 4
MARK = "[redacted]"
#: Variables that hold secrets, by their names; a path is none.
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$")
_USER_INFO = re.compile(r"(?<=://)[^/?#\s@]+(?=@)")


class Redaction:
    """Takes secrets out of text.

    Args:
        secrets: what must not be seen.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets if len(secret) >= SHORTEST for part in _parts(secret)}
        # A lookahead finds parts that overlap.
        self._parts = re.compile(f"(?=({'|'.join(map(re.escape, sorted(parts)))}))") if parts else None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Redaction:
        """Of the secrets that environment variables hold: keys by their names, and credentials in addresses."""
        return cls(_secrets(environment))

    def of(self, text: str) -> str:
        """The text without them, and without credentials in addresses."""
        text = _USER_INFO.sub(MARK, text)
        if self._parts is None:
            return text
        kept: list[str] = []
        end = 0
        for start, stop in _merged((found.start(), found.end(1)) for found in self._parts.finditer(text)):
            kept += [text[end:start], MARK]
            end = stop
        return "".join([*kept, text[end:]])


def _parts(secret: str) -> Iterator[str]:
    length = min(PART, len(secret))
    return (secret[place : place + length] for place in range(len(secret) - length + 1))


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order, those that touch as one."""
    last: tuple[int, int] | None = None
    for start, stop in spans:
        if last is not None and start <= last[1]:
            last = last[0], max(last[1], stop)
        else:
            if last is not None:
                yield last
            last = start, stop
    if last is not None:
        yield last


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and len(value) >= PART and not value.startswith(("/", "~", ".")):
            yield value
        for credentials in _USER_INFO.findall(value):
            user, _, password = unquote(credentials).partition(":")
            yield from itertools.chain((credentials, password or user), _basic(user, password))
    yield environment.get("OPENAI_API_KEY", "")


def _basic(user: str, password: str) -> Iterator[str]:
    """The header that HTTP makes of them."""
    yield base64.b64encode(f"{user}:{password}".encode()).decode()
