"""Who is asking, and whether they may: tokens in headers for programs, sessions in cookies for browsers."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.exceptions import HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from opsmith.serve.limits import Rate
from opsmith.serve.settings import Limits
from opsmith.serve.store.database import Database
from opsmith.serve.store.sessions import find_session
from opsmith.serve.store.tokens import Role, Token, find_token

COOKIE = "opsmith_session"

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

        Whoever has a valid token is let in, whatever else comes from the same address.

        Raises:
            HTTPException: 401 without a valid token, 403 where its role does not suffice, 429 for too many requests.
        """
        token = None if secret is None else find_token(self._database, secret)
        return self._counted(token, role, address)

    def let_look(self, session: str | None, address: str) -> Token:
        """The token with which a browser has signed in; raises as :meth:`let_in`."""
        token = None if session is None else find_session(self._database, session)
        return self._counted(token, Role.READER, address)

    def _counted(self, token: Token | None, role: Role, address: str) -> Token:
        if token is None:
            if wait_s := self._refused.take(address):
                raise _too_many("attempts without a valid token", wait_s)
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
    """Whom attempts are counted for: the address of the connection, or the one that a trusted proxy tells."""
    return counted_as(request.client.host if request.client else "")


def counted_as(address: str) -> str:
    """An address of IPv4, or the network of one of IPv6, in which one client has 2**64 of them."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed), 64), strict=False))


def _needs(role: Role) -> Callable[..., Token]:
    def let_in(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Token:
        access: Access = request.app.state.access
        return access.let_in(credentials.credentials if credentials else None, role, address_of(request))

    return let_in


Reader = Annotated[Token, Depends(_needs(Role.READER))]
Submitter = Annotated[Token, Depends(_needs(Role.SUBMITTER))]
Reviewer = Annotated[Token, Depends(_needs(Role.REVIEWER))]
Admin = Annotated[Token, Depends(_needs(Role.ADMIN))]
