"""Who may look: a browser signs in with a token, and keeps its session in a cookie that no script can read."""

from __future__ import annotations

import hashlib
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from opsmith.serve.access import COOKIE, Access, address_of
from opsmith.serve.api.common import Served
from opsmith.serve.pages.shown import environment, static_file, static_url
from opsmith.serve.service import Service
from opsmith.serve.store.sessions import ABSOLUTE_S, begin_session, end_session
from opsmith.serve.store.tokens import Role, Token

router = APIRouter(include_in_schema=False)

HEADERS = {
    # Styles are the page's and plotly's own; nothing else is taken from anywhere but this server.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def _viewer(request: Request) -> Token:
    access: Access = request.app.state.access
    try:
        return access.let_look(request.cookies.get(COOKIE), address_of(request))
    except HTTPException as exc:
        if exc.status_code != 401:
            raise
        asked = quote(f"{request.url.path}?{request.url.query}".rstrip("?"))
        raise HTTPException(303, headers={"Location": f"/login?next={asked}"}) from exc


Viewer = Annotated[Token, Depends(_viewer)]


def form_token(session: str) -> str:
    """What a form of a session's own pages holds, and no other site's can: it follows from the cookie."""
    return hashlib.sha256(f"form {session}".encode()).hexdigest()


def page(service: Service, viewer: Token | None, template: str, *, status: int = 200, **content: object) -> Response:
    """A page made of a template."""
    text = environment().get_template(template).render(viewer=viewer, suites=service.suites, **content)
    return HTMLResponse(text, status, headers=HEADERS)


@router.get("/login")
def show_login(service: Served) -> Response:
    """Where a token is asked for."""
    return page(service, None, "login.html.j2", problem="")


@router.post("/login")
async def log_in(request: Request, service: Served, next: str = "/") -> Response:  # noqa: A002 - a name in the URL
    """Take a token; a wrong one is counted as at any other door."""
    secret = parse_qs((await request.body()).decode(errors="replace")).get("token", [""])[0].strip()
    access: Access = request.app.state.access
    try:
        token = await run_in_threadpool(access.let_in, secret, Role.READER, address_of(request))
    except HTTPException as exc:
        problem = "This is no valid token." if exc.status_code == 401 else str(exc.detail)
        return page(service, None, "login.html.j2", status=exc.status_code, problem=problem)
    # Only a path of this server, so that nobody is led elsewhere.
    target = next if next.startswith("/") and not next.startswith(("//", "/\\")) else "/"
    answer = RedirectResponse(target, 303)
    session = await run_in_threadpool(begin_session, service.database, token)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, session, max_age=int(ABSOLUTE_S), httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
def log_out(request: Request, service: Served) -> Response:
    """End the session, here and in the browser."""
    if session := request.cookies.get(COOKIE):
        end_session(service.database, session)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/static/{_digest}/{name}")
def get_static(_digest: str, name: str) -> Response:
    """A style or a script, which never changes at its place."""
    found = static_file(name)
    if found is None or static_url(name) != f"/static/{_digest}/{name}":
        raise HTTPException(404, "there is no such file")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(found[0], media_type=found[1], headers=headers)
