"""Reviews that were made on a service, taken over into a folder's own."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from opsmith.errors import BadInput
from opsmith.report.strangers import one_line
from opsmith.reviews.records import Review

TOKEN_VARIABLE = "OPSMITH_TOKEN"  # noqa: S105 - the name of a variable
_ANSWER_S, _MOST_BYTES, _AT_A_TIME = 30.0, 64 << 20, 50


def fetch_reviews(service: str, hashes: Sequence[str]) -> list[Review]:
    """The reviews that a service has of these contents.

    Raises:
        BadInput: it does not answer, refuses, or what it says is no review; the token is missing.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise BadInput(f"--from needs a token of the service in {TOKEN_VARIABLE}")
    if not service.startswith(("https://", "http://")):
        raise BadInput(f"--from {service!r} is no address; give one as https://opsmith.example")
    found: list[Review] = []
    for begin in range(0, len(hashes), _AT_A_TIME):
        query = urlencode([("content_hash", each) for each in hashes[begin : begin + _AT_A_TIME]])
        found += _asked(f"{service.rstrip('/')}/api/reviews?{query}", token)
    return [review for review in found if review.content_hash in hashes]


def _asked(url: str, token: str) -> list[Review]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - checked
    try:
        with urllib.request.build_opener(_Direct).open(request, timeout=_ANSWER_S) as answer:
            return msgspec.json.decode(answer.read(_MOST_BYTES), type=list[Review])
    except urllib.error.HTTPError as exc:
        raise BadInput(f"the service answers {exc.code}: {one_line(exc.read(1000).decode(errors='replace'))}") from exc
    except (OSError, ValueError) as exc:
        raise BadInput(f"the service does not answer: {one_line(str(exc))}") from exc
    except msgspec.MsgspecError as exc:
        raise BadInput(f"what the service says is no list of reviews: {one_line(str(exc))}") from exc


class _Direct(urllib.request.HTTPRedirectHandler):
    """A redirection would carry the token to another server."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""
