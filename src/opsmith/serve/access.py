"""Who is asking, and whether they may: tokens in headers for programs, in a cookie for browsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.exceptions import HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from opsmith.serve.limits import Rate
from opsmith.serve.settings import Limits
from opsmith.serve.store.database import Database
from opsmith.serve.store.tokens import Role, Token, find_token

COOKIE = "opsmith_token"

_bearer = HTTPBearer(auto_error=False, description="A token of `opsmith token create`.")


class Access:
    """Lets requests in.

    Args:
        database: knows the tokens.
        limits: how many requests.
    """

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database = database
        self._requests = Rate(limits.requests_per_s, limits.burst)
        self._refused = Rate(limits.refused_per_minute / 60, limits.refused_per_minute)

    def let_in(self, secret: str | None, role: Role, address: str) -> Token:
        """The token of a secret, if it may do what ``role`` may.

        Raises:
            HTTPException: 401 without a valid token, 403 where its role does not suffice, 429 for too many requests.
        """
        if wait_s := self._refused.peek(address):
            raise _too_many("attempts without a valid token", wait_s)
        token = None if secret is None else find_token(self._database, secret)
        if token is None:
            self._refused.take(address)
            raise HTTPException(
                401, "a valid token is needed: Authorization: Bearer opsmith_...", {"WWW-Authenticate": "Bearer"}
            )
        if wait_s := self._requests.take(token.id):
            raise _too_many("requests", wait_s)
        if not token.role.includes(role):
            raise HTTPException(403, f"the role {token.role} may not do this; {role} may")
        return token


def _too_many(what: str, wait_s: int) -> HTTPException:
    return HTTPException(429, f"too many {what}; try again in {wait_s} s", {"Retry-After": str(wait_s)})


def address_of(request: Request) -> str:
    """Of the client, as the connection tells it."""
    return request.client.host if request.client else ""


def _needs(role: Role) -> Callable[..., Token]:
    def let_in(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Token:
        access: Access = request.app.state.access
        return access.let_in(credentials.credentials if credentials else None, role, address_of(request))

    return let_in


Reader = Annotated[Token, Depends(_needs(Role.READER))]
Submitter = Annotated[Token, Depends(_needs(Role.SUBMITTER))]
Admin = Annotated[Token, Depends(_needs(Role.ADMIN))]
