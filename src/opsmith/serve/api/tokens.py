"""Tokens, for administrators."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from opsmith.serve.access import Admin
from opsmith.serve.api.common import Served, problems
from opsmith.serve.messages import Line, NewTokenOut, TokenIn, TokenOut
from opsmith.serve.store.tokens import Token, create_token, list_tokens, revoke_token

router = APIRouter(prefix="/api/tokens", responses=problems())


@router.get("")
def get_tokens(_token: Admin, service: Served) -> list[TokenOut]:
    """Every token, revoked ones too, without the secrets."""
    return [TokenOut(**_fields(token)) for token in list_tokens(service.database)]


@router.post("", status_code=201, responses=problems(409))
def post_token(_token: Admin, service: Served, asked: TokenIn) -> NewTokenOut:
    """Make a token; its secret is in the answer and nowhere else."""
    token, secret = create_token(service.database, asked.name, asked.role, kernels_a_day=asked.kernels_a_day)
    return NewTokenOut(secret=secret, **_fields(token))


@router.delete("/{name}", responses=problems(404))
def delete_token(_token: Admin, service: Served, name: Annotated[Line, Path(min_length=1)]) -> TokenOut:
    """Revoke a token; what was submitted with it stays."""
    return TokenOut(**_fields(revoke_token(service.database, name)))


def _fields(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in TokenOut.model_fields}
